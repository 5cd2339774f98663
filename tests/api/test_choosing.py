"""Which modules of a model are searched: equal ones once, the larger one where it saves more, none inside another."""

from __future__ import annotations

from dvk.api.network.choosing import chosen, groups
from dvk.api.network.profiling import ModelProfile, SubmoduleTime


def part(
    path: str, kind: str, ms: float, parent: str | None = None, weighted: int = 1
) -> SubmoduleTime:
    return SubmoduleTime(
        path=path,
        kind=f"lib.{kind}",
        parent=parent,
        calls=1,
        inputs="x=float32[8]",
        structure=kind,
        own_ms=ms,
        ms=ms,
        weighted=weighted,
    )


PARTS = [part("stack", "Stack", 90.0, weighted=8)]
for number in range(2):
    place = f"stack.layers.{number}"
    PARTS += [
        part(place, "Layer", 45.0, "stack", 4),
        part(f"{place}.norm", "Norm", 10.0, place),
        part(f"{place}.mlp", "Mlp", 30.0, place, 2),
    ]
PARTS.append(part("norm", "Norm", 5.0))
PROFILE = ModelProfile(100.0, tuple(PARTS))


def taken(gains: dict[str, float]) -> dict[str, tuple[str, ...]]:
    return {one.name: paths for one, paths in chosen(PROFILE, groups(PROFILE), gains)}


def test_a_stack_of_equal_blocks_is_none_itself() -> None:
    found = {one.name: len(one.paths) for one in groups(PROFILE)}
    assert found == {"Layer": 2, "Mlp": 2, "Norm": 3}


def test_the_larger_one_is_taken_where_it_saves_more() -> None:
    assert taken({"Layer": 1.5, "Mlp": 1.2, "Norm": 2.0}) == {
        "Layer": ("stack.layers.0", "stack.layers.1"),
        "Norm": ("norm",),
    }


def test_its_parts_are_taken_where_they_save_more() -> None:
    found = taken({"Layer": 1.1, "Mlp": 1.2, "Norm": 2.0})
    assert set(found) == {"Norm", "Mlp"} and len(found["Norm"]) == 3


def test_what_gains_nothing_is_left() -> None:
    assert taken({"Layer": 0.8, "Mlp": 1.0}) == {}


def test_a_layer_with_adapted_parts_is_no_stack_of_them() -> None:
    parts = [part("layer", "Layer", 90.0, weighted=8)]
    parts += [part(f"layer.{name}", "Linear", 20.0, "layer", 3) for name in ("query", "value")]
    assert [one.name for one in groups(ModelProfile(100.0, tuple(parts)))] == ["Layer", "Linear"]
