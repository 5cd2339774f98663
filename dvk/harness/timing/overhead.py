"""Time of a call by the runner's stamps if plausible, else by the judge's.

A runner reports when its call began and ended; the judge's stamps bound that from outside. The gap between the two spans is the handshake,
or work that was moved out of the inner stamps. The reference arm in the same rounds shows what handshakes cost on this machine now: the
gaps of an arm, sorted, are compared with the reference's, sorted, and what a gap exceeds the gap of the same rank by, less a little, counts
as time of the call. Work that is moved into gaps shifts all of them, few of them, or the quick ones, and is charged at the ranks that it
shifts; noise, however large, is in both arms. The median over calls alone would let a candidate hide its work in what a busy machine adds
to most handshakes; a fixed allowance would charge that noise to both arms, and bring every speedup nearer to 1.

There is no second audit that compares the wall clock of n and of 2n calls with the claims, as other harnesses have: it looks for work
outside the timed spans, and here there is none. Every call is between two stamps of the judge. Outside them a runner and all its processes
are stopped, ready to call or after its answer, and its processor time is compared around the stop (`process_stopper`); on a GPU outputs are
fetched inside the judge's span, so that deferred work is charged. A slope over calls would see the same span plus the judge's work between
calls, which varies by milliseconds, more than the effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dvk.stats.intervals import median_interval

LEAST_ALLOWANCE_MS = 0.003
"""Difference in cache effects on the handshake between two honest arms."""
SHARE = 0.01
"""Share of the reference's time that never decides a claim."""


def tolerated_ms(reference_ms: Sequence[float]) -> float:
    """Return the milliseconds by which a gap may exceed the reference's.

    Args:
        reference_ms: inner times of the reference arm's calls.

    Raises:
        ValueError: no calls.
    """
    return max(LEAST_ALLOWANCE_MS, SHARE * median_interval(reference_ms)[0])


def corrected_ms(
    inner_ms: Sequence[float],
    gaps_ms: Sequence[float],
    reference_gaps_ms: Sequence[float],
    tolerated: float,
) -> list[float]:
    """Return the time of each call in ms.

    Args:
        inner_ms: times by the runner's stamps.
        gaps_ms: judge's span minus inner time.
        reference_gaps_ms: those of the reference in the same rounds, as many.
        tolerated: see `tolerated_ms`.

    Raises:
        ValueError: a time that is not finite; arms of different lengths.
    """
    if not all(math.isfinite(ms) for ms in (*inner_ms, *gaps_ms, *reference_gaps_ms)):
        raise ValueError("a time that is not finite")
    told = list(inner_ms)
    by_gap = sorted(range(len(told)), key=gaps_ms.__getitem__)
    for call, usual in zip(by_gap, sorted(reference_gaps_ms), strict=True):
        told[call] += max(0.0, gaps_ms[call] - usual - tolerated)
    return told
