"""Outputs of a timed call that a runner was told to hold while later calls go on: they must stay as they were.

Who returns a buffer that is kept answers `[m(x) for x in batches]` with as many copies of the last answer, and saves the
allocation that everybody else pays for. How long outputs are held is random and the referee's secret, so that buffers which
take turns are found, too. What was in them is noted when they are read for comparison, from the runner's memory or off the
board, and looked up again after later calls: a few dozen cache lines, since what is overwritten with another answer differs
almost everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dvk.harness.transport import process_memory
from dvk.harness.transport.lent_tensors import flat

HOLD, DROP = b"h", b"p"
"""Prepare the next call; what the last one returned is held until the next such byte, or is let go."""
GARBAGE = b"g"
"""As DROP; cycles of garbage are collected, too."""
SPAN = 4
"""Calls, on average, over which outputs are held."""
BYTES = 4096
"""Of each output, looked at where a board has a copy."""

Look = Callable[[], "set[int]"]
"""Numbers of the outputs that are not what they were when this was made."""


@dataclass(frozen=True)
class RetainedCall:
    """What a call returned."""

    look: Look
    lay: Callable[[], None]
    """Puts its inputs where they were."""


class RetainedOutputs:
    """What one runner holds of its timed calls."""

    def __init__(self) -> None:
        self._last: RetainedCall | None = None
        self._held: RetainedCall | None = None

    def byte(self) -> bytes:
        """Has the next call prepared."""
        last, self._last = self._last, None
        if last is None or (self._held is not None and random.random() > 1 / SPAN):
            return DROP
        self._held = last
        return HOLD

    def note(self, look: Look, lay: Callable[[], None]) -> None:
        """Of the call that has just been made."""
        self._last = RetainedCall(look, lay)

    def overwritten(self) -> set[int]:
        """Numbers of the held outputs that are not what they were; those that lie in the inputs are, when those are back."""
        if self._held is None or not (changed := self._held.look()):
            return set()
        self._held.lay()
        return changed & self._held.look()


def in_memory(pid: int, addresses: Sequence[int], sample: process_memory.Sample, seen: bytes, count: int) -> Look:
    """Looks into the runner's memory.

    Args:
        addresses: of all blocks.
        sample: of them.
        seen: what it read.
        count: blocks that are outputs, the first ones.
    """

    def look() -> set[int]:
        try:
            now = sample.read(pid, addresses)
        except process_memory.UnreadableMemory:
            return set(range(count))
        changed, start = set(), 0
        for block, _, size in sample.places:
            if block < count and now[start : start + size] != seen[start : start + size]:
                changed.add(block)
            start += size
        return changed

    return look


def on_board(tensors: Sequence[torch.Tensor], again: Callable[[], Sequence[torch.Tensor]], count: int) -> Look:
    """Looks at copies.

    Args:
        tensors: copies of what was returned.
        again: has what is held copied once more.
        count: those that are outputs, the first ones.
    """
    places = [torch.randint(max(1, flat(t).nbytes), (BYTES,), device=t.device) if t.numel() else None for t in tensors[:count]]

    def some(copies: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        pairs = zip(copies[:count], places, strict=True)
        return [None if at is None else flat(copy).view(torch.uint8)[at] for copy, at in pairs]

    seen = some(tensors)

    def look() -> set[int]:
        pairs = zip(seen, some(again()), strict=True)
        return {n for n, (a, b) in enumerate(pairs) if a is not None and b is not None and not torch.equal(a, b)}

    return look
