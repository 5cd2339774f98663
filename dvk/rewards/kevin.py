"""Kevin's score (arXiv 2507.11948): 0.3 for a right kernel, and its speedup; meant for discounted returns with γ = 0.4."""

from __future__ import annotations

from dvk.config import RewardsConfig
from dvk.records import Turn
from dvk.rewards.correctness import is_right
from dvk.rewards.speedup import CAP

RIGHT = 0.3


def kevin(turn: Turn, settings: RewardsConfig) -> float:
    """0.3 · correct + speedup, the speedup as a point estimate and capped; 0 for a wrong kernel."""
    if not is_right(turn):
        return 0.0
    assert turn.verdict is not None
    timing = turn.verdict.timing
    return RIGHT + (min(timing.speedup.value, CAP) if timing is not None else 0.0)
