"""Confidence intervals of samples. Plain Python, microseconds per call, no torch: parent and children use it.

Within one process (`ratio_interval`): order statistics around the median, interpolated to the asked level
(Hettmansperger and Sheather, Statistics & Probability Letters 4, 1986). What decided it: the percentile bootstrap of a
median picks order statistics, too, by 2,000 resamples in 1 to 30 ms; for 7 and 30 heavy-tailed pairs its nominal 95 %
covered 88 and 94 %. This takes 20 to 140 µs, draws nothing, and covered 95 and 96 %.

Over processes (`process_interval`): Student's t over per-process medians. Two processes of the same kernels
differ by more than the samples within one let expect (addresses, page colours; about 1 %), so samples are never pooled:
pooled intervals covered the truth in 29 % of simulations, a bootstrap over 5 processes in 84 %, t in 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean, median, stdev

from dvk.records import Interval
from dvk.stats.student_t import student_quantile

LEVEL = 0.95


# ---------------------------------------------------------------- within a process


def ratio_interval(
    reference_ms: Sequence[float], candidate_ms: Sequence[float], level: float = LEVEL
) -> Interval:
    """Return the speedup of the candidate: median of reference / candidate over the pairs.

    Args:
        reference_ms: time of the reference in each pair.
        candidate_ms: time of the candidate in the same pair.
        level: how often such intervals shall hold the truth.

    Raises:
        ValueError: no pairs, lists of unequal length, or a time that is not positive.
    """
    value, lo, hi = median_interval(_logs(reference_ms, candidate_ms), level)
    return Interval(value=math.exp(value), lo=math.exp(lo), hi=math.exp(hi))


def median_ratio(reference_ms: Sequence[float], candidate_ms: Sequence[float]) -> float:
    """Return the speedup of one process: `process_interval` and `claims.claim` take one per process.

    Raises:
        ValueError: as `ratio_interval`.
    """
    return math.exp(median(_logs(reference_ms, candidate_ms)))


def is_settled(reference_ms: Sequence[float], candidate_ms: Sequence[float], width: float) -> bool:
    """Whether more pairs would hardly move the median ratio: its standard error is below `width` (relative)."""
    logs = sorted(_logs(reference_ms, candidate_ms))
    middle = logs[len(logs) // 2]
    deviation = sorted(abs(x - middle) for x in logs)[len(logs) // 2]
    return 1.2533 * 1.4826 * deviation / len(logs) ** 0.5 < width


def median_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float, float]:
    """Return the median of `values` with the ends of its interval, for any distribution: (median, lo, hi).

    Fewer than six values cannot say as much as 95 %: the ends are then their least and greatest.

    Raises:
        ValueError: no values, or a level outside (0, 1).
    """
    ordered = sorted(values)
    if not ordered or not 0 < level < 1:
        raise ValueError("no samples" if not ordered else f"not a level: {level}")
    rank, share = _ends(len(ordered), level)
    lo = (
        ordered[rank - 1] + (ordered[rank] - ordered[rank - 1]) * share
        if share
        else ordered[rank - 1]
    )
    hi = ordered[-rank] + (ordered[-rank - 1] - ordered[-rank]) * share if share else ordered[-rank]
    middle = median(ordered)
    return middle, min(lo, middle), max(hi, middle)


@cache
def _ends(count: int, level: float) -> tuple[int, float]:
    """Return the interval's lower end among `count` ordered values: rank from 1, and the fraction towards the next rank."""
    tails = _binomial_tails(count)  # tails[k]: fewer than k of `count` fair coins fall heads
    held = [
        1 - 2 * tail for tail in tails
    ]  # held[k]: level of the interval between ranks k and count + 1 - k
    rank = 1
    while rank + 1 < len(held) and held[rank + 1] >= level:
        rank += 1
    if rank + 1 >= len(held) or held[rank] < level:
        return rank, 0.0
    part = (held[rank] - level) / (held[rank] - held[rank + 1])
    return rank, (count - rank) * part / (rank + (count - 2 * rank) * part)


def _binomial_tails(count: int) -> list[float]:
    tails, total = [0.0], 0
    for k in range(count // 2):
        total += math.comb(count, k)
        tails.append(total / 2**count)
    return tails if len(tails) > 1 else [0.0, 0.0]


def _logs(reference_ms: Sequence[float], candidate_ms: Sequence[float]) -> list[float]:
    if not all(0 < ms < math.inf for times in (reference_ms, candidate_ms) for ms in times):
        raise ValueError("a time that is not positive and finite")
    return [math.log(r / c) for r, c in zip(reference_ms, candidate_ms, strict=True)]


# ---------------------------------------------------------------- over processes


def process_interval(medians: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the geometric mean of per-process median speedups with its t-interval.

    Args:
        medians: one a fresh process, at least two (see `median_ratio`).
        level: how often such intervals shall hold the truth.

    Raises:
        ValueError: fewer than two, or one that is not positive and finite.
    """
    mean, error = mean_and_error(medians)
    half = student_quantile(0.5 + level / 2, len(medians) - 1) * error
    return Interval(value=math.exp(mean), lo=math.exp(mean - half), hi=math.exp(mean + half))


def mean_and_error(medians: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the logarithms and its standard error.

    Raises:
        ValueError: as `process_interval`.
    """
    if len(medians) < 2:
        raise ValueError("one process says nothing about the next: at least two are needed")
    if not all(0 < m < math.inf for m in medians):
        raise ValueError("a speedup that is not positive and finite")
    logs = [math.log(m) for m in medians]
    return fmean(logs), stdev(logs) / math.sqrt(len(logs))
