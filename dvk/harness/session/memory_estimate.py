"""GPU memory that judging a task takes: from the sizes of its inputs and outputs, without running it."""

from __future__ import annotations

from dvk.records import Task
from dvk.tasks.sizes import num_bytes

WORKER_BYTES = 4 << 30
"""GPU memory that one judge session's three processes may take whatever the task: a context of half a gigabyte each, and a task's inputs,
weights and outputs, also in float64."""
CONTEXT_BYTES = 3 << 29
"""The contexts alone."""
COPIES = 8
"""Copies of a task's inputs and outputs in referee, reference and candidate: as drawn, in float64, as expected, as answered."""


def bytes_to_judge(task: Task) -> int:
    """Return GPU memory of judging the task: 0 on a CPU."""
    if task.device != "cuda":
        return 0
    return max(WORKER_BYTES, CONTEXT_BYTES + COPIES * num_bytes(task))
