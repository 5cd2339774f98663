"""Paired, interleaved timing in one process on one device. Child side.

Each sample calls every arm once, in random order, on the same input tensors. On CUDA: flush L2,
synchronize, start event, one call, end event, synchronize; the GPU is idle when the call begins, so
the host's launch latency counts, as it does for a user. On a CPU: one call between two readings of
the monotonic clock, after streaming a buffer through the last-level cache when the task's tensors
would fit in it. The speedup is the median of paired ratios with a percentile bootstrap interval.

One process has one set of addresses: the interval does not cover what differs between processes.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch

Call = Callable[[], object]
MIN_PAIRS = 5
MAX_FLUSH_BYTES = 256 << 20
CACHE_BYTES = 32 << 20
"""Last-level cache assumed where the system does not say."""


@dataclass(frozen=True)
class Samples:
    """Milliseconds a call: one row a pair, one column an arm."""

    ms: numpy.ndarray
    seconds: float

    def median_ms(self, arm: int) -> float:
        return float(numpy.median(self.ms[:, arm]))

    def ratio(self, over: int, arm: int, num_bootstrap: int) -> tuple[float, float, float]:
        """Median of time(over)/time(arm) with its 95 % percentile-bootstrap interval."""
        logs = numpy.log(self.ms[:, over] / self.ms[:, arm])
        point = float(numpy.median(logs))
        rng = numpy.random.default_rng(0)
        picks = rng.integers(0, len(logs), size=(num_bootstrap, len(logs)))
        lo, hi = numpy.percentile(numpy.median(logs[picks], axis=1), [2.5, 97.5])
        return float(numpy.exp(point)), float(numpy.exp(min(lo, point))), float(numpy.exp(max(hi, point)))


def measure(arms: list[Call], device: str, *, working_bytes: int, num_pairs: int, max_s: float, warmup_s: float, seed: int) -> Samples:
    """Interleave the arms until `num_pairs` samples or `max_s` seconds an arm, at least five samples."""
    clock = _Cuda() if device == "cuda" else _Cpu(working_bytes)
    rng = random.Random(seed)
    began = time.monotonic()
    with torch.no_grad():
        for arm in arms:
            for _ in range(2):
                arm()
        until = time.monotonic() + warmup_s
        while time.monotonic() < until:
            for arm in arms:
                clock.sample(arm)
        rows: list[list[float]] = []
        start = time.monotonic()
        gc.collect()
        gc.disable()
        try:
            while len(rows) < num_pairs and (len(rows) < MIN_PAIRS or time.monotonic() - start < max_s * len(arms) / 2):
                order = list(range(len(arms)))
                rng.shuffle(order)
                row = [0.0] * len(arms)
                for position in order:
                    row[position] = clock.sample(arms[position])
                rows.append(row)
        finally:
            gc.enable()
    return Samples(numpy.maximum(numpy.array(rows), 1e-6), time.monotonic() - began)


class _Cuda:
    def __init__(self) -> None:
        cache = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.flush = torch.empty(max(2 * cache, 1 << 20), dtype=torch.int8, device="cuda")
        self.start, self.stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def sample(self, arm: Call) -> float:
        self.flush.zero_()
        torch.cuda.synchronize()
        self.start.record()
        arm()
        self.stop.record()
        torch.cuda.synchronize()
        return float(self.start.elapsed_time(self.stop))


class _Cpu:
    def __init__(self, working_bytes: int) -> None:
        cache = last_level_cache_bytes()
        # Tensors far larger than the cache evict themselves.
        self.flush = None if working_bytes > 4 * cache else torch.empty(min(2 * cache, MAX_FLUSH_BYTES) // 4, dtype=torch.float32)

    def sample(self, arm: Call) -> float:
        if self.flush is not None:
            self.flush.fill_(1.0)
        start = time.perf_counter_ns()
        arm()
        return (time.perf_counter_ns() - start) / 1e6


def last_level_cache_bytes() -> int:
    """Size of the largest cache of processor 0."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) << {"K": 10, "M": 20}.get(text[-1], 0))
    return max(sizes, default=CACHE_BYTES)


@contextmanager
def alone(device: str) -> Iterator[None]:
    """Wait until no other dvk process on this machine times on the same device."""
    name = "cpu"
    if device == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        name = str(getattr(properties, "uuid", torch.cuda.current_device()))
    path = Path(tempfile.gettempdir()) / f"dvk-timing-{os.getuid()}-{name}.lock"
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
