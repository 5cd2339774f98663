"""Programs by speed, nearness and novelty."""

from __future__ import annotations

import math

import pytest

from dvk.agents.dialects.examples import TITLES, worked
from dvk.records import Status
from dvk.search.archive import Archive, gap
from dvk.search.novelty import distance
from tests.agents.conftest import ok, wrong
from tests.search.candidates import made, timed
from tests.search.writing import program


@pytest.mark.parametrize("name", sorted(TITLES))
def test_distance_is_of_what_is_computed(name: str) -> None:
    source = worked(name)[0].candidate  # type: ignore[arg-type]  # its own keys
    commented = source.replace("import torch\n", "# a remark\n\nimport torch\n", 1).replace(
        "ModelNew(nn", "ModelNew( nn"
    )
    assert distance(source, source) == distance(source, commented) == 0
    renamed = source.replace("width", "columns").replace(" n ", " count ")
    changed = source.replace("0.0", "7.0").replace("0.f", "7.f").replace("> 0 ?", "> 7 ?")
    others = [distance(source, worked(key)[0].candidate) for key in TITLES if key != name]
    assert distance(source, renamed) < 0.02 < distance(source, changed) < 0.1 < min(others)


def test_right_by_speed_then_wrong_by_nearness() -> None:
    archive = Archive()
    statuses = (Status.REJECTED, Status.COMPILE_ERROR, Status.MISMATCH, Status.LAUNCH_ERROR)
    wrongs = {status: made(status.value, wrong(status)) for status in statuses}
    slow, fast = made("slow", ok(1.1)), made("fast", ok(1.9))
    for one in (*wrongs.values(), slow, fast):
        archive.add(one)
    expected = [
        fast,
        slow,
        *(
            wrongs[s]
            for s in (Status.MISMATCH, Status.LAUNCH_ERROR, Status.COMPILE_ERROR, Status.REJECTED)
        ),
    ]
    assert archive.ranked() == expected


def test_unlike_is_far_from_all() -> None:
    archive = Archive()
    a, a2, b, c = (
        made(program(1.0 + n / 10, kind, number=n), ok(1.0 + n / 10))
        for n, kind in enumerate((0, 0, 1, 2))
    )
    for one in (a, a2, b, c, made(program(fault="off", kind=3), wrong())):
        archive.add(one)
    assert set(archive.unlike(2, [a])) == {b, c}
    assert archive.unlike(9, [a])[-1] is a2
    assert gap(a, []) == 1 and gap(a, [b, a2]) == gap(a, [a2]) < gap(a, [b])


def test_a_mean_and_how_far_it_can_be_trusted() -> None:
    once = made("p", timed(2.0, 1.6, 2.5))
    assert once.score == pytest.approx(2.0) and once.interval == pytest.approx((1.6, 2.5))
    twice = made("p", timed(2.0, 1.6, 2.5), timed(2.0, 1.6, 2.5))
    assert twice.score == pytest.approx(2.0)
    assert math.log(twice.interval[1] / 2) == pytest.approx(math.log(1.25) / math.sqrt(2))
    scattered = made("p", timed(1.0, 0.999, 1.001), timed(4.0, 3.99, 4.01))
    assert scattered.score == pytest.approx(2.0) and scattered.interval[1] > 4
    assert made("p", ok(2.0), wrong()).score == 0 and not made("p", ok(2.0), wrong()).right
    assert made("p", ok(None)).right and made("p", ok(None)).score == 0
