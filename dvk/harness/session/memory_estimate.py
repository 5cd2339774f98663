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

DOUBLED = 3
"""Intermediate results of a call, in float64 and as they are: one process computes at a time."""


def bytes_to_judge(task: Task) -> int:
    """Return GPU memory of judging the task: 0 on a CPU."""
    if task.device != "cuda":
        return 0
    held = num_bytes(task)
    inner = max(0, (task.peak_bytes or 0) - 2 * held)  # it was examined with two sets of inputs
    return max(WORKER_BYTES, CONTEXT_BYTES + COPIES * held + DOUBLED * inner)
