"""Tasks of large tensors: as many of them at a time as a GPU's memory holds, while other workers go on with smaller ones.

Ten workers who all take up a task with a gigabyte of inputs need more than a GPU has: what they draw, compute in float64 and keep is
several times that. Seen on 80 GB: honest candidates refused, references broken, and a step that took five times as long.
"""

from __future__ import annotations

import threading
from collections import Counter

from dvk import machine
from dvk.harness.session.concurrency import WORKER_BYTES
from dvk.records import Task
from dvk.tasks.sizes import num_bytes

COPIES = 8
"""A task's inputs and outputs that its referee, reference and candidate hold together: as drawn, in float64, as expected, as answered."""
PLAIN_BYTES = WORKER_BYTES - (3 << 29)
"""What every worker may hold of tensors: beside it are three contexts."""


def extra_bytes(task: Task) -> int:
    """Memory of a GPU that judging the task takes beyond what every worker is reckoned with."""
    if task.device != "cuda":
        return 0
    return max(0, COPIES * num_bytes(task) - PLAIN_BYTES)


class SpareMemory:
    """What the GPUs have beyond what every worker is reckoned with, and who holds how much of it.

    Args:
        workers: on each GPU.
    """

    def __init__(self, workers: int):
        self._workers = workers
        self._held: Counter[str | None] = Counter()
        self._free: int | None = None
        self.changed = threading.Condition()
        """To be held around `granted` and `give_back`; told of everything that is given back."""

    def look(self) -> None:
        """See what is free, unless that is known. Before the workers begin: what they take is reckoned with already."""
        if self._free is None:
            self._free = min(machine.gpu_free_bytes(), default=0)

    def granted(self, gpu: str | None, wanted: int) -> bool:
        """Take so many bytes of a GPU. Where nobody holds any, whoever asks gets what it asks for."""
        if wanted:
            if self._held[gpu] and self._held[gpu] + wanted > (self._free or 0) - self._workers * WORKER_BYTES:
                return False
            self._held[gpu] += wanted
        return True

    def give_back(self, gpu: str | None, held: int) -> None:
        """Somebody is through with what it was granted."""
        if held:
            self._held[gpu] -= held
        self.changed.notify_all()


__all__ = ["SpareMemory", "extra_bytes"]
