"""Evolution on a model that follows its prompt literally, and a judge that believes it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from dvk.records import Skill, Trace
from dvk.search import evolve as evolving
from dvk.search.archive import Archive
from dvk.search.evolve import insights
from tests.agents.conftest import Said, fenced, make_skill, ok, wrong
from tests.search.candidates import made
from tests.search.writing import asked, fixed, play, problem, program, shown, writing


def climber() -> Said:
    """Its openings are of unequal kinds and speeds; every child is a tenth faster than the last program shown, and of its kind's own."""
    numbers = itertools.count()

    def answer(text: str) -> str:
        number = next(numbers)
        speeds = shown(text)
        return program(
            round(max(speeds) + 0.1 + number / 1000, 3) if speeds else 1 + number / 4,
            number % 8,
            number=number,
        )

    return writing(answer)


def test_parents_are_the_best_and_those_unlike_them(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = itertools.count()

    def answer(text: str) -> str:
        number = next(kinds)
        if "Versions that exist" in text:
            return program(
                0.5, number % 8, number=number
            )  # nothing improves: the archive stays as the openings made it
        return program((2.0, 1.9, 1.1, 1.0)[number], (0, 0, 0, 5)[number], number=number)

    model = writing(answer)
    fixed(monkeypatch, evolving, TOP=2, DIVERSE=1, CROSSOVER=0.0)
    list(itertools.islice(play("evolve", problem(model, openings=4, offspring=4)), 2))
    parents = [
        shown(asked(conversation))[-1:]
        for conversations, _ in model.calls[1:2]
        for conversation in conversations
    ]
    assert parents == [[2.0], [1.9], [1.0], [2.0]]  # 1.1 is faster than 1.0, and like the best


def test_a_small_population_keeps_the_unlike_one(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()

    def answer(text: str) -> str:
        number = next(numbers)
        return (
            program((2.0, 1.9, 1.0)[number], (0, 0, 5)[number])
            if number < 3
            else program(0.5, number % 8, number=number)
        )

    model = writing(answer)
    fixed(monkeypatch, evolving, TOP=1, DIVERSE=1, CROSSOVER=0.0)
    list(itertools.islice(play("evolve", problem(model, openings=3)), 2))
    assert {shown(asked(c))[-1] for conversations, _ in model.calls[1:] for c in conversations} == {
        2.0,
        1.0,
    }


def test_full_information_shows_good_programs_first_and_the_parent_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = climber()
    fixed(monkeypatch, evolving, CROSSOVER=0.0)
    list(play("evolve", problem(model, openings=4), batches=4))
    for conversations, _ in model.calls[1:]:
        for text in map(asked, conversations):
            *beside, parent = shown(text)
            assert beside == sorted(beside) and len(beside) in (1, 2) and parent not in beside
            assert f"Make version {len(beside) + 1} faster. What the others show may help." in text


def test_crossover_has_two_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    model = climber()
    fixed(monkeypatch, evolving, CROSSOVER=1.0)
    list(play("evolve", problem(model), batches=3))
    texts = [
        asked(conversation)
        for conversations, _ in model.calls[1:]
        for conversation in conversations
    ]
    assert texts and all(
        len(shown(text)) == 2 and "faster than all of these" in text for text in texts
    )


def test_an_insight_is_an_idea_with_what_came_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()

    def answer(conversation: object) -> str:
        number = next(numbers)
        text = asked(conversation)  # type: ignore[arg-type]  # a conversation
        if "Versions that exist" not in text:
            return fenced(program(1.0, number))
        if number == 2:
            return f"Idea: **halve the traffic**\n{fenced(program(2.0, 3))}"
        return (
            f"Idea: skip the bias\n{fenced(program(fault='output is off', kind=4, number=number))}"
        )

    model = Said(answer)
    fixed(monkeypatch, evolving, CROSSOVER=0.0)
    made = list(play("evolve", problem(model), batches=3))
    assert made[1][0].title == "generation 1, child 1: halve the traffic"
    lines = "- halve the traffic: from 1.000× to 2.00×\n- skip the bias: wrong output is off"
    assert lines in asked(model.calls[-1][0][0])


def test_insights_that_changed_most_come_first() -> None:
    archive = Archive()
    parent = made("parent", ok(1.0))
    seen = [
        ("a little", ok(1.1)),
        ("a lot worse", ok(0.25)),
        ("twice", ok(2.0)),
        ("breaks", wrong()),
        ("breaks too", wrong()),
    ]
    for idea, verdict in seen:
        child = made(idea, verdict)
        child.idea, child.parents = idea, (parent,)
        archive.add(child)
    ideas = [line.partition(":")[0] for line in insights(archive, 9)]
    assert ideas == ["a lot worse", "twice", "a little", "breaks too", "breaks"]
    assert insights(archive, 2) == [
        "a lot worse: from 1.000× to 0.25×",
        "twice: from 1.000× to 2.00×",
    ]


def test_what_is_wrong_is_repaired_first() -> None:
    model = writing(
        lambda text: (
            program(1.5)
            if "off by one" in text
            else program(fault="off by one", number=len(model.calls))
        )
    )
    batches = list(play("evolve", problem(model), batches=2))
    assert "Version 1 is not right: find the cause and repair it." in asked(model.calls[1][0][0])
    assert "speed = 1.5" in batches[1][0].source


def test_half_of_the_openings_are_given_skills_and_conversations_are_kept() -> None:
    skills: tuple[Skill, ...] = (make_skill("a"), make_skill("b"))
    numbers = itertools.count()

    def answer(conversation: object) -> str:
        if conversation.tools:  # type: ignore[attr-defined]  # a conversation
            return '{"name": "select_skills", "arguments": {"selected_skills": [{"name": "b", "reason": ""}]}}'
        number = next(numbers)
        return "no code" if number == 3 else fenced(program(1 + number, number))

    kept: list[Trace] = []
    given = problem(Said(answer), skills, kept, openings=2)
    config = given.config.model_copy(
        update={"rollout": given.config.rollout.model_copy(update={"schemes": 1})}
    )
    batches = list(play("evolve", replace(given, config=config), batches=2))
    assert [candidate.skills for candidate in batches[0]] == [("b",), ()]
    assert kept[0].role == "selection" and kept[0].turns[0].chosen == ("b",)
    policies = [trace.turns[0] for trace in kept[1:]]
    assert [turn.verdict is not None and turn.candidate in batches[0] for turn in policies[:2]] == [
        True,
        True,
    ]
    assert [turn.malformed for turn in policies[2:4]] == ["no fenced block of code", None]
    assert all(turn.messages and turn.completion for turn in policies)


def test_speed_only_climbs_where_children_are_faster() -> None:
    batches = list(play("evolve", problem(climber()), batches=12))
    speeds = [
        max(float(c.source.split("speed = ")[1].split("\n")[0]) for c in batch) for batch in batches
    ]
    assert speeds[-1] > 2 and speeds == sorted(speeds)
    again = list(play("evolve", problem(climber()), batches=12))
    assert [[c.id for c in batch] for batch in batches] == [
        [c.id for c in batch] for batch in again
    ]
