"""Which packs each step of a fit learns: a function of the data, the settings and the seed, so that a resumed fit repeats it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dvk.config import Config
from dvk.distributed import ProcessGroup
from dvk.errors import UsageError
from dvk.learn.packs import Packs, deal_packs, from_store, plan, too_long
from dvk.learn.rows import RowStore

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Course:
    """The rows to learn, in packs, epoch after epoch; the last epoch may be a part of one."""

    rows: RowStore
    capacity: int
    """Tokens of a pack."""
    per_step: int
    """Packs of a step, over all processes."""
    micro_packs: int
    """Packs that are computed at a time."""
    epochs: list[list[np.ndarray]]
    """Row numbers of each pack."""
    num_steps: int

    @classmethod
    def plan(cls, rows: RowStore, config: Config) -> Course:
        """Assign rows to packs and packs to steps.

        Raises:
            UsageError: no row fits into a pack.
        """
        capacity = config.learning.pack_tokens
        per_step = max(1, config.learning.batch_tokens // capacity)
        if too_long(rows.lengths(), capacity) == len(rows):
            raise UsageError(
                f"no example fits into {capacity} tokens", "raise learning.pack_tokens"
            )
        epochs = [
            plan(rows.lengths(), capacity, seed=config.seed + epoch)
            for epoch in range(math.ceil(config.fit.epochs))
        ]
        steps = sum(len(packs) // per_step or 1 for packs in epochs)
        num_steps = max(1, round(steps * config.fit.epochs / len(epochs)))
        if config.fit.max_steps is not None:
            num_steps = min(num_steps, config.fit.max_steps)
        return cls(rows, capacity, per_step, config.learning.micro_packs, epochs, num_steps)

    @property
    def steps_of(self) -> list[int]:
        """Steps of each epoch."""
        return [len(packs) // self.per_step or 1 for packs in self.epochs]

    def packs_of(self, step: int, processes: ProcessGroup) -> list[Packs]:
        """Return this process's packs of a step, a micro-batch each."""
        epoch, within = place(step, self.steps_of)
        chosen = self.epochs[epoch][within * self.per_step : (within + 1) * self.per_step]
        return [
            from_store(self.rows, part, self.capacity)
            for part in deal_packs(chosen, processes.rank, processes.size, self.micro_packs)
        ]

    def epoch_at(self, step: int) -> float:
        """Return the number of epochs that are behind it, e.g. 1.25."""
        steps_of = self.steps_of
        epoch, within = place(step, steps_of)
        return epoch + within / steps_of[epoch]


def held_out(rows: RowStore, config: Config) -> list[Packs]:
    """Return rows that are not learned, in packs; every process evaluates all of them."""
    capacity = config.learning.pack_tokens
    groups = plan(rows.lengths(), capacity, seed=0) if len(rows) else []
    return [
        from_store(rows, part, capacity)
        for part in deal_packs(groups, 0, 1, config.learning.micro_packs)
    ]


def place(step: int, steps_of: Sequence[int]) -> tuple[int, int]:
    """Return the epoch of a step, and the step's number within it."""
    for epoch, count in enumerate(steps_of):
        if step < count:
            return epoch, step
        step -= count
    return len(steps_of) - 1, step % steps_of[-1]
