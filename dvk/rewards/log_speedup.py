"""Logarithm of the speedup over eager PyTorch, as the goal of a search is a geometric mean: 10 % counts as much at 5× as at 1×.

Ours; daVinci-kernel (arXiv 2606.16497) rewards the speedup itself, so that tasks with large ones dominate.
"""

from __future__ import annotations

import math

from dvk.config import RewardsConfig
from dvk.records import Turn
from dvk.rewards.correctness import is_right

FAILED = 0.5
"""Speedup that a wrong answer counts as; slower answers count the same."""


def log_speedup(turn: Turn, settings: RewardsConfig) -> float | None:
    """ln(speedup / FAILED), at least 0; 0 for a wrong candidate, None for a right one that cannot be timed here."""
    del settings
    verdict = turn.verdict
    if verdict is None or not is_right(turn):
        return 0.0
    if verdict.timing is None:
        return None if verdict.untimed_reason else 0.0
    return max(0.0, math.log(verdict.timing.speedup.value / FAILED))
