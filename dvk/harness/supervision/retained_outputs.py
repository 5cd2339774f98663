"""Outputs of a timed call that a runner must hold during later calls, and that must not change.

A candidate that returns a reused buffer answers `[m(x) for x in batches]` with copies of the last answer, and saves the allocation that
others pay for. How long outputs are held is random and secret, so alternating buffers are found, too. Their content is recorded when they
are read for comparison, from the runner's memory or from the board, and compared again after later calls: a few dozen cache lines, since an
overwrite with another answer differs almost everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dvk.harness.transport import process_memory
from dvk.harness.transport.lent_tensors import flat

HOLD, DROP = b"h", b"p"
"""Prepare the next call; the last one's result is held until the next such byte, or released."""
GARBAGE = b"g"
"""Like DROP; also collects garbage."""
SPAN = 4
"""Average number of calls over which outputs are held."""
BYTES = 4096
"""Elements compared per output, if a board has a copy."""

Look = Callable[[], "set[int]"]
"""Return numbers of the outputs that changed since this was made."""


@dataclass(frozen=True)
class RetainedCall:
    """Return values of a call."""

    look: Look
    lay: Callable[[], None]
    """Restores its inputs."""


class RetainedOutputs:
    """Outputs that one runner holds of its timed calls."""

    def __init__(self) -> None:
        self._last: RetainedCall | None = None
        self._held: RetainedCall | None = None

    def byte(self) -> bytes:
        """Prepare the next call."""
        last, self._last = self._last, None
        if last is None or (self._held is not None and random.random() > 1 / SPAN):
            return DROP
        self._held = last
        return HOLD

    def note(self, look: Look, lay: Callable[[], None]) -> None:
        """Record the outputs of the last call."""
        self._last = RetainedCall(look, lay)

    def overwritten(self) -> set[int]:
        """Return numbers of the held outputs that changed; outputs in the inputs' memory are compared after those are restored."""
        if self._held is None or not (changed := self._held.look()):
            return set()
        self._held.lay()
        return changed & self._held.look()


def in_memory(
    pid: int, addresses: Sequence[int], sample: process_memory.Sample, seen: bytes, count: int
) -> Look:
    """Compares in the runner's memory.

    Args:
        addresses: addresses of all blocks.
        sample: the sampled cache lines.
        seen: their content.
        count: number of leading blocks that are outputs.
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


def on_board(
    tensors: Sequence[torch.Tensor], again: Callable[[], Sequence[torch.Tensor]], count: int
) -> Look:
    """Compares copies.

    Args:
        tensors: copies of the returned tensors.
        again: copies the held tensors once more.
        count: number of leading tensors that are outputs.
    """
    places = [
        torch.randint(max(1, flat(t).nbytes), (BYTES,), device=t.device) if t.numel() else None
        for t in tensors[:count]
    ]

    def some(copies: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        pairs = zip(copies[:count], places, strict=True)
        return [None if at is None else flat(copy).view(torch.uint8)[at] for copy, at in pairs]

    seen = some(tensors)

    def look() -> set[int]:
        pairs = zip(seen, some(again()), strict=True)
        return {
            n
            for n, (a, b) in enumerate(pairs)
            if a is not None and b is not None and not torch.equal(a, b)
        }

    return look
