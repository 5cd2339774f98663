"""Flush of the caches before a timed call."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

from dvk.harness.transport import process_memory
from dvk.harness.transport.memory_budget import FLUSH_BYTES

FLUSHED = 1.5
"""Flush size of a CPU as a multiple of its last-level cache. Of 4 MB just written, reading takes 0.32 ms, 0.41 after a flush of 1 times
that cache, 0.45 after 1.5, 0.45 after 2 and 0.46 after 2.5 (p10 of 60, 36 MB of cache, two busy cores)."""


class Flush:
    """Evicts the last call's data from the caches.

    A GPU's L2 is overwritten twice; a CPU's caches are read through by one thread per core, each with a separate part, unless the call
    itself is far larger. The threads block afterwards, since an OpenMP team would spin for milliseconds into the next timed call.
    """

    def __init__(self, device: str, working_bytes: int):
        self.cuda = device == "cuda"
        self._parts: tuple[torch.Tensor, ...] = ()
        if self.cuda:
            size = 2 * torch.cuda.get_device_properties(0).L2_cache_size
            self._parts = (torch.empty(size // 4, dtype=torch.int32, device="cuda"),)
        elif working_bytes < 4 * last_level_cache_bytes():
            self._parts, self._threads, self._gate = _readers()

    def __call__(self) -> None:
        if self.cuda:
            self._parts[0].zero_()
            torch.cuda.synchronize()
        elif self._parts:
            list(self._threads.map(self._read, self._parts))

    def _read(self, part: torch.Tensor) -> None:
        self._gate.wait()  # so that each core takes a part
        half = part.nbytes // 2
        process_memory.equal(
            part.data_ptr(), part.data_ptr() + half, half
        )  # reads both halves, in two thirds of the time of part.max()


@cache
def _readers() -> tuple[tuple[torch.Tensor, ...], ThreadPoolExecutor, threading.Barrier]:
    """Return each core's part of the buffer, the threads and their barrier: made once, for all tasks of a process."""
    cores = len(os.sched_getaffinity(0))
    size = min(int(FLUSHED * last_level_cache_bytes()), FLUSH_BYTES)
    parts = torch.zeros(size // 8, dtype=torch.int64).chunk(cores)
    threads = ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,))
    return parts, threads, threading.Barrier(len(parts))


def last_level_cache_bytes() -> int:
    """Return the size of this CPU's largest cache; 32 MiB if unknown."""
    largest = 0
    for index in range(5):
        try:
            with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size") as file:
                text = file.read().strip()
        except OSError:
            continue
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
        largest = max(largest, int(text.rstrip("KM")) * unit)
    return largest or 32 << 20
