"""What a call cost by the judge's clock: its own stamps where they are plausible, the judge's where they are not.

A runner reports when its call began and ended; the judge's stamps bound that from outside. The gap between
the two spans is the handshake, or work that was moved out of the inner stamps. What the handshake
costs is seen on the reference arm in the same rounds: its median gap, and a little more, is allowed
to every call; the rest of a gap counts as time of the call. All arms are treated alike, so that a noisy
machine favours nobody, and call by call, so that hiding work in few calls, or behind noise of one's own,
gains nothing: whoever reports T - h for a call that takes T is charged h, less the allowance.

There is no second audit that compares the wall clock of n and of 2n calls with what is claimed, as other harnesses have: it looks
for work that is done outside what is timed, and here nothing is. Every call lies between two stamps of the judge. Outside
them a runner and all it has started is stopped, on the point of calling or after its bell, and its processor time is compared
around the stop (`process_stopper`); on a GPU outputs are fetched inside the judge's span, so that what they wait for is charged. A slope
over calls would see the same span plus the judge's own work between calls, milliseconds that vary by more than what it is to
find.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dvk.stats.intervals import median_interval

LEAST_ALLOWANCE_MS = 0.003
"""Two honest arms differ by so much in what the handshake finds in the caches."""
SHARE = 0.01
"""Of the reference's time: what no claim turns on."""


def handshake_allowance_ms(reference_ms: Sequence[float], reference_gaps_ms: Sequence[float]) -> float:
    """Milliseconds of gap that are the handshake's.

    Args:
        reference_ms: inner times of the reference arm's calls.
        reference_gaps_ms: judge's span minus inner time of the same calls.

    Raises:
        ValueError: no calls.
    """
    return median_interval(reference_gaps_ms)[0] + max(LEAST_ALLOWANCE_MS, SHARE * median_interval(reference_ms)[0])


def corrected_ms(inner_ms: Sequence[float], gaps_ms: Sequence[float], allowed_ms: float) -> list[float]:
    """Time of each call in ms.

    Args:
        inner_ms: by the runner's stamps.
        gaps_ms: judge's span minus inner time.
        allowed_ms: see `handshake_allowance_ms`.

    Raises:
        ValueError: a time that is not finite.
    """
    if not all(math.isfinite(ms) for ms in (*inner_ms, *gaps_ms)):
        raise ValueError("a time that is not finite")
    return [inner + max(0.0, gap - allowed_ms) for inner, gap in zip(inner_ms, gaps_ms, strict=True)]
