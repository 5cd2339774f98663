"""Relations that skills' joint plays teach: what goes together, what disturbs, what refines what."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from dvk.config import LibraryConfig
from dvk.skills import Library
from dvk.skills.events import Event
from dvk.skills.grooming import groom
from dvk.skills.relations import joints, learned, related
from tests.skills.plays_given import Make, play


def joint_plays(
    effects: dict[str, float], sets: Sequence[Sequence[str]], excess: float, times: int = 12
) -> list[Event]:
    """Plays of `sets` whose gains are the sum of `effects`, plus `excess` if a and b are both given; errors of ±0.01."""
    events = [Event("added", name) for name in effects]
    for step, names in product(range(times), sets):
        gain = sum(effects[name] for name in names) + (excess if {"a", "b"} <= set(names) else 0.0)
        events += play(
            names,
            gain + (0.01 if step % 2 else -0.01),
            1000 * len(names) + 10 * step + sum(map(ord, names)),
        )
    return events


def test_the_excess_over_the_sum_of_both() -> None:
    (pair,) = joints(joint_plays({"a": 0.1, "b": 0.2}, [["a"], ["b"], ["a", "b"]], 0.3))
    assert (pair.one, pair.other, pair.plays) == ("a", "b", 12) and pair.excess == pytest.approx(
        0.3
    )
    # Three means of 12 with errors ±0.01: s² = 36·10⁻⁴/33, error √(3 s²/12) = 0.0052223, t(0.995; 33) = 2.733277.
    assert pair.hi - pair.excess == pytest.approx(2.733277 * 0.0052223, abs=1e-5)
    assert pair.kind(0.05) == "combines"


@pytest.mark.parametrize(
    ("excess", "said"),
    [
        (0.3, {"a": {"combines": ["b"]}, "b": {"combines": ["a"]}}),
        (0.02, {}),
        (0.0, {}),
        (-0.2, {"a": {"conflicts": ["b"]}, "b": {"conflicts": ["a"]}}),
    ],
)
def test_a_third_skill_is_not_taken_for_the_twos_doing(
    make: Make, excess: float, said: object
) -> None:
    effects = {"a": 0.1, "b": 0.2, "c": 0.4}
    events = joint_plays(effects, [["c"], ["a", "c"], ["b", "c"], ["a", "b", "c"]], excess)
    assert learned([make(name) for name in effects], events) == said


def test_without_evidence_nothing_is_reported(make: Make) -> None:
    skills = [make("a"), make("b")]
    together = joint_plays({"a": 0.1, "b": 0.2}, [["a", "b"]], 0.5)
    assert learned(skills, together) == {}, "never given without each other"
    rarely = joint_plays({"a": 0.1, "b": 0.2}, [["a"], ["b"], ["a", "b"]], 0.5, times=9)
    assert learned(skills, rarely) == {}
    assert learned(skills, []) == {}


def test_a_skill_refines_what_it_was_written_with_if_it_resembles_it(make: Make) -> None:
    old, far = (
        make("old", "keep a running maximum and rescale"),
        make("far", " ".join(f"word{n}" for n in range(40))),
    )
    new = make(
        "new",
        "keep a running maximum and rescale twice",
        provenance={"source": "run", "given": ["old", "far", "gone"]},
    )
    assert learned([old, far, new], []) == {"new": {"refines": ["old"]}}


def test_learned_relations_are_noted_as_such_and_yield_to_later_ones_only(make: Make) -> None:
    skill = make("s", relations={"combines": ["x"]})
    once = related(skill, {"combines": ["x", "y"], "conflicts": ["x"], "refines": ["s"]})
    assert once.relations == {"combines": ("x", "y")} and once.provenance["learned"] == {
        "combines": ["y"]
    }, "its author's word stays"
    twice = related(once, {"conflicts": ["y"]})
    assert twice.relations == {"combines": ("x",), "conflicts": ("y",)} and twice.provenance[
        "learned"
    ] == {"conflicts": ["y"]}
    assert related(twice, {"conflicts": ["y"]}) is twice


def test_learned_relations_do_not_make_a_seed_an_edited_one(library: Library, make: Make) -> None:
    from dvk.skills.rows import digest

    skill = make("s", relations={"combines": ["x"]})
    assert digest(related(skill, {"conflicts": ["y"], "combines": ["z"]})) == digest(skill)
    assert digest(skill.model_copy(update={"relations": {"combines": ("x", "z")}})) != digest(skill)


def test_grooming_writes_down_what_it_learned(library: Library, make: Make) -> None:
    library.add_all([make("a", "one thing"), make("b", "quite another matter")])
    library.record_all(
        [
            e
            for e in joint_plays({"a": 0.1, "b": 0.2}, [["a"], ["b"], ["a", "b"]], 0.3)
            if e.kind == "given"
        ]
    )
    changes = groom(library, LibraryConfig(merge_similarity=0.95))
    assert [(change.skill, change.why) for change in changes] == [
        ("a", "learned: combines b"),
        ("b", "learned: combines a"),
    ]
    assert (
        library.get("a").relations == {"combines": ("b",)}
        and groom(library, LibraryConfig(merge_similarity=0.95)) == []
    )
