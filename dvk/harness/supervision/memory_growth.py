"""Growth of a process's memory with every call, observed from outside; and outputs that it still holds, by its report.

A pool, a cache of a constant size, a fragmented heap: all grow for a while. So a candidate that grew throughout a series is called further,
untimed, and is rejected only if it keeps growing. Small outputs hardly show in a process's pages: the process reports how many of them
still have their memory, and a false report would only hurt it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

LEAST_BYTES = 64 << 10
"""Least growth per call, in bytes; less is lost in a heap's noise."""
SHARE = 0.25
"""Least share of an answer's bytes that a call leaves behind."""
KEPT = 0.75
"""Least number of outputs that a call leaves alive, on average."""
LEAST_CALLS, MORE_CALLS, MORE_S = 12, 64, 2.0
"""Further calls that test whether the growth continues."""


@dataclass
class Footprint:
    """Memory of one process after each call of a series."""

    num_bytes: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def note(self, num_bytes: int, kept: int) -> None:
        """Record the memory after a call."""
        self.num_bytes.append(num_bytes)
        self.kept.append(kept)

    def grown(self, calls: int) -> tuple[float, float]:
        """Return bytes and outputs per call, over the last `calls`."""
        return (self.num_bytes[-1] - self.num_bytes[-1 - calls]) / calls, (
            self.kept[-1] - self.kept[-1 - calls]
        ) / calls


class Outputs:
    """Outputs of calls that still have memory."""

    def __init__(self) -> None:
        self._known: dict[int, StorageWeakRef] = {}

    def add(self, leaves: list[Any]) -> None:
        """Add those of one call; views of each other count once."""
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                known = StorageWeakRef(leaf.untyped_storage())
                self._known.setdefault(known.cdata, known)

    def count(self) -> int:
        """Return the number of those that still have their memory."""
        self._known = {place: known for place, known in self._known.items() if not known.expired()}
        return len(self._known)


def growth(
    candidate: Footprint, reference: Footprint, num_bytes: int, again: Callable[[], object]
) -> str | None:
    """Describe how a candidate's memory grows with every call; None if it does not.

    Args:
        candidate: memory after a series.
        reference: the same of the reference; if its outputs stay, a candidate's may.
        num_bytes: bytes of an answer.
        again: makes one more call of the candidate, and records it.
    """
    bound = max(LEAST_BYTES, SHARE * num_bytes)
    half = min(len(candidate.kept), len(reference.kept)) // 2
    if half < 2 or not _grows(candidate, half, bound) or reference.grown(half)[1] >= KEPT:
        return None
    began, calls = time.monotonic(), 0
    while calls < MORE_CALLS and (calls < LEAST_CALLS or time.monotonic() - began < MORE_S):
        again()
        calls += 1
    late = calls * 2 // 3
    if not _grows(candidate, calls, bound) or not _grows(candidate, late, bound):
        return None
    by, kept = candidate.grown(calls)
    what = (
        f"its memory grows by {by / 1024:,.0f} KiB a call"
        if by >= bound
        else f"of {calls} outputs {kept * calls:.0f} are still held"
    )
    return f"{what} after {len(candidate.kept)} calls, without an end: keep no more than a constant amount of what a call made"


def _grows(one: Footprint, calls: int, bound: float) -> bool:
    by, kept = one.grown(calls)
    return by >= bound or kept >= KEPT
