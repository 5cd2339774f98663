"""Memory that judging processes may keep, whatever the reference takes: cached inputs and answers, within limits.

The limit of a referee's process (`limits.memory_bytes`) is for the reference that runs there. What the judge itself holds
comes on top (`beside_the_reference`), else a reference of any size would run out of memory once enough draws are kept.
"""

from __future__ import annotations

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

TRUTH_BYTES = {"cpu": 512 << 20, "cuda": 4 << 30}
"""Most bytes of inputs, weights and outputs of a call with a float64 truth, which takes four times as much; of a larger one the reference's
own answer and its variations decide."""
FLUSH_BYTES = 256 << 20
"""Largest buffer that flushes a CPU's caches."""

IDLE_BYTES = 1 << 30
"""GPU memory that PyTorch may cache; one of ten candidates' processes cached 22 GB, and others failed."""

WHOLE_MB = 512
"""Size from which a block of a referee's GPU memory is not split."""


def keep_large_blocks_whole() -> None:
    """Have PyTorch's allocator split no large block of GPU memory in this process.

    A referee draws tensors of many sizes. A small tensor in what is left of a large block would keep all of it from other processes, since
    `release_cached` releases whole blocks only.
    """
    import torch

    names = (
        "_accelerator_setAllocatorSettings",
        "_cuda_cudaCachingAllocator_set_allocator_settings",
    )
    for setting in filter(None, (getattr(torch._C, name, None) for name in names)):
        setting(f"max_split_size_mb:{WHOLE_MB}")
        return


def release_cached() -> None:
    """Release PyTorch's unused GPU memory if it is large, since other processes cannot use it."""
    import torch  # the parent of judging processes reads the figures above and has no torch

    if (
        torch.cuda.is_initialized()
        and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > IDLE_BYTES
    ):
        torch.cuda.empty_cache()


def budgets(device: Device, sharers: int, limit_bytes: int | None = None) -> tuple[int, int]:
    """Return bytes for cases and bytes for draws.

    Args:
        device: the device of the tensors.
        sharers: referees that use it at the same time. On a GPU they keep at most three eighths of its memory together.
        limit_bytes: `limits.memory_bytes`; on a CPU each share is at most a quarter of it. None: no limit.
    """
    if device == "cpu":
        most = (limit_bytes or machine.memory_bytes()) // 4
        return min(KEEP_BYTES[device], most), min(STOCK_BYTES[device], most)
    import torch

    share = torch.cuda.mem_get_info()[1] // (8 * sharers)
    return min(KEEP_BYTES[device], 2 * share), min(STOCK_BYTES[device], share)


def beside_the_reference(device: Device, limit_bytes: int) -> int:
    """Return bytes of main memory that a referee may hold for judging alone: at most one and a half times the reference's limit, and the
    buffer that flushes the caches.

    On a GPU draws and truths are in the GPU's memory.
    """
    if device == "cuda":
        return 0
    return (
        sum(budgets(device, 1, limit_bytes))
        + min(4 * TRUTH_BYTES["cpu"], limit_bytes)
        + FLUSH_BYTES
    )
