"""Packs: rows concatenated in sequences of one length, so that a device computes no padding.

A row attends to itself alone: positions restart and attention stays inside the row. The order
of packs is a function of seed and epoch, so a resumed run continues with the same pack.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dvk.learn.rows import RowStore, TrainingRow

if TYPE_CHECKING:
    import numpy as np
    import torch

MOST_ROWS = 32
"""Rows in a pack, on average, up to which the shape of the offsets is fixed."""
OPEN_BINS = 64
"""Packs tried for a row before a new one is opened: enough for 98 % full packs, few enough to be quick."""


def plan(lengths: np.ndarray, capacity: int, seed: int) -> list[np.ndarray]:
    """Assign rows to packs: shuffled, then each into the fullest of the open packs that holds it.

    Args:
        lengths: tokens of every row, shape (rows,).
        capacity: tokens of a pack; longer rows are left out (`too_long` counts them).
        seed: of the shuffle.

    Returns:
        Row numbers a pack, packs in the order to train on.
    """
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(lengths))
    done: list[np.ndarray] = []
    # (tokens left, when it was opened, its rows), the fullest first; of two equally full ones the older.
    bins: list[tuple[int, int, list[int]]] = []
    for number, (index, size) in enumerate(zip(order.tolist(), lengths[order].tolist())):
        if size > capacity:
            continue
        place = bisect_left(bins, (size,))
        if place < len(bins):
            left, begun, held = bins.pop(place)
        else:
            if len(bins) == OPEN_BINS:
                done.append(np.asarray(bins.pop(0)[2]))
            left, begun, held = capacity, number, []
        held.append(index)
        insort(bins, (left - size, begun, held))
    done += [np.asarray(held) for _, _, held in sorted(bins, key=lambda one: one[1])]
    mixed = np.random.default_rng(seed + 1).permutation(len(done))
    return [done[i] for i in mixed]


G = TypeVar("G")


def deal_packs(groups: Sequence[G], rank: int, size: int, at_a_time: int) -> list[list[G]]:
    """A process's packs, `at_a_time` a micro-batch: as many micro-batches as every other process has, the last perhaps empty.

    Args:
        groups: a step's packs, in an order that all processes know.
        rank, size: this process's number, and the number of processes.
        at_a_time: packs computed at a time.
    """
    mine = list(groups[rank::size])
    return [
        mine[first : first + at_a_time] for first in range(0, -(-len(groups) // size), at_a_time)
    ]


def too_long(lengths: np.ndarray, capacity: int) -> int:
    """Rows that fit no pack."""
    return int((lengths > capacity).sum())


@dataclass(frozen=True)
class Packs:
    """Tensors of several packs, each of shape (packs, capacity)."""

    ids: torch.Tensor
    """int64; 0 after the last row."""
    positions: torch.Tensor
    """int64; from 0 in every row."""
    segments: torch.Tensor
    """int32; which row of the pack, from 1; 0 after the last row."""
    targets: torch.Tensor
    """bool; this token is learned (from the logits before it)."""
    weights: torch.Tensor
    """float32; the row's advantage for targets, else 0."""
    old: torch.Tensor
    """float32; the sampler's log-probability for targets if known, else NaN."""

    def to(self, device: str | torch.device) -> Packs:
        """The same on another device."""
        there = {
            name: getattr(self, name).to(device, non_blocking=True)
            for name in self.__dataclass_fields__
        }
        return Packs(**there)

    @property
    def num_targets(self) -> int:
        return int(self.targets.sum())

    @property
    def num_rows(self) -> int:
        """Rows in all packs."""
        return int(self.segments.amax(1).sum())

    def rows(self) -> torch.Tensor:
        """Row number of each token, across packs: int64 of shape (packs, capacity), distinct for distinct rows."""
        import torch

        num_packs, capacity = self.segments.shape
        return self.segments + torch.arange(num_packs, device=self.segments.device)[:, None] * (
            capacity + 1
        )

    def row_offsets(self) -> torch.Tensor:
        """Offsets of rows in the concatenation of all packs, int32; a pack's tail is a separate row.

        Ends with enough empty rows that the shape depends on the packs' shape alone: code is compiled for one shape.
        """
        import torch
        from torch.nn import functional as F

        num_packs, capacity = self.segments.shape
        begins = torch.ones_like(self.segments, dtype=torch.bool)
        begins[:, 1:] = self.segments[:, 1:] != self.segments[:, :-1]
        tensor = begins.flatten().nonzero().squeeze(1)
        room = num_packs * MOST_ROWS
        while room < len(tensor):
            room *= 2
        return F.pad(tensor, (0, room + 1 - len(tensor)), value=num_packs * capacity).to(
            torch.int32
        )


def from_store(store: RowStore, groups: Sequence[np.ndarray], capacity: int) -> Packs:
    """As `lay_out` for rows of a store, of advantage 1: copies slices, makes no row.

    Args:
        store: the rows.
        groups: row numbers, a pack a group, as `plan` gives them; without groups one empty pack.
        capacity: tokens of a pack.
    """
    import numpy as np
    import torch

    shape = (max(1, len(groups)), capacity)
    ids, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    segments, targets = np.zeros(shape, np.int32), np.zeros(shape, bool)
    steps = np.arange(capacity)
    for pack, group in enumerate(groups):
        begin = 0
        for number, index in enumerate(group.tolist(), start=1):
            first, last = int(store.starts[index]), int(store.starts[index + 1])
            end = begin + last - first
            ids[pack, begin:end], targets[pack, begin:end] = (
                store.ids[first:last],
                store.targets[first:last],
            )
            positions[pack, begin:end], segments[pack, begin:end] = steps[: last - first], number
            begin = end
    weights, old = targets.astype(np.float32), np.full(shape, np.nan, np.float32)
    return Packs(*(torch.from_numpy(a) for a in (ids, positions, segments, targets, weights, old)))


def lay_out(groups: Sequence[Sequence[TrainingRow]], capacity: int) -> Packs:
    """Tensors for groups of rows, a pack a group; without groups one empty pack.

    Raises:
        ValueError: a group has more tokens than `capacity`.
    """
    import numpy as np
    import torch

    shape = (max(1, len(groups)), capacity)
    ids, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    segments, targets = np.zeros(shape, np.int32), np.zeros(shape, bool)
    weights, old = np.zeros(shape, np.float32), np.full(shape, np.nan, np.float32)
    for pack, rows in enumerate(groups):
        begin = 0
        for number, row in enumerate(rows, start=1):
            end = begin + len(row.ids)
            if end > capacity:
                raise ValueError(
                    f"rows of {sum(len(r.ids) for r in rows)} tokens in a pack of {capacity}"
                )
            here = slice(begin, end)
            ids[pack, here], positions[pack, here], segments[pack, here] = (
                row.ids,
                np.arange(len(row.ids)),
                number,
            )
            marks = np.asarray(row.targets, bool)
            targets[pack, here], weights[pack, here] = marks, marks * row.advantage
            if row.logprobs:
                old[pack, np.flatnonzero(marks) + begin] = row.logprobs
            begin = end
    laid = (torch.from_numpy(a) for a in (ids, positions, segments, targets, weights, old))
    return Packs(*laid)
