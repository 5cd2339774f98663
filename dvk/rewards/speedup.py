"""Certain speedup over eager PyTorch: the lower end of the interval, capped.

daVinci-kernel (arXiv 2606.16497) rewards the measured speedup up to 6. The lower end gives no reward for noise.
"""

from __future__ import annotations

from dvk.config import RewardsConfig
from dvk.records import Turn

CAP = 6.0
"""Largest speedup that is rewarded."""


def speedup(turn: Turn, settings: RewardsConfig) -> float | None:
    """The clipped speedup; 0 for a wrong candidate, None for a right one that cannot be timed here."""
    if turn.verdict is None or turn.verdict.timing is None:
        return None if turn.verdict is not None and turn.verdict.untimed_reason else 0.0
    lo = turn.verdict.timing.speedup.lo
    return min(lo, CAP)
