"""Speedup of a treatment on a model's answers, from paired samples: pure functions of judged turns.

A pair is sample i of the control arm and sample i of the treatment arm on one task. Its difference is
ln(treatment's speedup) − ln(control's); a wrong or unreadable answer counts as a speedup of `failed`, in both arms alike.
A pair in which both fail says nothing, and one that could not be measured (the backbone failed, the reference is broken,
the task is degenerate, nothing is timed here) is no pair.

Samples of one task are alike, so the unit is the task: the gain is the mean over tasks of their mean differences, its bounds are one-sided
t-bounds from the spread of those means. With a single task the unit is the sample, and the bound holds for that task alone. The error is
never less than that of the judge's clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from dvk.records import Status, Timing, Turn
from dvk.stats.student_t import student_quantile

Pair = tuple[Turn, Turn]
"""Control and treatment."""
_DEVIATIONS = 2 * 1.96
"""Standard deviations between the ends of a 95 % interval."""


class Bounded(NamedTuple):
    """A ratio with its one-sided bounds; 0 and infinity without a bound."""

    value: float
    lo: float
    hi: float


@dataclass(frozen=True)
class OnTask:
    """Return the gain on one task.

    Attributes:
        gain: treatment over control; bounds from its samples.
        control, treatment: geometric means of the arms' speedups over eager in the pairs that count, failures as `failed`.
        num_pairs: that count.
    """

    gain: Bounded
    control: float
    treatment: float
    num_pairs: int


@dataclass(frozen=True)
class Gain:
    """Return the gain over all tasks.

    Attributes:
        total: with bounds over `unit`; None where no pair counts.
        unit: what the bounds are made of.
        tasks: by id, those with pairs that count.
        num_pairs: that count.
        num_failed: pairs in which both arms failed.
        num_unmeasured: pairs left out for other reasons.
    """

    total: Bounded | None
    unit: Literal["tasks", "samples"]
    tasks: Mapping[str, OnTask]
    num_pairs: int
    num_failed: int
    num_unmeasured: int


class _Logs(NamedTuple):
    """Return a task's valid pairs: ln speedup of either arm, the variance of their difference by the clock, the answers."""

    control: list[float]
    treatment: list[float]
    variance: list[float]
    written: set[tuple[str, str]]


def effect_size(pairs: Mapping[str, Sequence[Pair]], failed: float, level: float) -> Gain:
    """Return the combined result of paired samples, by task.

    Args:
        failed: speedup that a wrong answer counts as.
        level: confidence of each bound, one-sided.
    """
    tasks: dict[str, OnTask] = {}
    means, variances = [], []
    num_failed = num_unmeasured = 0
    for task, of_task in pairs.items():
        logs = _Logs([], [], [], set())
        for control, treatment in of_task:
            if not (_measured(control) and _measured(treatment)):
                num_unmeasured += 1
            elif _timing(control) is None and _timing(treatment) is None:
                num_failed += 1
            else:
                logs.control.append(_log(control, failed))
                logs.treatment.append(_log(treatment, failed))
                logs.variance.append(_variance(control) + _variance(treatment))
                logs.written.add((_written(control), _written(treatment)))
        if logs.control:
            differences = [t - c for c, t in zip(logs.control, logs.treatment)]
            # Equal answers are judged once, so more of them lower no error: one variance counts, not their mean's.
            variance = fmean(logs.variance)
            bounded = _ratio(bounds(differences, variance, level, len(logs.written)))
            tasks[task] = OnTask(
                bounded,
                math.exp(fmean(logs.control)),
                math.exp(fmean(logs.treatment)),
                len(differences),
            )
            means.append(fmean(differences))
            variances.append(variance)
    total: Bounded | None = None
    if len(means) == 1:
        total = next(iter(tasks.values())).gain
    elif means:
        total = _ratio(bounds(means, sum(variances) / len(variances) ** 2, level, len(means)))
    counted = sum(one.num_pairs for one in tasks.values())
    return Gain(
        total, "samples" if len(means) == 1 else "tasks", tasks, counted, num_failed, num_unmeasured
    )


def bounds(values: Sequence[float], variance: float, level: float, count: int) -> Bounded:
    """Return the mean of `values` with one-sided t-bounds.

    Args:
        values: at least one.
        variance: of their mean, at least: what measuring alone makes of it.
        level: confidence of each bound.
        count: how many of them are independent; with fewer than two there are no bounds.
    """
    middle = fmean(values)
    if count < 2:
        return Bounded(middle, -math.inf, math.inf)
    error = max(stdev(values) / math.sqrt(count), math.sqrt(variance))
    half = student_quantile(level, count - 1) * error
    return Bounded(middle, middle - half, middle + half)


def _ratio(logs: Bounded) -> Bounded:
    return Bounded(*map(math.exp, logs))


def _measured(turn: Turn) -> bool:
    """Whether the answer has a result: that it fails, or how fast it is."""
    if turn.finish == "error":
        return False
    verdict = turn.verdict
    if verdict is not None and verdict.degenerate:
        return False
    return (
        verdict is None
        or verdict.timing is not None
        or verdict.status not in (Status.OK, Status.BROKEN_TASK)
    )


def _timing(turn: Turn) -> Timing | None:
    """Return the result of a correct answer."""
    return turn.verdict.timing if turn.verdict is not None else None


def _log(turn: Turn, failed: float) -> float:
    timing = _timing(turn)
    return math.log(timing.speedup.value if timing is not None else failed)


def _variance(turn: Turn) -> float:
    timing = _timing(turn)
    return (
        (math.log(timing.speedup.hi / timing.speedup.lo) / _DEVIATIONS) ** 2
        if timing is not None
        else 0.0
    )


def _written(turn: Turn) -> str:
    return turn.candidate.id if turn.candidate is not None else turn.completion
