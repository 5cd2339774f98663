"""What only the judge's clock saw of a call is charged to the candidate.

The runner reports when its call began and ended; the judge's own stamps bound that from outside. The gap between the
two spans is the handshake, and work that a candidate moved out of its own stamps. The reference arm pays
the same handshake in the same rounds, so what a candidate's gap has more than the reference's is work.

Medians, because they cannot be played: a candidate that hides h_i of a call of length T reports T - h_i, and
median(T - h) + median(h) = T however it spreads h. A mean would charge honest candidates for the scheduler's moods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dvk.harness.intervals import median_interval

LEAST_CHARGE_MS = 0.003
"""Two honest arms differ by so much in what the handshake finds in the caches."""
STANDARD_ERRORS = 3.0


def gap_charge(candidate_gaps: Sequence[float], reference_gaps: Sequence[float]) -> float:
    """Milliseconds to add to each call of the candidate: all of the excess once it is beyond doubt, else nothing.

    Beyond doubt: more than `LEAST_CHARGE_MS` and three standard errors. All of it, not what lies beyond
    the threshold, so that who hides work gains nothing by hiding much.

    Args:
        candidate_gaps: judge's span minus runner's span of each timed call, in ms.
        reference_gaps: the same of the reference arm's calls.

    Raises:
        ValueError: no gaps, or one that is not finite.
    """
    if not all(math.isfinite(gap) for gaps in (candidate_gaps, reference_gaps) for gap in gaps):
        raise ValueError("a gap that is not finite")
    ours, our_error = _median_and_error(candidate_gaps)
    theirs, their_error = _median_and_error(reference_gaps)
    excess = ours - theirs
    doubt = max(LEAST_CHARGE_MS, STANDARD_ERRORS * math.hypot(our_error, their_error))
    return excess if excess > doubt else 0.0


def _median_and_error(gaps: Sequence[float]) -> tuple[float, float]:
    middle, lo, hi = median_interval(gaps)
    return middle, (hi - lo) / 2 / 1.96
