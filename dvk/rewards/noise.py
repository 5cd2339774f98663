"""Timing noise of a turn's reward, from the interval of its verdict."""

from __future__ import annotations

import math

from dvk.config import RewardsConfig
from dvk.records import Interval, Turn
from dvk.rewards import rewarded

INTERVAL_SDS = 2 * 1.96
"""Width of a 95 % interval in standard deviations."""


def reward_variance(turn: Turn, settings: RewardsConfig) -> float:
    """Variance of the reward due to the clock; 0 for a turn that was not timed.

    The reward is evaluated at speedups of one standard deviation more and less, so that every term counts as it is weighted.
    """
    timing = turn.verdict.timing if turn.verdict is not None else None
    if turn.verdict is None or timing is None or timing.speedup.lo <= 0:
        return 0.0
    sd = math.log(timing.speedup.hi / timing.speedup.lo) / INTERVAL_SDS
    rewards = []
    for factor in (math.exp(sd), math.exp(-sd)):
        ends = {name: value * factor for name, value in timing.speedup.model_dump().items()}
        moved = timing.model_copy(update={"speedup": Interval(**ends)})
        verdict = turn.verdict.model_copy(update={"timing": moved})
        reward = rewarded(turn.model_copy(update={"verdict": verdict}), settings).reward
        rewards.append(reward if reward is not None else 0.0)
    return ((rewards[0] - rewards[1]) / 2) ** 2
