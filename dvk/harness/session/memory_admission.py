"""Admission of tasks with large tensors: as many at a time as fit a GPU's memory, while other workers continue with smaller ones.

Ten workers that each take a task with a gigabyte of inputs exceed a GPU: their draws, float64 results and caches are several times that.
Observed on 80 GB: honest candidates rejected, references broken, and a step that took five times as long.
"""

from __future__ import annotations

import threading
from collections import Counter

from dvk import machine
from dvk.harness.session.concurrency import WORKER_BYTES
from dvk.records import Task
from dvk.tasks.sizes import num_bytes

COPIES = 8
"""Copies of a task's inputs and outputs in referee, reference and candidate: as drawn, in float64, as expected, as answered."""
PLAIN_BYTES = WORKER_BYTES - (3 << 29)
"""Bytes of tensors that every worker may hold, in addition to three contexts."""


def extra_bytes(task: Task) -> int:
    """Return GPU memory of judging the task beyond every worker's allowance."""
    if task.device != "cuda":
        return 0
    return max(0, COPIES * num_bytes(task) - PLAIN_BYTES)


class SpareMemory:
    """GPU memory beyond the workers' allowances, and its current holders.

    Args:
        workers: workers per GPU.
    """

    def __init__(self, workers: int):
        self._workers = workers
        self._held: Counter[str | None] = Counter()
        self._free: int | None = None
        self.changed = threading.Condition()
        """Lock for `granted` and `give_back`; notified of everything that is given back."""

    def look(self) -> None:
        """Read the free memory, unless known. Called before the workers start, since their allowance is already subtracted."""
        if self._free is None:
            self._free = min(machine.gpu_free_bytes(), default=0)

    def granted(self, gpu: str | None, wanted: int) -> bool:
        """Take this many bytes of a GPU. If it has no holder, any request is granted."""
        if wanted:
            if (
                self._held[gpu]
                and self._held[gpu] + wanted > (self._free or 0) - self._workers * WORKER_BYTES
            ):
                return False
            self._held[gpu] += wanted
        return True

    def give_back(self, gpu: str | None, held: int) -> None:
        """Return a grant."""
        if held:
            self._held[gpu] -= held
        self.changed.notify_all()


__all__ = ["SpareMemory", "extra_bytes"]
