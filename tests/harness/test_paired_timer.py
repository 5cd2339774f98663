"""Rounds of timed calls: who is called when, what is kept of it, when it ends. Runners here answer from a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import pytest
import torch

from dvk.config import JudgeConfig
from dvk.harness.checking.cases import Cases
from dvk.harness.timing.paired_timer import MIN_ROUNDS, WARM_ROUNDS, InputChanged, PairedTimer
from dvk.harness.transport.call_page import TimedCall
from tests.harness.problems import cases_of, model, task_of

SOURCE = model("return 2 * x", "[torch.randn(8)]")


class Runner:
    """A runner that computes 2x here; its calls take a given time."""

    def __init__(
        self,
        timer: PairedTimer,
        name: str,
        times_ms: Iterator[float],
        calls: list[str],
        spoils: bool = False,
    ):
        self.timer, self.name, self.times_ms, self.calls, self.spoils = (
            timer,
            name,
            times_ms,
            calls,
            spoils,
        )
        self.trusted, self.returned, self.told, self.footprint = False, [], None, []
        self.left: list[torch.Tensor] = []
        self.entered = 0

    def enter(self, *_: Any, **__: Any) -> None:
        self.entered += 1

    def leave(self) -> None:
        self.entered -= 1

    def overwritten(self) -> list[int]:
        return []

    def time_call(
        self, seed: int, take: bool, lay: Callable[[], None], **_: Any
    ) -> tuple[TimedCall, list[torch.Tensor]]:
        self.calls.append(self.name)
        lay()
        (x,) = self.timer.board.tensors
        result = 2 * x
        if self.spoils:
            x.zero_()
        return TimedCall(next(self.times_ms), 0.25), [result] if take else []


@pytest.fixture(scope="module")
def cases() -> Cases:
    return cases_of(SOURCE)


@pytest.fixture
def timer(cases: Cases) -> Iterator[PairedTimer]:
    made = PairedTimer(task_of(SOURCE), cases, JudgeConfig())
    yield made
    made.close()


def runners(
    timer: PairedTimer, **times_ms: Sequence[float] | float
) -> tuple[dict[str, Any], list[str]]:
    calls: list[str] = []
    made = {
        name: Runner(timer, name, repeat(ms) if isinstance(ms, float) else iter(ms), calls)
        for name, ms in times_ms.items()
    }
    return made, calls


def test_warm_rounds_are_not_counted(timer: PairedTimer) -> None:
    made, _ = runners(
        timer, reference=[100.0] * WARM_ROUNDS + [float(n) for n in range(10)], candidate=0.5
    )
    samples = timer.measure(made, rounds=10, limit_s=60, on_output=None)
    assert samples.ms["reference"] == [1e-6, *(float(n) for n in range(1, 10))], (
        "and no time is 0, for ratios are taken"
    )
    assert samples.ms["candidate"] == [0.5] * 10 and samples.gaps_ms["candidate"] == [0.25] * 10


def test_each_round_calls_each_arm_and_the_next_one_in_the_opposite_order(
    timer: PairedTimer,
) -> None:
    made, calls = runners(timer, reference=1.0, compile=1.0, candidate=1.0)
    timer.measure(made, rounds=10, limit_s=60, on_output=None)
    rounds = [calls[first : first + 3] for first in range(0, len(calls), 3)]
    assert len(rounds) == WARM_ROUNDS + 10 and all(set(one) == set(made) for one in rounds)
    assert all(rounds[n + 1] == rounds[n][::-1] for n in range(0, len(rounds), 2))


def test_the_time_ends_it_once_there_are_enough_rounds(timer: PairedTimer) -> None:
    made, _ = runners(timer, reference=1.0, candidate=1.0)
    assert (
        len(timer.measure(made, rounds=100, limit_s=0.0, on_output=None).ms["reference"])
        == MIN_ROUNDS
    )


def test_a_settled_ratio_ends_it_and_a_scattered_one_does_not(timer: PairedTimer) -> None:
    made, _ = runners(timer, reference=3.0, candidate=1.5)
    assert (
        len(timer.measure(made, rounds=40, limit_s=60, on_output=None, early=True).ms["reference"])
        == MIN_ROUNDS
    )
    made, _ = runners(timer, reference=3.0, candidate=[1.0, 2.0, 4.0] * 20)
    assert (
        len(timer.measure(made, rounds=40, limit_s=60, on_output=None, early=True).ms["reference"])
        == 40
    )


def test_every_output_of_the_candidate_is_handed_on_with_its_inputs(timer: PairedTimer) -> None:
    made, _ = runners(timer, reference=1.0, candidate=1.0)
    seen: list[torch.Tensor] = []

    def look(case: Any, outputs: list[torch.Tensor], *_: Any) -> None:
        assert torch.equal(outputs[0], 2 * case.inputs[0])
        seen.append(case.inputs[0].clone())

    timer._bounded = lambda *_: None  # type: ignore[method-assign]  # memory is another test's
    timer.measure(made, rounds=8, limit_s=60, on_output=look)
    assert len(seen) == WARM_ROUNDS + 8 and not any(
        torch.equal(a, b) for a, b in zip(seen, seen[1:])
    ), "fresh values each time"


def test_who_changes_an_input_in_a_timed_call_is_refused_and_all_are_let_go(
    timer: PairedTimer,
) -> None:
    made, _ = runners(timer, reference=1.0, candidate=1.0)
    made["candidate"].spoils = True
    with pytest.raises(InputChanged, match="input tensor 0"):
        timer.measure(made, rounds=8, limit_s=60, on_output=lambda *_: None)
    assert [one.entered for one in made.values()] == [0, 0]


def test_the_reference_alone_is_its_median_and_says_how_many_rounds_time_allows(
    timer: PairedTimer,
) -> None:
    made, _ = runners(timer, reference=[50.0, 50.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 4.0])
    assert timer.alone(made["reference"]) == 4.0
    timer._alone_ms, timer._overhead_ms = 4.0, 21.0
    assert timer.rounds_within(1.0, 2, 100) == WARM_ROUNDS + 20, "20 rounds of 2 calls of 25 ms"
    assert timer.rounds_within(1.0, 2, 12) == WARM_ROUNDS + 12, "more are not asked for"
    assert timer.rounds_within(0.01, 2, 100) == WARM_ROUNDS + MIN_ROUNDS, "less say nothing"
