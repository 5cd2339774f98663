"""Facts about a conversation's earlier turns: speeds, the best, which to show again, which to continue from."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.config import RewardsConfig
from dvk.records import Timing, Turn
from dvk.rewards import rewarded


def turns_in_budget(turns: Sequence[Turn], most: int) -> list[int]:
    """Positions of the turns that stay in context, ascending."""
    if not turns:
        return []
    best = max(range(len(turns)), key=lambda i: (speedup(turns[i]), i))
    order = [
        len(turns) - 1,
        *([best] if speedup(turns[best]) else []),
        *reversed(range(len(turns) - 1)),
    ]
    return sorted(list(dict.fromkeys(order))[:most])


def best_window(turns: Sequence[Turn], length: int, settings: RewardsConfig) -> tuple[int, ...]:
    """Positions of the `length` consecutive turns with the largest sum of rewards, the earliest of equals.

    Sequential test-time scaling continues from them: Dr.Kernel (arXiv 2602.05885), daVinci-kernel (arXiv 2606.16497). They may
    join turns of different iterations, as there.
    """
    rewards = [rewarded(turn, settings).reward or 0.0 for turn in turns]
    starts = range(max(1, len(turns) - length + 1))
    start = max(starts, key=lambda first: (sum(rewards[first : first + length]), -first))
    return tuple(range(start, min(start + length, len(turns))))


def best_timing(turns: Sequence[Turn]) -> Timing | None:
    """Position of the fastest correct turn."""
    timed = [
        turn.verdict.timing
        for turn in turns
        if turn.verdict is not None and turn.verdict.timing is not None
    ]
    return max(timed, key=lambda timing: timing.speedup.value, default=None)


def speedup(turn: Turn) -> float:
    """Speedup over eager; 0 if nothing was timed."""
    return (
        turn.verdict.timing.speedup.value
        if turn.verdict is not None and turn.verdict.timing is not None
        else 0.0
    )
