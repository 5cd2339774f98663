"""A claim is hardly ever false, finds 3 % where processes agree, and says why it does not hold."""

from __future__ import annotations

import math
import random

import pytest

from dvk.harness.timing.claims import ALPHAS, FIRST_LOOK, LONGER, claim, looked_at, undecided
from dvk.records import Claim

CALM = [1.0, 1.001, 0.999, 1.0005, 0.9995]


def measured(draws: random.Random, true: float, spread: float, within: float = 0.0) -> Claim:
    """Decide as the judge does: look after 5, 10 and 20 sets of processes while undecided.

    Args:
        spread: standard deviation between processes.
        within: of a process's median about its truth, until it makes more pairs.
    """
    speedups, controls = list[float](), list[float]()
    while True:
        noise = within / math.sqrt(LONGER) if len(speedups) >= FIRST_LOOK else within
        spike = 3.0 if draws.random() < 0.1 else 1.0  # a busy moment, of both ratios
        deviation = math.hypot(spread, noise) * (spike if within else 1.0)
        speedups.append(true * math.exp(draws.gauss(0, deviation)))
        controls.append(math.exp(draws.gauss(0, deviation)))
        if looked_at(len(speedups)):
            found = claim(speedups, controls)
            if not undecided(found):
                return found


def share(true: float, spread: float, count: int = 1000, within: float = 0.0) -> float:
    draws = random.Random(0)
    return sum(measured(draws, true, spread, within).holds for _ in range(count)) / count


@pytest.mark.parametrize(
    ("spread", "within"), [(0.0015, 0.0), (0.006, 0.0), (0.02, 0.0), (0.05, 0.3), (0.3, 0.1)]
)
def test_a_reference_against_itself_is_never_faster(spread: float, within: float) -> None:
    assert share(1.0, spread, within=within) <= 0.002


@pytest.mark.parametrize(("true", "power"), [(1.5, 0.5), (2.0, 0.98)])
def test_a_large_gain_is_proved_on_a_busy_machine(true: float, power: float) -> None:
    """The control is off by 20 % and more; five processes, or ten of the first ones' length, seldom show it."""
    assert share(true, 0.02, within=0.2) >= power


def test_the_looks_share_the_error() -> None:
    assert sum(ALPHAS.values()) == pytest.approx(0.05) and min(ALPHAS) == FIRST_LOOK
    noisy = [1.0, 1.4, 0.7, 1.3, 0.8] * 2
    assert undecided(claim([2.0, 1.5, 3.0, 1.2, 2.5] * 2, noisy))
    assert undecided(claim([2.0, 1.5, 3.0, 0.9, 2.5], noisy[:5])), "one of 20 may disagree"
    found = claim([3.0] * 19 + [0.99], CALM * 4)
    assert found.holds and not claim([3.0] * 18 + [0.99] * 2, CALM * 4).holds


@pytest.mark.parametrize("spread", [0.0015, 0.003])
@pytest.mark.slow
def test_a_gain_no_larger_than_the_margin_is_claimed_as_seldom_as_promised(spread: float) -> None:
    assert share(1.01, spread, 2000) <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 2000)


@pytest.mark.parametrize(("spread", "power"), [(0.0015, 0.999), (0.003, 0.995), (0.006, 0.97)])
def test_three_percent_are_found(spread: float, power: float) -> None:
    assert share(1.03, spread) >= power


def test_it_says_what_it_saw() -> None:
    found = claim([1.5, 1.51, 1.49, 1.5, 1.52], CALM)
    assert found.holds and not found.why and found.level == 0.99 and found.margin == 0.01
    assert found.speedup.lo < 1.504 < found.speedup.hi and found.processes[1] == 1.51
    assert found.control.lo <= 1 <= found.control.hi
    assert claim([1.5] * 10, CALM * 2).level == 0.97
    assert claim([1.5] * 7, CALM + CALM[:2]).level == 0.97, "a deadline brought it forward"


def test_an_unsteady_control_widens_the_margin() -> None:
    found = claim([1.05] * 5, [1.0, 1.01, 0.99, 1.005, 0.995])
    assert found.margin == pytest.approx(
        3 * math.expm1(2.776445 * 0.00790616 / math.sqrt(5)), rel=1e-3
    )
    assert found.holds and not claim([1.025] * 5, [1.0, 1.01, 0.99, 1.005, 0.995]).holds


def test_a_control_that_is_off_widens_the_margin() -> None:
    assert claim([2.0] * 5, [1.02] * 5).margin == pytest.approx(0.06)
    assert claim([2.0] * 5, [1.02] * 5).holds and not claim([1.05] * 5, [0.98] * 5).holds


def test_processes_that_disagree_end_it() -> None:
    found = claim([1.2, 1.2, 1.2, 1.2, 0.999], CALM)
    assert not found.holds and not undecided(found)
    few = claim([1.3] * 9 + [0.999], CALM * 2)
    assert few.speedup.lo > 1 + few.margin and not few.holds and "disagree" in few.why


def test_what_cannot_come_true_is_not_measured_on() -> None:
    assert not undecided(claim([1.001, 1.002, 1.0015, 1.001, 1.002], CALM))
    assert undecided(claim([1.02, 1.03, 1.012, 1.035, 1.02], CALM))
    early = claim([2.0, 2.0], [1.0, 1.0])
    assert not early.holds and "too few" in early.why and undecided(early)


@pytest.mark.parametrize(
    "speedups", [[1.0], [1.0, 2.0, 3.0], [0.0, 1.0], [math.nan, 1.0], [math.inf, 1.0], []]
)
def test_nonsense_is_refused(speedups: list[float]) -> None:
    with pytest.raises(ValueError):
        claim(speedups, [1.0, 1.0])
