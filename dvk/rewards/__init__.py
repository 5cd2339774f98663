"""Rewards: the parts of a turn's reward, one a file, and the field's scores over many tasks. Imports no torch.

A part is a function of a turn and the settings: a number, or None if the turn says nothing about it. The reward is
the weighted sum of the parts that `config.rewards.weights` names; part and sum are kept on the turn.
"""

from __future__ import annotations

from collections.abc import Callable

from dvk import registry
from dvk.config import RewardsConfig
from dvk.records import Turn

Term = Callable[[Turn, RewardsConfig], "float | None"]

TERMS = {
    "correctness": "dvk.rewards.correctness:correctness",
    "speedup": "dvk.rewards.speedup:speedup",
    "coverage": "dvk.rewards.coverage:coverage",
    "format": "dvk.rewards.wellformed:wellformed",
    "kevin": "dvk.rewards.kevin:kevin",
    "log_speedup": "dvk.rewards.log_speedup:log_speedup",
    "milestones": "dvk.rewards.milestones:milestones",
    "roofline": "dvk.rewards.roofline:roofline",
}


def rewarded(turn: Turn, settings: RewardsConfig) -> Turn:
    """The turn with its reward and the reward's parts.

    Args:
        turn: with its verdict.
        settings: `weights` by the names of `TERMS`, or `path/to/file.py:Name`.

    Raises:
        UsageError: a weight names no part.
    """
    terms: dict[str, float] = {}
    for name in settings.weights:
        term: Term = registry.resolve(name, TERMS, "reward term")
        value = term(turn, settings)
        if value is not None:
            terms[name] = value
    reward = sum(settings.weights[name] * value for name, value in terms.items())
    return turn.model_copy(update={"reward_terms": terms, "reward": reward})


__all__ = ["TERMS", "Term", "rewarded"]
