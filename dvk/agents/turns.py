"""What earlier turns of a conversation say together: speeds, the best, which to show again."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.records import Timing, Turn


def kept(turns: Sequence[Turn], most: int) -> list[int]:
    """Positions of the turns that stay in context, ascending."""
    if not turns:
        return []
    best = max(range(len(turns)), key=lambda i: (speedup(turns[i]), i))
    order = [len(turns) - 1, *([best] if speedup(turns[best]) else []), *reversed(range(len(turns) - 1))]
    return sorted(list(dict.fromkeys(order))[:most])


def best_timing(turns: Sequence[Turn]) -> Timing | None:
    """Of the fastest correct turn."""
    timed = [turn.verdict.timing for turn in turns if turn.verdict is not None and turn.verdict.timing is not None]
    return max(timed, key=lambda timing: timing.speedup.value, default=None)


def speedup(turn: Turn) -> float:
    """Over eager; 0 where nothing was timed."""
    return turn.verdict.timing.speedup.value if turn.verdict is not None and turn.verdict.timing is not None else 0.0
