"""Claims of a speedup: the rule over several fresh sets of processes, and when more must be measured. Pure.

A claim holds if the lower end of the t-interval over per-process medians exceeds 1 + margin and every process saw the same sign.
The margin is the largest of 1 %, three half-widths of the control (the reference against itself, A/A) and three times the control's bias:
effects below the protocol's noise are not claimed, while a large gain can be claimed on an unsteady machine. The data are looked at twice
at most, after 5 processes and, if undecided, after 10, and the 5 % of error is split 1 : 4 between the looks, so that two looks do not
raise the error.

Simulated (4,000 each, test_claims has a shorter one): with 0.3, 0.6 and 1 % between processes an A/A pair was never
claimed; a true 3 % in 100, 99.9 and 61 % of the trials; a true 1 %, the worst case, in 1.6, 0.5 and 0.2 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dvk.records import Claim, Interval, show_ratio
from dvk.speedups import is_noisy
from dvk.stats.intervals import process_interval

FIRST_LOOK, LAST_LOOK = 5, 10
"""Fresh sets of processes after which the data are looked at."""
FIRST_ALPHA, LAST_ALPHA = 0.01, 0.04
"""Two-sided error spent at each look; 5 % in all."""
LEAST_MARGIN = 0.01
"""Below 1 % two builds of the same kernel differ."""
CONTROL_WIDTHS = 3.0


def claim(speedups: Sequence[float], controls: Sequence[float]) -> Claim:
    """Return the combined result of the processes measured so far.

    speedups: median speedup of each fresh set of processes (`intervals.median_ratio`).
        speedups: median speedup of each fresh set of processes (`intervals.median_ratio`).
        controls: the reference against itself in the same sets, in the same order.

    Raises:
        ValueError: lists of unequal length, fewer than two, or a ratio that is not positive and finite.
    """
    if len(speedups) != len(controls):
        raise ValueError(f"{len(speedups)} speedups but {len(controls)} controls")
    level = 1 - _alpha(len(speedups))
    interval = process_interval(speedups, level)
    control = process_interval(controls)
    half = (math.log(control.hi) - math.log(control.lo)) / 2
    margin = max(
        LEAST_MARGIN, CONTROL_WIDTHS * math.expm1(half), CONTROL_WIDTHS * abs(control.value - 1)
    )
    why = ""
    if len(speedups) < FIRST_LOOK:
        why = f"too few processes: {len(speedups)} of {FIRST_LOOK}"
    elif not interval.lo > 1 + margin:
        why = _within(interval, control, margin)
    elif min(speedups) <= 1:
        why = f"the processes disagree: one saw {show_ratio(min(speedups))}"
    return Claim(
        speedup=interval,
        level=level,
        processes=tuple(speedups),
        control=control,
        margin=margin,
        holds=not why,
        why=why,
    )


def _within(interval: Interval, control: Interval, margin: float) -> str:
    """Return why a speedup whose lower end is within the margin is not claimed; a margin that nothing could exceed is not named."""
    if is_noisy(control):
        ends = f"between {show_ratio(control.lo)} and {show_ratio(control.hi)}"
        return f"the noise is too large: the reference against itself came out {ends}"
    if interval.lo <= 1:
        return f"no difference shown: the interval begins at {show_ratio(interval.lo)}"
    return f"too small for this noise: the interval begins at {show_ratio(interval.lo)} and should be above {show_ratio(1 + margin)}"


def undecided(found: Claim) -> bool:
    """Whether more processes may change the answer: measure up to `LAST_LOOK` of them, then look again, for the last time.

    They cannot if it holds, if a process saw no gain (that stays), or if even the upper end is no claim.
    """
    if len(found.processes) >= LAST_LOOK or found.holds:
        return False
    if len(found.processes) < FIRST_LOOK:
        return True
    return min(found.processes) > 1 and found.speedup.hi > 1 + LEAST_MARGIN


def _alpha(count: int) -> float:
    return LAST_ALPHA if count >= LAST_LOOK else FIRST_ALPHA
