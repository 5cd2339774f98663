"""Device memory that judging processes may keep: cached inputs and answers, within limits."""

from __future__ import annotations

import torch

from dvk import machine
from dvk.records import Device

KEEP_BYTES = {"cpu": 1 << 30, "cuda": 1 << 30}
"""Share for cases that candidates are compared on."""
STOCK_BYTES = {
    "cpu": max(512 << 20, machine.memory_bytes() // (4 * machine.num_cores())),
    "cuda": 1 << 30,
}
"""Share for draws of timed calls; draws without room are made again for each candidate, which takes a GPU milliseconds. A quarter of a
machine's memory, with a referee on every core; on a GPU `session.memory_estimate` counts both shares."""

IDLE_BYTES = 1 << 30
"""GPU memory that PyTorch may cache; one of ten candidates' processes cached 22 GB, and others failed."""


def release_cached() -> None:
    """Release PyTorch's unused GPU memory if it is large, since other processes cannot use it."""
    if (
        torch.cuda.is_initialized()
        and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > IDLE_BYTES
    ):
        torch.cuda.empty_cache()


def budgets(device: Device, sharers: int) -> tuple[int, int]:
    """Return bytes for cases and bytes for draws.

    Args:
        device: the device of the tensors.
        sharers: referees that use it at the same time. On a GPU they keep at most three eighths of its memory together.
    """
    if device == "cpu":
        return KEEP_BYTES[device], STOCK_BYTES[device]
    share = torch.cuda.mem_get_info()[1] // (8 * sharers)
    return min(KEEP_BYTES[device], 2 * share), min(STOCK_BYTES[device], share)
