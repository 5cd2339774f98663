"""Share of the roofline: the time to move the minimal bytes at peak bandwidth, over the time taken."""

from __future__ import annotations

from dvk.config import RewardsConfig
from dvk.records import Turn
from dvk.rewards.correctness import is_right


def roofline(turn: Turn, settings: RewardsConfig) -> float | None:
    """The share of the roofline, 0 to 1; 0 for a wrong candidate, None if the machine's ceilings were not measured."""
    del settings
    if not is_right(turn):
        return 0.0
    assert turn.verdict is not None
    timing = turn.verdict.timing
    if timing is None or timing.floor_ms is None:
        return None
    return min(1.0, timing.floor_ms / timing.candidate_ms)
