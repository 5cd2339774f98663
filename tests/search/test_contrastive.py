"""Contrast on a model that follows its prompt literally, and a judge that believes it."""

from __future__ import annotations

import itertools

import pytest

from dvk.errors import UsageError
from dvk.search import contrastive
from tests.agents.conftest import Said
from tests.search.writing import asked, fixed, headed, play, problem, program, shown, writing


def test_exemplars_are_of_different_buckets_in_order_with_scores_and_compared_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = itertools.count()

    def answer(text: str) -> str:
        number = next(numbers)
        return program(
            (1.0, 1.05, 1.31, 1.33, 2.0, 4.0)[number % 6] + number / 10_000,
            number % 8,
            number=number,
        )

    model = writing(answer)
    fixed(monkeypatch, contrastive, BUCKET=1.1)
    list(play("contrastive", problem(model, openings=6, offspring=3), batches=5))
    sets = []
    for conversation in itertools.chain.from_iterable(
        conversations for conversations, _ in model.calls[1:]
    ):
        text = asked(conversation)
        speeds = shown(text)
        assert len(speeds) == 2 and speeds[1] / speeds[0] > 1.01
        assert headed(text) == pytest.approx(speeds, rel=0.01)
        assert text.index("First compare these versions in words") > text.index("### Version 2")
        sets.append(tuple(speeds))
    assert len(sets) == len(set(sets)) == 15
    assert not any(slow < 1.1 and fast < 1.1 for slow, fast in sets)


def test_three_exemplars(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count(1)
    model = writing(lambda text: program(float(number := next(numbers)), number % 8, number=number))
    fixed(monkeypatch, contrastive, EXEMPLARS=3)
    list(play("contrastive", problem(model, openings=4), batches=3))
    compared = [
        shown(asked(conversation))
        for conversations, _ in model.calls[1:]
        for conversation in conversations
    ]
    assert compared and all(
        len(set(speeds)) == 3 and speeds == sorted(speeds) for speeds in compared
    )


def test_fast_ones_are_drawn_more_often() -> None:
    numbers = itertools.count()

    def answer(text: str) -> str:
        number = next(numbers)
        return program(
            (1.0, 1.2, 4.0, 5.0)[number % 4] + number / 100_000, number % 8, number=number
        )

    model = writing(answer)
    list(play("contrastive", problem(model, openings=8, offspring=4), batches=5))
    drawn = [
        speed
        for conversations, _ in model.calls[1:]
        for c in conversations
        for speed in shown(asked(c))
    ]
    assert sum(speed > 3 for speed in drawn) > 2 * sum(speed < 3 for speed in drawn)


def test_what_is_wrong_is_repaired_once_and_equals_are_not_compared() -> None:
    numbers = itertools.count()

    def answer(text: str) -> str:
        number = next(numbers)
        return (
            program(1.0, 0)
            if number == 0
            else program(fault="off by one", kind=number % 8, number=number)
        )

    model = writing(answer)
    list(play("contrastive", problem(model), batches=4))
    texts = [
        asked(conversation)
        for conversations, _ in model.calls[1:]
        for conversation in conversations
    ]
    repaired = [
        text.partition("number = ")[2].partition("\n")[0]
        for text in texts
        if "is not right" in text
    ]
    assert len(repaired) == len(set(repaired)) > 2
    assert not any("First compare" in text for text in texts)


def test_a_model_without_words_is_refused() -> None:
    for name in ("contrastive", "judge"):
        with pytest.raises(UsageError, match="compact dialect, has no words") as error:
            list(play(name, problem(Said(lambda _: "", dialect="compact"))))
        assert "refine, best_of_n, evolve or polca" in str(error.value.hint)
