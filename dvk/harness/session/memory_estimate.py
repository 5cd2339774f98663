"""GPU memory that judging a task takes: from the sizes of its inputs and outputs, without running it.

What a session's processes hold at the same time, in a timed call (`tests/harness/test_memory_estimate.py` counts it):

    referee     the native case: inputs and outputs; lent inputs, native and of a few other shapes; lent outputs
                a draw: inputs, the same with a few odd elements, outputs; a call's intermediate results
                cases and draws that are kept, within `KEPT_BYTES`
    reference   a call's intermediate results; outputs of the last call, of one before that is held, and of this one
    candidate   the same
    baseline    the same, each
"""

from __future__ import annotations

from dvk.harness.transport.memory_budget import KEEP_BYTES, STOCK_BYTES
from dvk.harness.transport.memory_budget import TRUTH_BYTES as LARGEST_TRUTH
from dvk.records import Task
from dvk.tasks.sizes import input_bytes, num_bytes
from dvk.tasks.variants import few

ARM_BYTES = 1 << 29
"""A context in one process."""
CONTEXT_BYTES = 3 * ARM_BYTES
"""Contexts of the referee, the reference and the candidate."""
KEPT_BYTES = KEEP_BYTES["cuda"] + STOCK_BYTES["cuda"]
WORKER_BYTES = 4 << 30
"""GPU memory that one judge session may take whatever the task."""
TRUTH_BYTES = LARGEST_TRUTH["cuda"]
WIDENED = 2
"""Size of float64 over that of the usual type."""
RUNNERS = 2
OUTPUTS_HELD = 3


def bytes_to_judge(task: Task, num_baselines: int = 0) -> int:
    """Return GPU memory of judging the task, with baselines: 0 on a CPU."""
    if task.device != "cuda":
        return 0
    held = max(WORKER_BYTES, CONTEXT_BYTES + KEPT_BYTES + bytes_in_calls(task))
    return held + num_baselines * (ARM_BYTES + runner_bytes(task))


def bytes_in_calls(task: Task) -> int:
    """Return bytes of the tensors of one timed round and of what is lent, in all processes."""
    return referee_bytes(task) + RUNNERS * runner_bytes(task)


def referee_bytes(task: Task) -> int:
    """Return what the referee holds while it makes a draw, or a case with a float64 truth."""
    given, both, inner = input_bytes(task), num_bytes(task), _inner(task)
    lent = both + sum(input_bytes(task, variant) for variant in few(task.shape_variants))
    drawn = given + both + inner + (both - given)  # an output is copied
    if not any(one.name.startswith("batch") for one in task.shape_variants):
        # Families are as large as the native draw: their truths, too, up to a limit.
        drawn += WIDENED * (both + inner) if both + inner <= TRUTH_BYTES else 0
    return both + lent + drawn


def runner_bytes(task: Task) -> int:
    """Return what the process of a candidate, or of the reference, holds in a timed call besides what is lent to it."""
    return OUTPUTS_HELD * (num_bytes(task) - input_bytes(task)) + _inner(task)


def _inner(task: Task) -> int:
    """Weights and intermediate results: examining the task took them, and two sets of inputs and outputs."""
    return max(0, (task.peak_bytes or 0) - 2 * num_bytes(task))
