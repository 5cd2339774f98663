"""What judging processes keep of a device's memory: inputs and answers that need not be drawn and computed again, and no more."""

from __future__ import annotations

import torch

from dvk import machine
from dvk.records import Device

KEEP_BYTES = {"cpu": 1 << 30, "cuda": 8 << 30}
"""Cases that candidates are compared on."""
STOCK_BYTES = {"cpu": max(512 << 20, machine.memory_bytes() // (4 * machine.num_cores())), "cuda": 4 << 30}
"""Draws for timed calls: what finds no room is made anew for each candidate. A quarter of the memory, with a referee on every core."""

IDLE_BYTES = 1 << 30
"""Memory of a GPU that PyTorch may hold for what comes next; of ten candidates' processes one held 22 GB, and others found none."""


def release_cached() -> None:
    """Give back what PyTorch holds of a GPU without using it, where that is much: others ask for it, and cannot have it."""
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > IDLE_BYTES:
        torch.cuda.empty_cache()


def budgets(device: Device, sharers: int) -> tuple[int, int]:
    """Bytes for cases and bytes for draws.

    Args:
        device: where they lie.
        sharers: referees that use it at the same time. On a GPU they keep three eighths of its memory together: twelve that kept
            as much as they liked filled 140 GB, and the candidates of others failed.
    """
    if device == "cpu":
        return KEEP_BYTES[device], STOCK_BYTES[device]
    share = torch.cuda.mem_get_info()[1] // (8 * sharers)
    return min(KEEP_BYTES[device], 2 * share), min(STOCK_BYTES[device], share)
