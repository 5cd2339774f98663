"""fast_p and geometric means over tasks, with 95 % intervals: pure functions of outcomes.

fast_p (KernelBench, arXiv 2502.10517) is the share of *all* tasks with a correct candidate whose speedup
exceeds p; a failure counts as not fast. fast_0 is therefore the share that is correct. Where a task was
tried several times, its tries are averaged first: the bootstrap draws tasks, which are what generalises.

Of shares a bootstrap knows nothing beyond the tasks it has: where all of them are fast it has no width. Theirs is therefore joined with
the score interval of E. B. Wilson (J. Am. Stat. Assoc. 22, 1927), and that of a paired difference with the Wilson intervals of what is
gained and what is lost, squared and added (R. G. Newcombe, Statistics in Medicine 17, 1998). Alone, neither covers as often as it says
everywhere: Wilson's 85 times in 100 at a share of 0.98 over 8 tasks, where the bootstrap is wide enough.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

THRESHOLDS = ("0", "0.8", "1", "1.2", "1.5", "2", "3")
"""Thresholds of KernelBench, daVinci-kernel and Dr.Kernel together; at 0.8 little is lost where a fallback would run."""
NUM_DRAWS = 2000
"""Bootstrap draws: the ends of a 95 % interval are then accurate to about a fiftieth of its width."""
Z = 1.959964
"""Standard deviations that contain 95 % of a normal distribution."""


@dataclass(frozen=True)
class TaskOutcome:
    """The outcome of one attempt at one task.

    Attributes:
        task: name or id; tries at one task share it.
        correct: the judge said ok.
        speedup: reference time / candidate time; None when wrong or untimed.
        lo: lower end of its interval; None with it.
        groups: by dimension (level, category, …) what the task belongs to.
        regime: how it was timed, see `Timing.regime`; None where that is unknown.
    """

    task: str
    correct: bool
    speedup: float | None = None
    lo: float | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    regime: str | None = None


def is_fast(outcome: TaskOutcome, threshold: float, *, lower: bool = False) -> bool:
    """Whether it is correct and faster than `threshold` times; 0 requires correctness alone."""
    if not outcome.correct or threshold == 0:
        return outcome.correct
    speedup = outcome.lo if lower else outcome.speedup
    return speedup is not None and speedup > threshold


def best(outcomes: Iterable[TaskOutcome]) -> list[TaskOutcome]:
    """Return the best attempt at every task: correct before wrong, then the fastest. Tasks keep the order of first occurrence."""
    result: dict[str, TaskOutcome] = {}
    for outcome in outcomes:
        held = result.get(outcome.task)
        if held is None or (outcome.correct, outcome.speedup or 0.0) > (
            held.correct,
            held.speedup or 0.0,
        ):
            result[outcome.task] = outcome
    return list(result.values())


def by_task(outcomes: Iterable[TaskOutcome], score: Callable[[TaskOutcome], float]) -> list[float]:
    """Return the mean of `score` over the attempts at each task."""
    return list(_task_means(outcomes, score).values())


def log_speedup(outcome: TaskOutcome) -> float:
    """Natural logarithm of the speedup for a user, who keeps the original without a correct, faster candidate."""
    return math.log(max(1.0, outcome.speedup)) if outcome.correct and outcome.speedup else 0.0


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float] | None:
    """Return the 95 % percentile bootstrap interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    if min(values) == max(values):
        return values[0], values[0]
    drawn = np.random.default_rng(seed).integers(len(values), size=(NUM_DRAWS, len(values)))
    means = np.sort(np.asarray(values, dtype=float)[drawn].mean(axis=1))
    return float(means[round(0.025 * (NUM_DRAWS - 1))]), float(
        means[round(0.975 * (NUM_DRAWS - 1))]
    )


def wilson(share: float, number: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of `number` tasks."""
    middle, half = (
        share + Z * Z / (2 * number),
        Z * math.sqrt(share * (1 - share) / number + (Z / (2 * number)) ** 2),
    )
    whole = 1 + Z * Z / number
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def share_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean of values from 0 to 1, which contains the bootstrap's and Wilson's; None for fewer than two."""
    drawn = interval(values, seed)
    return drawn and _joined(drawn, wilson(mean(values), len(values)))


def gap_interval(gaps: Sequence[float], seed: int = 0) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean of paired differences between values from 0 to 1; None for fewer than two."""
    drawn = interval(gaps, seed)
    if drawn is None:
        return None
    more, less = mean([max(0.0, gap) for gap in gaps]), mean([max(0.0, -gap) for gap in gaps])
    (more_lo, more_hi), (less_lo, less_hi) = wilson(more, len(gaps)), wilson(less, len(gaps))
    # No task does both, so one is rarer where the other is frequent.
    against = math.sqrt(more * less / ((1 - more) * (1 - less))) if max(more, less) < 1 else 0.0

    def added(one: float, other: float) -> float:
        return math.sqrt(one * one + other * other + 2 * against * one * other)

    lo, hi = (
        more - less - added(more - more_lo, less_hi - less),
        more - less + added(more_hi - more, less - less_lo),
    )
    return _joined(drawn, (max(-1.0, lo), min(1.0, hi)))


def _joined(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return min(one[0], other[0]), max(one[1], other[1])


def summary(
    outcomes: Sequence[TaskOutcome], thresholds: Sequence[str] = THRESHOLDS
) -> dict[str, Any]:
    """Return every score of a set of outcomes.

    Returns:
        num_tasks, num_tries; fast_p, fast_p_lo (threshold → share) and fast_p_interval (threshold → [lo, hi]);
        geomean (of speedups, correct and timed ones only, null without any), geomean_kept (with the original
        kept where nothing is faster) and its interval. Intervals are null for one task alone.
    """
    shares = {t: by_task(outcomes, lambda o, t=t: float(is_fast(o, float(t)))) for t in thresholds}  # type: ignore[misc]
    lower = {
        t: by_task(outcomes, lambda o, t=t: float(is_fast(o, float(t), lower=True)))  # type: ignore[misc]
        for t in thresholds
    }
    timed = [math.log(o.speedup) for o in outcomes if o.correct and o.speedup]
    kept = by_task(outcomes, log_speedup)
    ends = interval(kept)
    return {
        "num_tasks": len(kept),
        "num_tries": len(outcomes),
        "fast_p": {t: mean(v) for t, v in shares.items()},
        "fast_p_lo": {t: mean(v) for t, v in lower.items()},
        "fast_p_interval": {
            t: found and list(found)
            for t, found in ((t, share_interval(v)) for t, v in shares.items())
        },
        "geomean": math.exp(sum(timed) / len(timed)) if timed else None,
        "geomean_kept": math.exp(mean(kept)) if kept else None,
        "geomean_kept_interval": ends and [math.exp(end) for end in ends],
    }


def difference(
    first: Sequence[TaskOutcome],
    second: Sequence[TaskOutcome],
    score: Callable[[TaskOutcome], float],
    seed: int = 0,
    *,
    share: bool = False,
) -> dict[str, Any]:
    """Return the mean of `score` in `second` minus in `first`, paired by task.

    Args:
        share: it is one of tasks, from 0 to 1; see `gap_interval`.

    Returns:
        value, its 95 % interval `lo` and `hi`, and num_tasks, the tasks that both tried; null ends for fewer than two.
    """
    one, two = (_task_means(o, score) for o in (first, second))
    shared = [task for task in one if task in two]
    gaps = [two[task] - one[task] for task in shared]
    if not gaps:
        return {"value": None, "lo": None, "hi": None, "num_tasks": 0}
    lo, hi = (gap_interval if share else interval)(gaps, seed) or (None, None)
    return {"value": mean(gaps), "lo": lo, "hi": hi, "num_tasks": len(shared)}


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean; nan without values."""
    return sum(values) / len(values) if values else math.nan


def _task_means(
    outcomes: Iterable[TaskOutcome], score: Callable[[TaskOutcome], float]
) -> dict[str, float]:
    tries: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        tries[outcome.task].append(score(outcome))
    return {task: sum(t) / len(t) for task, t in tries.items()}
