"""One change at a time, on a reviewer and a writer that parse their prompts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dvk.backbone import Conversation, open_backbone
from dvk.harness import JudgeSession
from dvk.records import Candidate, Status, Trace, Verdict
from dvk.search import judge as judging
from dvk.search.judge import Branch
from dvk.search.repeats import repeat
from tests.agents.conftest import QUICK, Said, affine, fenced, ok, source, wrong
from tests.search.candidates import made
from tests.search.writing import asked, believed, fixed, play, problem, program, shown


def advice(change: object) -> str:
    arguments = {"think": "", "problem": "slow", "change": change}
    return json.dumps({"name": "advise", "arguments": arguments})


def team(reviewer: Callable[[str], str], writer: Callable[[str], str]) -> Said:
    def answer(conversation: Conversation) -> str:
        return (
            reviewer(asked(conversation))
            if conversation.tools
            else fenced(writer(asked(conversation)))
        )

    return Said(answer)


def reviewed(model: Said) -> list[Conversation]:
    return [c for conversations, _ in model.calls for c in conversations if c.tools]


def written(model: Said) -> list[str]:
    return [asked(c) for conversations, _ in model.calls for c in conversations if not c.tools]


def test_the_writer_is_asked_for_exactly_the_change_that_was_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def faster(text: str) -> str:
        if "exactly this change" not in text:
            return program(1.0)
        assert "and no other" in text and "\n\nUse speed " in text
        return program(float(text.partition("Use speed ")[2].partition("\n")[0]))

    model = team(
        lambda text: advice(
            f"Use speed {float(text.partition('speed = ')[2].partition(chr(10))[0]) + 1}"
        ),
        faster,
    )
    fixed(monkeypatch, judging, BRANCHES=1)
    batches = list(play("judge", problem(model), batches=4))
    assert [[c.source for c in batch] for batch in batches] == [
        [program(speed)] for speed in (1.0, 2.0, 3.0, 4.0)
    ]
    assert [shown(text) for text in written(model)[:4]] == [[], [1.0], [2.0], [3.0]]
    system = reviewed(model)[0].messages[0]["content"]
    assert "exactly one change" in system and "takes most of its time" in system


def test_an_error_comes_before_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    def review(text: str) -> str:
        return advice("declare y") if "does not compile" in text else advice("tile it")

    def write(text: str) -> str:
        if "tile it" in text:
            return program(fault="error: y was not declared", kind=1)
        return program(1.5, 2) if "declare y" in text else program(1.0)

    model = team(review, write)
    fixed(monkeypatch, judging, BRANCHES=1)
    batches = list(play("judge", problem(model), batches=3))
    assert ["fault" in batch[0].source for batch in batches] == [False, True, False]
    speed_up, repair, *_ = reviewed(model)
    assert "takes most of its time" in speed_up.messages[0]["content"]
    told = repair.messages[0]["content"] + asked(repair)
    assert "Say nothing about speed" in told and "error: y was not declared" in told
    assert "tile it" not in told and "faster" not in asked(repair)


def test_a_change_without_gain_is_undone_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(100))

    def write(text: str) -> str:
        return program(1.0, number=next(numbers)) if "exactly this change" in text else program(2.0)

    model = team(
        lambda text: advice("use float4" if "were tried" not in text else "split rows"), write
    )
    fixed(monkeypatch, judging, BRANCHES=1)
    list(play("judge", problem(model), batches=3))
    assert [shown(text) for text in written(model)[:3]] == [[], [2.0], [2.0]]
    first, second, *_ = map(asked, reviewed(model))
    assert "were tried" not in first and "- use float4 (no faster: 1.000× after 2.00×)\n" in second
    assert "\n\nsplit rows\n" in written(model)[2]


def test_several_changes_count_as_none_and_the_findings_are_shown_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[Trace] = []
    numbers = iter(range(100))
    for change in (["tile", "unroll"], "1. tile it\n2. unroll it", "", "- tile\n- unroll"):
        model = team(
            lambda text: advice(change),  # noqa: B023
            lambda text: program(1.0 + next(numbers), number=1),
        )
        fixed(monkeypatch, judging, BRANCHES=1)
        list(play("judge", problem(model, kept=kept), batches=2))
        assert "Make version 1 faster." in written(model)[1]
    reviews = [trace.turns[0].malformed for trace in kept if trace.role == "selection"]
    assert set(reviews) == {"it names 2 changes instead of one", "it names no change"}


def test_branches_run_side_by_side_and_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(1, 100))
    model = team(
        lambda text: advice("tile"),
        lambda text: program(float(number := next(numbers)), number=number),
    )
    fixed(monkeypatch, judging, BRANCHES=2, ROUNDS=2)
    batches = list(play("judge", problem(model), batches=4))
    assert [len(batch) for batch in batches] == [2] * 4
    assert [len(shown(text)) for text in written(model)[:8]] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_repairs_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed(monkeypatch, judging, REPAIRS=2)
    branch = Branch()
    branch.next_round(best := made("a", ok(2.0)))
    branch.change = "tile"
    branch.next_round(made("b", wrong()))
    assert branch.current is not None and not branch.current.right
    for text in ("c", "d"):
        branch.change = "repair"
        branch.next_round(made(text, wrong(error="still off")))
    assert branch.current is best and branch.tried == ["tile (wrong still off)"]
    branch.change = "split"
    branch.next_round(faster := made("e", ok(2.5)))
    assert branch.current is branch.best is faster and branch.tried == []


def test_a_script_answers_both_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped fake, its answers chosen by what each prompt says."""
    lines = [
        {"match": "exactly this change.*unroll by four", "answer": fenced(program(3.0, 2))},
        {
            "match": "Call `advise`.*Wrong result|Wrong result.*Call `advise`",
            "answer": advice("start at zero"),
        },
        {"match": "exactly this change.*start at zero", "answer": fenced(program(2.0, 1))},
        {"match": "Call `advise`", "answer": advice("unroll by four")},
        {"match": "The task:", "answer": fenced(program(fault="off by one"))},
    ]
    script = tmp_path / "script.jsonl"
    script.write_text("\n".join(map(json.dumps, lines)))
    fixed(monkeypatch, judging, BRANCHES=1)
    given = problem(open_backbone(f"scripted:{script}", QUICK))  # type: ignore[arg-type]  # the real one
    batches = list(play("judge", given, believed))
    assert [c.source for batch in batches for c in batch] == [
        program(fault="off by one"),
        program(2.0, 1),
        program(3.0, 2),
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_real_error_is_reviewed_and_a_repeat_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real judge: its finding reaches the reviewer, the repaired file is right, and its repeat is another measurement."""
    lines = [
        {
            "match": "worst at \\[6\\d, \\d+\\]: \\S+ instead of.*Call `advise`",
            "answer": advice("do the tail"),
        },
        {"match": "Call `advise`", "answer": advice("unroll it")},
        {"match": "exactly this change.*do the tail", "answer": fenced(source("good/cpp_affine"))},
        {"match": "The task:", "answer": fenced(source("bad/cpp_tail_left_out"))},
    ]
    script = tmp_path / "script.jsonl"
    script.write_text("\n".join(map(json.dumps, lines)))
    fixed(monkeypatch, judging, BRANCHES=1)
    given = replace(problem(open_backbone(f"scripted:{script}", QUICK)), task=affine())  # type: ignore[arg-type]
    verdicts: list[Verdict | None] = []

    def judge(candidate: Candidate) -> Verdict | None:
        verdicts.append(court.judge(candidate, "search"))
        return verdicts[-1]

    with JudgeSession(affine(), QUICK) as court:
        list(play("judge", given, judge, batches=2))
        again = court.judge(
            repeat(Candidate(source=source("good/cpp_affine"), backend="cpp"), 2), "search"
        )
    assert [v.status for v in verdicts[:2] if v is not None] == [Status.MISMATCH, Status.OK]
    assert again is not None and again.timing is not None and not again.cached
