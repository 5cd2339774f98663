"""What a task's executed attempts teach whoever summarises."""

from __future__ import annotations

import random

import pytest

from dvk.agents import dialects
from dvk.agents.showing import Subject
from dvk.agents.teacher.played import Attempt, Taught, teach
from dvk.config import Agents

from .conftest import affine, captured, make_skill, ok, turn

USUAL = "as usual"


def summaries(speeds: dict[str, float], seed: int = 0) -> list[Taught]:
    """Of attempts by name with these speedups, the usual one first; the others are what notes of their names lead to."""
    subject = Subject(affine(), captured(), "cpp")
    skills = {name: None if name == USUAL else make_skill(name) for name in speeds}
    played = [(Attempt(name, name, skill=skills[name]), turn(ok(speed), name)) for name, speed in speeds.items()]
    found = teach(subject, played, random.Random(seed), dialects.get("compact"), Agents())
    return [taught for taught in found if taught.kind == "summary"]


def learned(speeds: dict[str, float]) -> set[str]:
    """Notes that any of many summaries learns."""
    return {name for seed in range(20) for taught in summaries(speeds, seed) for name in taught.chosen}


def test_a_note_that_beats_the_usual_text_is_learned_from_there():
    (taught,) = [t for t in summaries({USUAL: 1.0, "lines": 1.5, "pieces": 0.9}) if t.chosen]
    assert taught.chosen == ("lines",) and taught.rounds[0] == 1.0 and max(s or 0 for s in taught.rounds) == 1.5


def test_one_as_fast_as_the_usual_text_is_learned_from_a_slower_one():
    (taught,) = [t for t in summaries({USUAL: 2.0, "lines": 2.0, "pieces": 1.0}) if t.chosen]
    assert taught.chosen == ("lines",) and taught.rounds[0] == 1.0


@pytest.mark.parametrize(("speeds", "taught"), [
    ({USUAL: 2.0, "lines": 1.8, "pieces": 1.0}, set()),  # bad advice, though it beats another
    ({USUAL: 2.0, "lines": 2.0, "pieces": 1.9}, set()),  # nothing became clearly faster
    ({USUAL: 1.0, "lines": 1.5, "pieces": 1.4, "tiled": 1.3, "flat": 1.2}, {"lines", "pieces", "tiled"}),  # the fastest three
])  # fmt: skip
def test_what_is_learned(speeds: dict[str, float], taught: set[str]):
    assert learned(speeds) == taught
