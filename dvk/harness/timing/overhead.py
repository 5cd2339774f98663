"""Time of a call by the runner's stamps if plausible, else by the judge's.

A runner reports when its call began and ended; the judge's stamps bound that from outside. The gap between the two spans is the handshake,
or work that was moved out of the inner stamps. The reference arm in the same rounds shows the handshake's cost: its median gap, and a
little more, is allowed to every call, but not what interruptions add to it; the rest of a gap counts as time of the call. All arms are
treated alike, so that a noisy machine favours none, and call by call, so that hiding work in few calls, or behind noise, gains nothing: a
runner that reports T - h for a call that takes T is charged h, less the allowance.

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

SCATTER_MS = 0.02
"""Most by which the median handshake may exceed the quickest. On a busy machine the scheduler interrupts most handshakes for milliseconds:
as an allowance, these would hide a candidate's work."""
LEAST_ALLOWANCE_MS = 0.003
"""Difference in cache effects on the handshake between two honest arms."""
SHARE = 0.01
"""Share of the reference's time that never decides a claim."""


def handshake_allowance_ms(
    reference_ms: Sequence[float], reference_gaps_ms: Sequence[float]
) -> float:
    """Return the handshake's milliseconds of gap.

    Args:
        reference_ms: inner times of the reference arm's calls.
        reference_gaps_ms: judge's span minus inner time of the same calls.

    Raises:
        ValueError: no calls.
    """
    usual = median_interval(reference_gaps_ms)[0]
    return min(usual, min(reference_gaps_ms) + SCATTER_MS) + max(
        LEAST_ALLOWANCE_MS, SHARE * median_interval(reference_ms)[0]
    )


def corrected_ms(
    inner_ms: Sequence[float], gaps_ms: Sequence[float], allowed_ms: float
) -> list[float]:
    """Return the time of each call in ms.

    Args:
        inner_ms: times by the runner's stamps.
        gaps_ms: judge's span minus inner time.
        allowed_ms: see `handshake_allowance_ms`.

    Raises:
        ValueError: a time that is not finite.
    """
    if not all(math.isfinite(ms) for ms in (*inner_ms, *gaps_ms)):
        raise ValueError("a time that is not finite")
    return [
        inner + max(0.0, gap - allowed_ms) for inner, gap in zip(inner_ms, gaps_ms, strict=True)
    ]
