"""Penalty for an unparsable answer: a model must not learn that silence is as good as an attempt."""

from __future__ import annotations

from dvk.config import RewardsConfig
from dvk.records import Turn


def wellformed(turn: Turn, settings: RewardsConfig) -> float:
    """−1 for an unparsable or truncated answer, else 0; a server's failure is not the model's."""
    del settings
    return -1.0 if turn.malformed is not None and turn.finish != "error" else 0.0
