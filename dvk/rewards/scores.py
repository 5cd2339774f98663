"""fast_p and geometric means over tasks, with bootstrap intervals: pure functions of outcomes.

fast_p (KernelBench, arXiv 2502.10517) is the share of *all* tasks with a correct candidate whose speedup
exceeds p; a failure counts as not fast. fast_0 is therefore the share that is correct. Where a task was
tried several times, its tries are averaged first: the bootstrap draws tasks, which are what generalises.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

THRESHOLDS = ("0", "0.8", "1", "1.2", "1.5", "2", "3")
"""Those of KernelBench, daVinci-kernel and Dr.Kernel together; 0.8: not much is lost where a fallback would be."""
NUM_DRAWS = 2000
"""Bootstrap draws: the ends of a 95 % interval are then good to about a fiftieth of its width."""


@dataclass(frozen=True)
class Outcome:
    """What one try at one task came to.

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


def is_fast(outcome: Outcome, threshold: float, *, lower: bool = False) -> bool:
    """Correct and faster than `threshold` times; 0 asks for correctness alone."""
    if not outcome.correct or threshold == 0:
        return outcome.correct
    speedup = outcome.lo if lower else outcome.speedup
    return speedup is not None and speedup > threshold


def best(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The best try of every task: correct before wrong, then the fastest. Tasks in the order first met."""
    found: dict[str, Outcome] = {}
    for outcome in outcomes:
        held = found.get(outcome.task)
        if held is None or (outcome.correct, outcome.speedup or 0.0) > (held.correct, held.speedup or 0.0):
            found[outcome.task] = outcome
    return list(found.values())


def by_task(outcomes: Iterable[Outcome], score: Callable[[Outcome], float]) -> list[float]:
    """The mean of `score` over the tries of each task."""
    return list(_task_means(outcomes, score).values())


def log_speedup(outcome: Outcome) -> float:
    """Natural logarithm of the speedup a user would get: one who has no correct, faster candidate keeps the original."""
    return math.log(max(1.0, outcome.speedup)) if outcome.correct and outcome.speedup else 0.0


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float] | None:
    """95 % percentile bootstrap interval of the mean; None for fewer than two values, which say nothing of others."""
    if len(values) < 2:
        return None
    if min(values) == max(values):
        return values[0], values[0]
    drawn = np.random.default_rng(seed).integers(len(values), size=(NUM_DRAWS, len(values)))
    means = np.sort(np.asarray(values, dtype=float)[drawn].mean(axis=1))
    return float(means[round(0.025 * (NUM_DRAWS - 1))]), float(means[round(0.975 * (NUM_DRAWS - 1))])


def summary(outcomes: Sequence[Outcome], thresholds: Sequence[str] = THRESHOLDS) -> dict[str, Any]:
    """Every score of a set of outcomes.

    Returns:
        num_tasks, num_tries; fast_p, fast_p_lo (threshold → share) and fast_p_interval (threshold → [lo, hi]);
        geomean (of speedups, correct and timed ones only, null without any), geomean_kept (with the original
        kept where nothing is faster) and its interval. Intervals are null for one task alone.
    """
    shares = {t: by_task(outcomes, lambda o, t=t: float(is_fast(o, float(t)))) for t in thresholds}  # type: ignore[misc]
    lower = {t: by_task(outcomes, lambda o, t=t: float(is_fast(o, float(t), lower=True))) for t in thresholds}  # type: ignore[misc]
    timed = [math.log(o.speedup) for o in outcomes if o.correct and o.speedup]
    kept = by_task(outcomes, log_speedup)
    ends = interval(kept)
    return {
        "num_tasks": len(kept), "num_tries": len(outcomes),
        "fast_p": {t: mean(v) for t, v in shares.items()},
        "fast_p_lo": {t: mean(v) for t, v in lower.items()},
        "fast_p_interval": {t: found and list(found) for t, found in ((t, interval(v)) for t, v in shares.items())},
        "geomean": math.exp(sum(timed) / len(timed)) if timed else None,
        "geomean_kept": math.exp(mean(kept)) if kept else None,
        "geomean_kept_interval": ends and [math.exp(end) for end in ends],
    }


def by_group(outcomes: Sequence[Outcome], dimension: str, thresholds: Sequence[str] = THRESHOLDS) -> dict[str, dict[str, Any]]:
    """`summary` of every value of one dimension, e.g. of every category; outcomes without one are left out."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        value = outcome.groups.get(dimension)
        if value is not None:
            groups[value].append(outcome)
    return {value: summary(group, thresholds) for value, group in sorted(groups.items())}


def difference(first: Sequence[Outcome], second: Sequence[Outcome], score: Callable[[Outcome], float], seed: int = 0) -> dict[str, Any]:
    """Mean of `score` in `second` minus in `first`, paired by task.

    Returns:
        value, its 95 % bootstrap interval `lo` and `hi`, and num_tasks, the tasks that both tried; null ends for fewer than two.
    """
    one, two = (_task_means(o, score) for o in (first, second))
    shared = [task for task in one if task in two]
    gaps = [two[task] - one[task] for task in shared]
    if not gaps:
        return {"value": None, "lo": None, "hi": None, "num_tasks": 0}
    lo, hi = interval(gaps, seed) or (None, None)
    return {"value": mean(gaps), "lo": lo, "hi": hi, "num_tasks": len(shared)}


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; nan without values."""
    return sum(values) / len(values) if values else math.nan


def _task_means(outcomes: Iterable[Outcome], score: Callable[[Outcome], float]) -> dict[str, float]:
    tries: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        tries[outcome.task].append(score(outcome))
    return {task: sum(t) / len(t) for task, t in tries.items()}
