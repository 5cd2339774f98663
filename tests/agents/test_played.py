"""Training conversations for the summariser from a task's executed attempts."""

from __future__ import annotations

import random

import pytest

from dvk.agents import dialects
from dvk.agents.task_context import TaskContext
from dvk.agents.teacher import played
from dvk.agents.teacher.advice import follow, format_note
from dvk.agents.teacher.lessons import elsewhere, skill
from dvk.agents.teacher.played import Taught, TeacherAttempt, teach
from dvk.config import AgentsConfig

from .conftest import affine, captured, make_skill, ok, turn

USUAL = "as usual"


def taught(kind: str, speeds: dict[str, float], seed: int = 0) -> list[Taught]:
    """Attempts by name with these speedups, the usual one first; the others follow notes of their names."""
    subject = TaskContext(affine(), captured(), "cpp")
    skills = {name: None if name == USUAL else make_skill(name) for name in speeds}
    tried = [
        (TeacherAttempt(name, name, skill=skills[name]), turn(ok(speed), name))
        for name, speed in speeds.items()
    ]
    return [
        one
        for one in teach(
            subject, tried, random.Random(seed), dialects.get("compact"), AgentsConfig()
        )
        if one.kind == kind
    ]


def summaries(speeds: dict[str, float], seed: int = 0) -> list[Taught]:
    """See `taught`."""
    return taught("summary", speeds, seed)


def learned(speeds: dict[str, float]) -> set[str]:
    """Notes that any of many summaries learns."""
    return {name for seed in range(20) for one in summaries(speeds, seed) for name in one.chosen}


def test_a_note_that_beats_the_usual_text_is_learned_from_there():
    found = [
        t
        for seed in range(9)
        for t in summaries({USUAL: 1.0, "lines": 1.5, "pieces": 0.9}, seed)
        if t.chosen
    ]
    assert found and {t.chosen for t in found} == {("lines",)}
    assert {t.rounds[0] for t in found} == {1.0} and {
        max(s or 0 for s in t.rounds) for t in found
    } == {1.5}


def test_one_as_fast_as_the_usual_text_is_learned_from_a_slower_one():
    found = [
        t
        for seed in range(9)
        for t in summaries({USUAL: 2.0, "lines": 2.0, "pieces": 1.0}, seed)
        if t.chosen
    ]
    assert {(t.chosen, t.rounds[0]) for t in found} == {(("lines",), 1.0)}


@pytest.mark.parametrize(
    ("speeds", "names"),
    [
        ({USUAL: 2.0, "lines": 1.8, "pieces": 1.0}, set()),  # bad advice, though it beats another
        ({USUAL: 2.0, "lines": 2.0, "pieces": 1.9}, set()),  # nothing became clearly faster
        (
            {USUAL: 1.0, **{name: 2.0 - 0.1 * place for place, name in enumerate("abcdefgh")}},
            set("abcdef"),
        ),  # the fastest six
    ],
)
@pytest.mark.slow
def test_what_is_learned(speeds: dict[str, float], names: set[str]):
    assert learned(speeds) == names


@pytest.mark.slow
def test_nothing_is_learned_where_the_conversation_was_given_it():
    found = [
        t
        for seed in range(40)
        for t in summaries({USUAL: 1.0, "lines": 1.5, "pieces": 1.2, "tiled": 0.9}, seed)
    ]
    fastest = {1.5: "lines", 1.2: "pieces"}
    for one in found:
        note = fastest[max(speed or 0.0 for speed in one.rounds)]
        assert one.chosen == (() if note in one.skills else (note,))
        assert (one.messages[-1]["content"] == "none") == (note in one.skills)
        assert all(f"skill {given}" in one.messages[0]["content"] for given in one.skills)
    shown = [len(t.skills) for t in found if t.chosen]
    assert 0 < sum(shown) < len(shown) and 0 < sum(not t.chosen for t in found) < 0.3 * len(found)


@pytest.mark.parametrize(
    ("speeds", "chosen"),
    [
        ({USUAL: 1.0, "lines": 1.5, "pieces": 1.2, "tiled": 0.9}, {("lines", "pieces")}),
        (
            {USUAL: 1.5, "lines": 1.5, "pieces": 1.48, "tiled": 0.9},
            {("lines",), ()},
        ),  # as fast: mostly chosen, or nothing ever is
        ({USUAL: 1.5, "lines": 1.2, "pieces": 0.9}, {()}),
    ],
)
@pytest.mark.slow
def test_what_is_selected(speeds: dict[str, float], chosen: set[tuple[str, ...]]):
    found = [one for seed in range(30) for one in taught("selection", speeds, seed)]
    assert {one.chosen for one in found} == chosen
    assert all((one.messages[-1]["content"] == "select none") == (not one.chosen) for one in found)
    if len(chosen) == 2:
        assert 0.1 < sum(not one.chosen for one in found) / len(found) < 0.5


@pytest.mark.slow
def test_notes_that_apply_but_were_not_executed_are_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a list teaches "not that one" about a note that may make the task faster."""
    subject = TaskContext(affine(), captured(), "cpp")
    graph, rng = subject.captured, random.Random(0)
    assert graph is not None
    drawn = [elsewhere(rng) for _ in range(300)]
    applies = [one for one in drawn if follow(graph, [one], "cpp") is not None]
    assert 0 < len(applies) < len(drawn)
    monkeypatch.setattr(played, "elsewhere", lambda rng: rng.choice(drawn))
    names = {
        skill(format_note(one, random.Random(seed))).name for one in applies for seed in range(3)
    }
    idle = {
        skill(format_note(one, random.Random(s))).name
        for one in drawn
        if one not in applies
        for s in range(3)
    }
    speeds = {USUAL: 1.0, "lines": 1.5}
    for seed in range(20):
        for one in taught("selection", speeds, seed):
            assert not {*one.skills} & (names - idle)
            assert len(one.skills) > 6, "lists stay long: notes on other tasks fill them"
