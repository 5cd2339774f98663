"""Profiling reward (PR; Dr.Kernel, arXiv 2602.05885): the share of the device's time in the candidate's own kernels.

It separates a candidate that speeds up the work from one that replaces a negligible part of it. Right candidates only.
"""

from __future__ import annotations

from dvk.config import RewardsConfig
from dvk.records import Turn
from dvk.rewards.correctness import is_right


def coverage(turn: Turn, settings: RewardsConfig) -> float | None:
    """The share, 0 to 1; 0 for a wrong candidate, None if the judge did not measure it."""
    del settings
    if not is_right(turn):
        return 0.0
    assert turn.verdict is not None
    return turn.verdict.coverage
