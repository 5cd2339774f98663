"""The queue by mean score, on verdicts with noise that we make up."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from dvk import nanolang
from dvk.backbone import Conversation
from dvk.composer import Plan, applicable
from dvk.records import Candidate, Trace, Verdict
from dvk.search import polca
from dvk.search.polca import uncertain
from dvk.search.repeats import original, repeat
from tests.agents.conftest import Said, affine, captured, fenced, ok
from tests.search.candidates import made, timed
from tests.search.writing import asked, fixed, play, problem, program, shown, writing


def test_only_what_could_lead_is_measured_again() -> None:
    sure, close, far = (
        made("a", timed(2.0, 1.9, 2.1)),
        made("b", timed(1.95, 1.8, 2.1)),
        made("c", timed(1.5, 1.4, 1.6)),
    )
    right = [sure, close, far]
    assert [uncertain(one, right) for one in right] == [True, True, False]
    assert not uncertain(sure, [sure, far]) and not uncertain(sure, [sure])
    often = made("a", *[timed(2.0, 1.9, 2.1)] * polca.MEASUREMENTS)
    assert not uncertain(often, [often, close]) and uncertain(close, [often, close])
    assert not uncertain(made("d", ok(None)), right)


def test_a_repeat_is_the_same_program_and_another_candidate() -> None:
    first = Candidate(source=program(2.0), backend="cpp", title="it")
    second, third = repeat(first, 2), repeat(repeat(first, 2), 3)
    assert len({first.id, second.id, third.id}) == 3 and second.title == "it (measurement 2)"
    assert (
        second.source == program(2.0) + "\n# measurement 2\n"
        and third.source == program(2.0) + "\n# measurement 3\n"
    )
    assert (
        original(first.source) == original(second.source) == original(third.source) == program(2.0)
    )


def noisy(candidate: Candidate) -> Verdict:
    """`number 0` was lucky the first time, the others give their true speed."""
    value = (
        1.4
        if "number = 0\n" in candidate.source and "# measurement" in candidate.source
        else float(re.search(r"speed = ([\d.]+)", candidate.source)[1])
    )  # type: ignore[index]  # each says its speed
    return timed(value, value * 0.9, value * 1.1)


def test_luck_is_measured_away_and_the_higher_mean_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()

    def answer(text: str) -> str:
        number = next(numbers)
        return (
            program((2.0, 1.9)[number], number, number=number)
            if number < 2
            else program(0.5, number % 8, number=number)
        )

    model = writing(answer)
    fixed(monkeypatch, polca, POPPED=1, MEASUREMENTS=3)
    batches = list(play("polca", problem(model), noisy, batches=6))
    assert "# measurement 2" in batches[1][0].source and "number = 0\n" in batches[1][0].source
    assert "# measurement 2" in batches[2][0].source and "number = 1\n" in batches[2][0].source
    repeats = [c.source for batch in batches for c in batch if "# measurement" in c.source]
    assert (
        len(repeats) == len(set(repeats)) == 3
    )  # number 1 is measured three times, and that is the most
    improved = [
        shown(asked(c))
        for conversations, _ in model.calls
        for c in conversations
        if "Make version" in asked(c)
    ]
    assert improved[:4] == [
        [2.0],
        [1.9],
        [1.9],
        [1.9],
    ]  # after the second measurement its mean is √(2 · 1.4) = 1.67


def test_near_duplicates_of_what_is_right_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Trace] = []
    numbers = itertools.count()

    def answer(text: str) -> str:
        number = next(numbers)
        return program(2.0, 0) + "# another remark\n" * number if number != 3 else program(2.0, 3)

    fixed(monkeypatch, polca, POPPED=2)
    batches = list(play("polca", problem(writing(answer), kept=kept), batches=6))
    fresh = [c.source for batch in batches for c in batch if "# measurement" not in c.source]
    assert fresh == [program(2.0, 0), program(2.0, 3)]
    assert sum(trace.role == "policy" and trace.turns[0].verdict is None for trace in kept) > 2

    def wrong_first(text: str) -> str:
        return program(2.0) if "is not right" in text else program(fault="off")

    fixed(monkeypatch, polca, NOVELTY=0.5)
    (_, second, *_) = play("polca", problem(writing(wrong_first)), batches=3)
    assert [c.source for c in second] == [program(2.0)]  # as near to the wrong one as may be


def test_the_summary_runs_along(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()

    def answer(conversation: Conversation) -> str:
        text = asked(conversation)
        if "notebook" in text:
            before = text.partition("The notebook so far:\n\n")[2].partition("\n")[0]
            seen = re.findall(r"number = (\d+)", text)
            return ("" if before == "(empty)" else before + "; ") + f"saw {' and '.join(seen)}"
        number = next(numbers)
        return fenced(program(1 + number / 10, number % 8, number=number))

    model = Said(answer)
    fixed(monkeypatch, polca, POPPED=2)
    list(play("polca", problem(model), batches=3))
    told = [
        asked(c)
        for conversations, _ in model.calls
        for c in conversations
        if "Make version" in asked(c)
    ]
    assert (
        "learnt about this task so far:\n\nsaw 0 and 1\n" in told[0]
        and "\n\nsaw 0 and 1; saw 2 and 3\n" in told[2]
    )


def test_same_verdicts_same_search() -> None:
    def run() -> list[list[str]]:
        numbers = itertools.count()
        model = writing(
            lambda text: program(1 + (number := next(numbers)) % 3 / 50, number % 8, number=number)
        )
        return [[c.id for c in batch] for batch in play("polca", problem(model), noisy, batches=8)]

    first = run()
    assert first == run() and len(first) == 8


def test_a_model_without_words_is_given_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compact dialect: versions are turns of a conversation, the summary agent's notes are the memory."""
    whole = nanolang.write(
        captured(), Plan(tuple(applicable(captured().graph, "cpu", "cpp"))), "cpp"
    )
    faster = whole.replace("2.0f", "3.0f")
    texts = iter([whole, faster, *(whole.replace("1.0f", f"{n}.0f") for n in range(4, 40))])

    def answer(conversation: Conversation) -> str:
        last = asked(conversation)
        return (
            "skill one_sweep\nwhen rows are short\ndo one sweep"
            if "\nlearn " in last
            else next(texts)
        )

    model = Said(answer, dialect="compact")
    fixed(monkeypatch, polca, POPPED=1)
    given = replace(problem(model), task=affine(), captured=captured())
    speeds = itertools.count(10)
    batches = list(play("polca", given, lambda _: ok(next(speeds) / 10), batches=3))
    assert len(batches) == 3
    revisions = [
        c for conversations, _ in model.calls for c in conversations if len(c.messages) == 3
    ]
    opening, attempt, feedback = (m["content"] for m in revisions[0].messages)
    assert "skill one_sweep\nwhen rows are short\ndo one sweep\nwrite" in opening
    assert (attempt, feedback) == (faster.strip(), "ok 1.10\nagain")
