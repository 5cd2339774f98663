"""Claims of a speedup: the rule over several fresh sets of processes, and when more must be measured. Pure.

A claim holds if the lower end of the t-interval over per-process medians exceeds 1 + margin and every process saw the same sign.
The margin is the largest of 1 %, three half-widths of the control (the reference against itself, A/A) and three times the control's bias:
effects below the protocol's noise are not claimed, while a large gain can be claimed on an unsteady machine. The data are looked at after
5 processes, if undecided after 10, and if the noise is large then, after 20. The 5 % of error is split between the looks, so more looks do
not raise the error. After the first look each process makes up to `LONGER` times as many pairs: a calm one stops as early as before.

Simulated (4,000 each, test_claims has a shorter one): with 0.3, 0.6 and 1 % between processes an A/A pair was never
claimed; a true 3 % in 100, 99.9 and 61 % of the trials; a true 1 %, the worst case, in 1.4, 0.5 and 0.2 %. Where the median of
a process is off by 20 % until it makes more pairs, an A/A pair was never claimed either, and a true 2 in 99.5 % of the trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dvk.records import Claim, Interval, show_ratio
from dvk.speedups import is_noisy, is_wide
from dvk.stats.intervals import process_interval

FIRST_LOOK, SECOND_LOOK, LAST_LOOK = 5, 10, 20
"""Fresh sets of processes after which the data are looked at."""
ALPHAS = {FIRST_LOOK: 0.01, SECOND_LOOK: 0.03, LAST_LOOK: 0.01}
"""Two-sided error spent at each look; 5 % in all. A look that a deadline brings forward spends what the next one would."""
LONGER = 4
"""Factor on the pairs and seconds of a process after the first look."""
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
    elif sum(one <= 1 for one in speedups) > len(speedups) // LAST_LOOK:
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
    """Whether more processes may change the answer: measure until the next look.

    They cannot if it holds or if even the upper end is no claim. On a calm machine ten processes suffice, and one that saw no gain, too.
    """
    count = len(found.processes)
    if count >= LAST_LOOK or found.holds:
        return False
    if count < FIRST_LOOK:
        return True
    if found.speedup.hi <= 1 + LEAST_MARGIN:
        return False
    disagreeing = sum(one <= 1 for one in found.processes)
    return is_unsteady(found) and disagreeing <= 1 or count < SECOND_LOOK and not disagreeing


def is_unsteady(found: Claim) -> bool:
    """Whether the noise is so large that more processes than on a calm machine are worth their time."""
    return is_noisy(found.control) or is_wide(found.speedup)


def looked_at(count: int) -> bool:
    """Whether the data are looked at after so many processes."""
    return count in ALPHAS


def _alpha(count: int) -> float:
    return ALPHAS[next((look for look in ALPHAS if count <= look), LAST_LOOK)]
