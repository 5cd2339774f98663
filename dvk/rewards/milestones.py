"""Stepwise reward: right, faster than eager, faster than torch.compile, each by a margin above the noise."""

from __future__ import annotations

from dvk.config import RewardsConfig
from dvk.records import Interval, Turn
from dvk.rewards.correctness import is_right

MARGIN = 0.05
"""Margin by which a speedup must pass a milestone; the timing noise of a search."""

BASELINES = ("compile", "max-autotune")


def milestones(turn: Turn, settings: RewardsConfig) -> float:
    """0 for a wrong candidate; 1/3 for a right one, 1/3 more for beating eager and 1/3 for beating every timed compiled baseline."""
    if not is_right(turn):
        return 0.0
    assert turn.verdict is not None
    timing = turn.verdict.timing
    if timing is None:
        return 1 / 3
    compiled = [timing.baselines[name] for name in BASELINES if name in timing.baselines]
    passed = [_past(timing.speedup), bool(compiled) and all(_past(i) for i in compiled)]
    return (1 + passed[0] + (passed[0] and passed[1])) / 3


def _past(interval: Interval) -> bool:
    return interval.lo >= 1 + MARGIN
