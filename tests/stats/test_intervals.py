"""Intervals hold the truth as often as they say; quantiles are the tables'; work moved out of the stamps is charged."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import pytest

from dvk.harness.timing.overhead import corrected_ms, tolerated_ms
from dvk.stats.intervals import (
    is_settled,
    median_interval,
    median_ratio,
    process_interval,
    ratio_interval,
)
from dvk.stats.student_t import student_quantile, student_tail


def pairs(draws: random.Random, ratio: float, count: int) -> tuple[list[float], list[float]]:
    """Times of two arms on a machine that slows both down alike now and then, with heavy tails."""

    def noise() -> float:
        return math.exp(draws.gauss(0, 0.03) * (3 if draws.random() < 0.1 else 1))

    drift = [1 + 0.5 * draws.random() for _ in range(count)]
    return [ratio * d * noise() for d in drift], [d * noise() for d in drift]


@pytest.mark.parametrize("count", [7, 14, 30, 200])
def test_interval_of_a_process_holds_the_ratio_as_often_as_it_says(count: int) -> None:
    draws = random.Random(count)
    found = [ratio_interval(*pairs(draws, 2.0, count)) for _ in range(600)]
    assert all(i.lo <= i.value <= i.hi for i in found)
    assert 0.92 <= sum(i.lo <= 2.0 <= i.hi for i in found) / len(found) <= 0.98
    lower = [ratio_interval(*pairs(draws, 2.0, count), level=0.8) for _ in range(600)]
    assert 0.75 <= sum(i.lo <= 2.0 <= i.hi for i in lower) / len(lower) <= 0.85


def test_identical_arms_are_not_distinguished() -> None:
    draws = random.Random(1)
    assert (
        sum(ratio_interval(*pairs(draws, 1.0, 30)).lo > 1 for _ in range(400)) <= 20
    )  # 2.5 % are allowed


def test_few_samples_span_all_they_saw() -> None:
    assert median_interval([3.0]) == (3.0, 3.0, 3.0)
    assert median_interval([1.0, 2.0]) == (1.5, 1.0, 2.0)
    assert median_interval([5.0, 1.0, 3.0, 2.0, 4.0]) == (3.0, 1.0, 5.0)
    middle, lo, hi = median_interval([float(i) for i in range(6)])
    assert 0 < lo < 1 and 4 < hi < 5 and middle == 2.5  # six say 97 %: a little less than all
    assert median_ratio([2.0, 6.0, 8.0], [1.0, 2.0, 2.0]) == pytest.approx(3.0)


def test_an_interval_costs_nothing() -> None:
    draws = random.Random(2)
    reference, candidate = pairs(draws, 1.5, 200)
    ratio_interval(reference, candidate)
    best = math.inf
    for _ in range(20):
        start = time.perf_counter()
        ratio_interval(reference, candidate)
        best = min(best, time.perf_counter() - start)
    assert best < 2e-3


def test_statistics_import_no_torch() -> None:
    modules = (
        "dvk.stats.intervals, dvk.harness.timing.claims, dvk.harness.timing.overhead, "
        "dvk.harness.timing.roofline, dvk.harness.session.verdict_cache"
    )
    code = f"import sys, {modules}; sys.exit(bool({{'torch', 'numpy'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("bad", [[0.0, 1.0], [1.0], [math.inf, 1.0], [math.nan, 1.0], [-1.0, -1.0]])
def test_intervals_of_nonsense_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError):
        ratio_interval(bad, [1.0, 1.0])
    with pytest.raises(ValueError):
        ratio_interval([1.0, 1.0], bad)
    with pytest.raises(ValueError):
        process_interval(bad)


def test_levels_are_levels() -> None:
    with pytest.raises(ValueError):
        ratio_interval([1.0] * 9, [1.0] * 9, 95)
    with pytest.raises(ValueError):
        ratio_interval([], [])
    with pytest.raises(ValueError):
        process_interval([1.0, 2.0], 1.0)


def test_settled_means_a_small_error() -> None:
    assert is_settled([2.0] * 14, [1.0] * 14, 0.001)
    assert not is_settled([2.0, 1.0] * 7, [1.0] * 14, 0.001)


@pytest.mark.parametrize(
    ("p", "degrees", "value"),  # from printed tables of Student's distribution
    [
        (0.975, 1, 12.7062),
        (0.975, 4, 2.776445),
        (0.995, 4, 4.604095),
        (0.9995, 4, 8.610302),
        (0.975, 9, 2.262157),
        (0.995, 9, 3.249836),
        (0.95, 30, 1.697261),
        (0.975, 1000, 1.962339),
        (0.5, 3, 0.0),
        (0.025, 4, -2.776445),
    ],
)
def test_quantiles_are_those_of_the_tables(p: float, degrees: int, value: float) -> None:
    assert student_quantile(p, degrees) == pytest.approx(
        value, abs=1e-5 if abs(value) < 10 else 1e-4
    )
    assert student_tail(student_quantile(p, degrees), degrees) == pytest.approx(1 - p, abs=1e-9)


@pytest.mark.parametrize("count", [5, 10])
@pytest.mark.parametrize("level", [0.95, 0.99])
def test_interval_over_processes_holds_the_truth_as_often_as_it_says(
    count: int, level: float
) -> None:
    """Also where processes differ by 1 %, where an interval over pooled samples held it in 3 of 10."""
    draws = random.Random(count)
    hits = 0
    for _ in range(2000):
        found = process_interval(
            [1.03 * math.exp(draws.gauss(0, 0.01)) for _ in range(count)], level
        )
        hits += found.lo <= 1.03 <= found.hi
    assert abs(hits / 2000 - level) < 4 * math.sqrt(level * (1 - level) / 2000)


def test_interval_over_processes_is_the_textbooks() -> None:
    logs = [
        0.01,
        0.02,
        0.03,
        0.04,
        0.05,
    ]  # mean 0.03, deviation 0.0158114, standard error 0.0070711, t 2.776445
    found = process_interval([math.exp(x) for x in logs])
    assert math.log(found.value) == pytest.approx(0.03)
    assert math.log(found.hi) == pytest.approx(0.03 + 0.0196324, abs=1e-6)
    assert math.log(found.lo) == pytest.approx(0.03 - 0.0196324, abs=1e-6)


# ---------------------------------------------------------------- charges


def socket_gap(draws: random.Random) -> float:
    """A handshake over a socket in ms: 24 µs, 65 after idle, and now and then the scheduler's half millisecond."""
    late = 0.5 if draws.random() < 0.01 else 0.0
    return 0.024 + draws.expovariate(1 / 0.004) + (0.04 if draws.random() < 0.2 else 0.0) + late


def spin_gap(draws: random.Random) -> float:
    return 0.0006 + draws.expovariate(1 / 0.0001) + (0.05 if draws.random() < 0.01 else 0.0)


def busy_gap(draws: random.Random) -> float:
    """A handshake of which the scheduler interrupts most, for milliseconds."""
    return spin_gap(draws) + (draws.expovariate(1 / 4) if draws.random() < 0.8 else 0.0)


def gpu_gap(draws: random.Random) -> float:
    """A handshake on a busy GPU machine: outputs are fetched inside it."""
    return 0.03 + draws.expovariate(1 / 0.08)


Gap = Callable[[random.Random], float]


def told_ms(
    inner: Sequence[float], gaps: Sequence[float], usual: Sequence[float], reference_ms: float
) -> float:
    """The median of a candidate's corrected times."""
    tolerated = tolerated_ms([reference_ms] * len(usual))
    return median_interval(corrected_ms(inner, gaps, usual, tolerated))[0]


@pytest.mark.parametrize("gap", [socket_gap, spin_gap])
@pytest.mark.parametrize("count", [14, 30])
def test_equal_arms_are_charged_alike(gap: Gap, count: int) -> None:
    draws = random.Random(count)
    for _ in range(300):
        ours, usual = ([gap(draws) for _ in range(count)] for _ in range(2))
        assert told_ms([5.0] * count, usual, usual, 5.0) == 5.0
        assert told_ms([5.0] * count, ours, usual, 5.0) < 5.05


@pytest.mark.parametrize("gap", [gpu_gap, busy_gap])
def test_a_noisy_machine_brings_no_speedup_nearer_to_one(gap: Gap) -> None:
    draws = random.Random(7)
    told = []
    for _ in range(200):
        ours, usual = ([gap(draws) for _ in range(250)] for _ in range(2))
        told.append(told_ms([0.02] * 250, ours, usual, 0.06))
        assert told_ms([0.06] * 250, usual, usual, 0.06) == 0.06
    assert sorted(told)[100] < 0.021


@pytest.mark.parametrize("gap", [socket_gap, spin_gap])
def test_hidden_work_is_charged(gap: Gap) -> None:
    draws = random.Random(3)
    for _ in range(200):
        ours, usual = ([gap(draws) for _ in range(40)] for _ in range(2))
        assert told_ms([0.001] * 40, [ms + 0.999 for ms in ours], usual, 1.0) > 0.97


def test_neither_few_calls_nor_noise_hide_work() -> None:
    draws = random.Random(4)
    usual = [spin_gap(draws) for _ in range(40)]
    for noise in (0.0, 40.0):
        gaps = [1.0 + (noise if number % 5 < 2 else 0.0) for number in range(40)]
        assert told_ms([0.0] * 40, gaps, usual, 1.0) > 0.97


def test_work_in_the_quick_handshakes_alone_is_charged() -> None:
    """Half of the handshakes are slow; a candidate that fills the others up to them gains nothing."""
    draws = random.Random(6)
    for _ in range(200):
        ours, usual = (
            [spin_gap(draws) + (3.0 if draws.random() < 0.45 else 0.0) for _ in range(40)]
            for _ in range(2)
        )
        hidden = [2.9 if ms < 1.0 else 0.0 for ms in ours]
        told = told_ms(
            [3.0 - one for one in hidden],
            [a + b for a, b in zip(ours, hidden, strict=True)],
            usual,
            3.0,
        )
        assert told > 2.5


def test_work_is_not_hidden_in_what_a_busy_machine_adds_to_handshakes() -> None:
    draws = random.Random(5)
    told = []
    for _ in range(200):
        ours, usual = ([busy_gap(draws) for _ in range(30)] for _ in range(2))
        told.append(told_ms([0.001] * 30, [ms + 19.999 for ms in ours], usual, 20.0))
    assert min(told) > 17.0


def test_a_candidate_is_never_paid() -> None:
    assert corrected_ms([2.0] * 30, [0.0] * 30, [1.0] * 30, 0.1) == [2.0] * 30
    with pytest.raises(ValueError):
        corrected_ms([math.nan] * 30, [1.0] * 30, [1.0] * 30, 0.1)
