"""The grammar of `--dynamic`."""

from __future__ import annotations

import pytest

from dvk.errors import TaskError
from dvk.tasks import dynamic
from dvk.tasks.dynamic import DynamicDim


def test_tensors_share_dimensions_by_name() -> None:
    found = dynamic.parse(
        ["x=float32[batch:1..64, 16]", "y=int64[batch, seq : 2 .. 9]<7", "m=bool[seq]"]
    )
    assert found is not None
    assert found.dims == (DynamicDim("batch", 1, 64), DynamicDim("seq", 2, 9))
    specs = found.specs({"batch": 5, "seq": 3}, ["z=float32[2]"], drawn=False)
    assert specs == ("z=float32[2]", "x=float32[5,16]", "y=int64[5,3]<7", "m=bool[3]")
    assert found.variant({"batch": 5, "seq": 3}).changes == (
        ("x", 0, 5),
        ("y", 0, 5),
        ("y", 1, 3),
        ("m", 0, 3),
    )


def test_values_are_drawn_as_the_file_does() -> None:
    found = dynamic.parse(["x=float32[n:1..9]", "y=float32[n]:ones"])
    assert found is not None
    assert found.specs({"n": 4}, (), drawn=True) == ("x=float32[4]:like", "y=float32[4]:ones")


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["x=float32[batch:5..1]"], "5..1 is no range"),
        (["x=float32[batch:0..9]"], "0..9 is no range"),
        (["x=float32[batch:4..6]"], "fewer than 4 sizes"),
        (["x=float32[batch, 4]"], "`batch` has no range"),
        (["x=float32[7, 4]"], "names no dimension"),
        (["x=float32[b:1..x]"], "neither a size nor a range"),
        (["x=float32[-1, b:1..9]"], "neither a size nor a range"),
        (["x=floaty[b:1..9]"], "unknown dtype"),
        (["float32[b:1..9]"], "cannot read"),
        (["x=float32[b:1..9]", "x=float32[b]"], "given twice"),
        (["x=float32[b:1..9]", "y=float32[b:1..8]"], "two ranges"),
        (["x=float32[a:1..9,b:1..9,c:1..9,d:1..9]"], "4 dimensions"),
    ],
)
def test_what_is_no_range_is_refused(texts: list[str], told: str) -> None:
    with pytest.raises(TaskError, match=told.replace(".", r"\.")):
        dynamic.parse(texts)


def test_an_input_outside_of_the_range_is_refused() -> None:
    found = dynamic.parse(["x=float32[batch:1..64, 16]"])
    assert found is not None
    found.check(["x=float32[64,16]", "y=float32[3]"])
    with pytest.raises(TaskError, match="batch=65, outside of batch:1..64"):
        found.check(["x=float32[65,16]"])
    with pytest.raises(TaskError, match="size 17 in dimension 1"):
        found.check(["x=float32[4,17]"])


def test_points_lie_in_the_range_on_a_logarithmic_scale() -> None:
    found = dynamic.parse(["x=float32[batch:1..4096, 16]"])
    assert found is not None
    assert [p["batch"] for p in found.points()] == [3, 23, 181, 1448]
    assert all(d["batch"] in found.dims[0] for d in found.fitted())


def test_samples_hold_ends_their_neighbours_an_odd_and_a_prime_size() -> None:
    sizes = [s["n"] for s in dynamic.sampled([DynamicDim("n", 1, 400)], {"n": (10, 100)})]
    assert {10, 11, 99, 100} <= set(sizes)
    assert any(n % 2 for n in sizes) and any(map(dynamic.is_prime, sizes))
    assert dynamic.sampled([DynamicDim("n", 1, 400)], {"n": (7, 7)}) == [{"n": 7}]
