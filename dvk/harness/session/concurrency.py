"""Number of candidates to judge at once: enough for the next to be compiled and checked while one is timed, and no more."""

from __future__ import annotations

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
    if config.rollout.judges:
        return gpus * config.rollout.judges
    return by_memory(max(1, machine.num_cores() // gpus))


def by_memory(most: int = PER_GPU) -> int:
    """Return candidates on all GPUs: on each as many as its free memory holds, one at least, and neither `most` nor `PER_GPU` exceeded."""
    free = machine.gpu_free_bytes() or (
        PER_GPU * WORKER_BYTES,
    )  # one that does not report is large
    return sum(max(1, min(PER_GPU, most, one // WORKER_BYTES)) for one in free)
