"""fast_p, geometric means and intervals against numbers worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest

from dvk.stats.fast_p import (
    TaskOutcome,
    best,
    difference,
    gap_interval,
    interval,
    log_speedup,
    share_interval,
    summary,
)

OUTCOMES = [
    TaskOutcome("a", True, 1.25, 1.19, {"level": "single"}),
    TaskOutcome("b", True, 0.8, 0.7, {"level": "single"}),
    TaskOutcome("c", False, groups={"level": "fusion"}),
    TaskOutcome("d", True, 2.0, 1.9, {"level": "fusion"}),
    TaskOutcome("e", True, groups={"level": "fusion"}),
]


def test_fast_p_counts_failures_as_not_fast() -> None:
    found = summary(OUTCOMES)
    assert found["num_tasks"] == 5
    assert found["fast_p"] == {
        "0": 0.8,
        "0.8": 0.4,
        "1": 0.4,
        "1.2": 0.4,
        "1.5": 0.2,
        "2": 0.0,
        "3": 0.0,
    }
    assert found["fast_p_lo"] == {
        "0": 0.8,
        "0.8": 0.4,
        "1": 0.4,
        "1.2": 0.2,
        "1.5": 0.2,
        "2": 0.0,
        "3": 0.0,
    }
    assert found["geomean"] == pytest.approx((1.25 * 0.8 * 2.0) ** (1 / 3))
    assert found["geomean_kept"] == pytest.approx((1.25 * 2.0) ** (1 / 5))


def test_tries_of_a_task_are_averaged_first() -> None:
    tries = [
        TaskOutcome("a", True, 2.0),
        TaskOutcome("a", False),
        TaskOutcome("a", False),
        TaskOutcome("a", False),
        TaskOutcome("b", True, 2.0),
    ]
    found = summary(tries)
    assert found["fast_p"]["1"] == pytest.approx((0.25 + 1.0) / 2) and found["num_tries"] == 5
    assert [o.correct for o in best(tries)] == [True, True]
    assert (
        best([TaskOutcome("a", True, 0.5), TaskOutcome("a", True, 1.5), TaskOutcome("a", False)])[
            0
        ].speedup
        == 1.5
    )


def test_the_interval_covers_as_often_as_it_says() -> None:
    import random

    rng = random.Random(5)
    covered = 0
    for trial in range(60):
        ends = interval([float(rng.random() < 0.6) for _ in range(80)], seed=trial)
        covered += ends is not None and ends[0] <= 0.6 <= ends[1]
    assert 53 <= covered <= 60
    assert interval([1.0, 1.0]) == (1.0, 1.0)


def test_the_interval_of_a_share_covers_near_its_ends_too() -> None:
    """Summed over every number of fast tasks there can be, not drawn."""
    for number in (5, 8, 20, 60):
        ends = [
            share_interval([1.0] * fast + [0.0] * (number - fast)) for fast in range(number + 1)
        ]
        assert all(found is not None and 0 <= found[0] < found[1] <= 1 for found in ends)
        for share in (0.5, 0.8, 0.9, 0.95, 0.98):
            covered = sum(
                math.comb(number, fast) * share**fast * (1 - share) ** (number - fast)
                for fast, found in enumerate(ends)
                if found is not None and found[0] <= share <= found[1]
            )
            assert covered > 0.929, (number, share)
    assert share_interval([1.0] * 5) == (pytest.approx(1 / (1 + 1.959964**2 / 5)), 1.0), (
        "Wilson's, where all are fast"
    )
    partly = share_interval([1.0, 1.0, 1.0, 0.75])
    assert partly is not None and partly[0] < 0.6 and partly[1] == 1.0


def test_a_share_that_did_not_change_may_still_differ_elsewhere() -> None:
    same = [TaskOutcome(str(i), True, 1.5) for i in range(8)]
    gap = difference(same, same, lambda o: float(o.correct), share=True)
    end = 1.959964**2 / (8 + 1.959964**2)
    assert (gap["value"], gap["lo"], gap["hi"]) == (0.0, pytest.approx(-end), pytest.approx(end))
    covered = 0.0
    for lost, won in itertools.product(range(9), repeat=2):
        if lost + won <= 8:
            ends = gap_interval([-1.0] * lost + [1.0] * won + [0.0] * (8 - lost - won))
            chance = (
                math.comb(8, lost)
                * math.comb(8 - lost, won)
                * 0.05**lost
                * 0.1**won
                * 0.85 ** (8 - lost - won)
            )
            assert ends is not None and -1 <= ends[0] < ends[1] <= 1
            covered += chance * (ends[0] <= 0.05 <= ends[1])
    assert covered > 0.95, (
        "a twentieth is lost, a tenth won: the bootstrap alone covers 57 times in 100"
    )


def test_one_task_says_nothing_of_others() -> None:
    assert interval([]) is None and interval([1.0]) is None
    found = summary([TaskOutcome("a", True, 2.0), TaskOutcome("a", False)])
    assert (
        set(found["fast_p_interval"].values()) == {None} and found["geomean_kept_interval"] is None
    )
    gap = difference([TaskOutcome("a", True, 1.0)], [TaskOutcome("a", True, 2.0)], log_speedup)
    assert gap["value"] == pytest.approx(math.log(2)) and gap["lo"] is gap["hi"] is None


def test_differences_are_paired() -> None:
    first = [TaskOutcome(str(i), True, 1.0 + 0.01 * i) for i in range(200)]
    second = [TaskOutcome(str(i), True, (1.0 + 0.01 * i) * 1.05) for i in range(150)]
    found = difference(first, second, log_speedup)
    assert found["num_tasks"] == 150
    assert found["value"] == pytest.approx(math.log(1.05)) and found["hi"] - found["lo"] < 1e-6
    assert difference(first, [], log_speedup)["value"] is None
