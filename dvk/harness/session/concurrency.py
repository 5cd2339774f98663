"""How many candidates to have in work at a time: enough for the next to be compiled and checked while one is timed, and no more."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dvk import machine
from dvk.config import Config
from dvk.records import Device, Task

PER_GPU = 10
"""Of one GPU, which times one candidate after another: these have the next one compiled and checked by then. More only begin
more processes, three a candidate that open the GPU, and disturb what is timed: 47 played 0.4 tasks a second where 10 played 0.6."""
PER_CPU = 2
"""Without a GPU: one compiles while another is timed."""
WORKER_BYTES = 4 << 30
"""Memory of a GPU that one candidate's three processes take at most: a context of half a gigabyte each, and a task's inputs,
weights and outputs, also in float64."""


def per_device(config: Config, device: Device) -> int:
    """Candidates for each GPU, or for a CPU, as the settings say or where they leave it to us, of a machine that is not this one."""
    return config.rollout.judges or (PER_GPU if device == "cuda" else PER_CPU)


def local_workers(config: Config, device: Device) -> int:
    """Candidates on all of this machine: what the settings say for each GPU, or what its cores and the GPUs' memory serve."""
    if device != "cuda":
        return per_device(config, device)
    gpus = max(1, len(machine.gpu_names()))
    return gpus * (config.rollout.judges or max(1, min(PER_GPU, machine.num_cores() // gpus, by_memory())))


def by_memory(free: Sequence[int] = ()) -> int:
    """Candidates that every GPU's free memory serves: the bytes given, or those free now."""
    free = free or machine.gpu_free_bytes() or (PER_GPU * WORKER_BYTES,)  # a GPU that does not tell is taken for a large one
    return max(1, min(free) // WORKER_BYTES)


def gpu_for(task: Task, worker: int) -> str | None:
    """Which GPU a worker uses, as CUDA_VISIBLE_DEVICES names it; None where there is no choice."""
    names = machine.gpu_names() if task.device == "cuda" else ()
    if len(names) < 2:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = [part.strip() for part in visible.split(",")] if visible else [str(i) for i in range(len(names))]
    return chosen[worker % len(chosen)]
