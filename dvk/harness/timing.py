"""Time several ways to compute the same thing, interleaved in this process on the same input tensors.

Child side. A round calls every arm once, in random order, caches flushed before each call, so that
whatever drifts (clocks, neighbours) hits all alike; ratios are taken within a round. On CUDA one
call lies between two events with the device idle before it: the host's launch latency counts, as it
does for a user whose GPU waits. On a CPU the clock is perf_counter.

Not covered: overlap of consecutive calls (throughput), hot caches, other processes on the device.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dvk.harness.intervals import settled

MIN_ROUNDS = 7
SETTLED = 0.005
"""A search stops early when the ratio's standard error is below this: no schedule is chosen by less."""
MAX_FLUSH_BYTES = 256 << 20

Arm = Callable[[], Any]


@dataclass(frozen=True)
class Samples:
    """Milliseconds of each arm, one entry a round, in the order of the rounds."""

    ms: Mapping[str, list[float]]
    seconds: float


class Clock:
    """Flushes caches and times one call on a device.

    Args:
        device: `cpu` or `cuda`.
        working_bytes: inputs, weights and outputs of a call; far more than the CPU's cache flush it themselves.
    """

    def __init__(self, device: str, working_bytes: int):
        self.cuda = device == "cuda"
        self._buffer: torch.Tensor | None = None
        if self.cuda:
            size = 2 * torch.cuda.get_device_properties(0).L2_cache_size
            self._buffer = torch.empty(size // 4, dtype=torch.int32, device="cuda")
            self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        elif working_bytes < 4 * last_level_cache_bytes():
            size = min(2 * last_level_cache_bytes(), MAX_FLUSH_BYTES)
            self._buffer = torch.zeros(size // 4, dtype=torch.int32)

    def call_ms(self, arm: Arm) -> float:
        """Milliseconds of one call with cold caches."""
        if self.cuda:
            assert self._buffer is not None
            self._buffer.zero_()
            torch.cuda.synchronize()
            self._start.record()
            result = arm()
            self._end.record()
            torch.cuda.synchronize()
            elapsed = self._start.elapsed_time(self._end)
        else:
            if self._buffer is not None:
                self._buffer.max()  # reads it all on all cores, as the call will
            start = time.perf_counter()
            result = arm()
            elapsed = (time.perf_counter() - start) * 1e3
        del result  # only now: freeing is not part of the call
        return max(elapsed, 1e-6)


def measure(
    arms: Mapping[str, Arm],
    clock: Clock,
    *,
    warmup_s: float,
    limit_s: float,
    max_rounds: int,
    early: tuple[str, str] | None = None,
) -> Samples:
    """Rounds until there are enough or the time is over, at least `MIN_ROUNDS`.

    Args:
        arms: what to call, by name.
        clock: the device's.
        warmup_s: each arm is called for so long first, at least twice.
        limit_s: start no round after so many seconds, once there are enough.
        max_rounds: enough.
        early: names of two arms; stop as soon as their ratio is settled.

    Raises:
        Whatever an arm raises.
    """
    begin = time.perf_counter()
    with torch.no_grad():
        for arm in arms.values():
            end, count = time.perf_counter() + warmup_s, 0
            while count < 2 or time.perf_counter() < end:
                arm()
                count += 1
                if clock.cuda:
                    torch.cuda.synchronize()
        ms: dict[str, list[float]] = {name: [] for name in arms}
        order = list(arms)
        gc.collect()
        gc.disable()
        try:
            began = time.perf_counter()
            rounds = 0
            while rounds < max_rounds and (rounds < MIN_ROUNDS or time.perf_counter() - began < limit_s):
                random.shuffle(order)
                for name in order:
                    ms[name].append(clock.call_ms(arms[name]))
                rounds += 1
                enough = rounds >= 2 * MIN_ROUNDS and rounds % MIN_ROUNDS == 0
                if early and enough and settled(ms[early[0]], ms[early[1]], SETTLED):
                    break
        finally:
            gc.enable()
    return Samples(ms, time.perf_counter() - begin)


def last_level_cache_bytes() -> int:
    """Size of this CPU's largest cache; 32 MiB where it is not told."""
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
