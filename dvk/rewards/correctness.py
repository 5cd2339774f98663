"""Correctness on every input family and every shape the judge tried, the held-out shapes among them."""

from __future__ import annotations

from dvk.config import RewardsConfig
from dvk.records import Status, Turn


def correctness(turn: Turn, settings: RewardsConfig) -> float:
    """1 for a right candidate, else 0."""
    del settings
    return float(is_right(turn))


def is_right(turn: Turn) -> bool:
    """Whether the verdict is ok."""
    return turn.verdict is not None and turn.verdict.status is Status.OK
