"""Number of candidates to judge at once: enough for the next to be compiled and checked while one is timed, and no more."""

from __future__ import annotations

from collections.abc import Sequence

from dvk import machine
from dvk.config import Config
from dvk.harness.session.memory_estimate import WORKER_BYTES
from dvk.records import Device

PER_GPU = 10
"""Candidates per GPU, which times one after another: this many have the next one compiled and checked in time. More only start more
processes, three per candidate that open the GPU, and disturb timing: 47 played 0.4 tasks per second, 10 played 0.6."""
PER_CPU = 2
"""Candidates without a GPU: one compiles while another is timed."""


def per_device(config: Config, device: Device) -> int:
    """Return candidates per GPU, or for a CPU, by the settings or the default, for another machine."""
    return config.rollout.judges or (PER_GPU if device == "cuda" else PER_CPU)


def local_workers(config: Config, device: Device) -> int:
    """Return candidates on all of this machine: the setting for each GPU, or as many as its cores and GPU memory allow."""
    if device != "cuda":
        return per_device(config, device)
    gpus = max(1, len(machine.gpu_names()))
    return gpus * (
        config.rollout.judges or max(1, min(PER_GPU, machine.num_cores() // gpus, by_memory()))
    )


def by_memory(free: Sequence[int] = ()) -> int:
    """Return candidates that fit every GPU's free memory: the given bytes, or those free now."""
    free = (
        free or machine.gpu_free_bytes() or (PER_GPU * WORKER_BYTES,)
    )  # a GPU that does not report counts as large
    return max(1, min(free) // WORKER_BYTES)
