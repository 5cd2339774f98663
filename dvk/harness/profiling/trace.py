"""Kernels in a trace of torch.profiler (Chrome's format): names, times, launch shapes, and origins. Pure.

A kernel is the candidate's if its exact name is in the launch record, and it was not launched inside an operator of PyTorch, whose kernels
may have any name. Without a launch record the second condition decides alone, and a CUDA graph's kernels are not the candidate's: their
origin is unknown.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dvk.harness.profiling.occupancy import MultiprocessorLimits
from dvk.harness.profiling.record import Origin

LIBRARY_OPS = ("aten::", "Torch-Compiled Region", "CompiledFunction", "inductor")
"""Name prefixes of operators whose kernels are PyTorch's: its own, and those its compiler wrote."""
COPIES = ("gpu_memcpy", "gpu_memset")


@dataclass(frozen=True)
class KernelExecution:
    """One kernel execution."""

    name: str
    origin: Origin
    start_us: float
    device_us: float
    threads: int | None = None
    blocks: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None


def launches(
    events: Iterable[dict[str, Any]], own: Collection[str] | None
) -> list[KernelExecution]:
    """Return every execution on the device, by start.

    Args:
        events: `traceEvents` of the trace.
        own: names of the candidate's kernels in its launch record; None without one.
    """
    known = [
        event
        for event in events
        if event.get("ph") == "X" and isinstance(event.get("args", {}), dict)
    ]
    inside = _Inside(
        event
        for event in known
        if event.get("cat") == "cpu_op" and str(event["name"]).startswith(LIBRARY_OPS)
    )
    callers = {
        event["args"]["correlation"]: event
        for event in known
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
        and "correlation" in event.get("args", {})
    }
    result = []
    for event in known:
        kind, args = event.get("cat"), event.get("args", {})
        if kind != "kernel" and kind not in COPIES:
            continue
        caller = callers.get(args.get("correlation"))
        name = str(event["name"])
        ours = (
            name in own
            if own is not None
            else caller is None or "GraphLaunch" not in str(caller["name"])
        )
        if caller is not None and inside(caller):
            ours = False
        origin: Origin = "copy" if kind in COPIES else "own" if ours else "library"
        result.append(
            KernelExecution(
                name=name,
                origin=origin,
                start_us=float(event["ts"]),
                device_us=float(event.get("dur", 0.0)),
                threads=_product(args.get("block")),
                blocks=_product(args.get("grid")),
                registers=_whole(args.get("registers per thread")),
                shared_bytes=_whole(args.get("shared memory")),
            )
        )
    return sorted(result, key=lambda launch: launch.start_us)


def busy_us(executions: Sequence[KernelExecution]) -> float:
    """Return microseconds in which at least one of them ran; `found` is sorted by start."""
    total, end = 0.0, -math.inf
    for launch in executions:
        stop = launch.start_us + launch.device_us
        total += max(0.0, stop - max(end, launch.start_us))
        end = max(end, stop)
    return total


def device_limits(properties: Sequence[dict[str, Any]]) -> MultiprocessorLimits | None:
    """Return limits of the first device of a trace's `deviceProperties`; None if they are missing."""
    try:
        first = properties[0]
        return MultiprocessorLimits(
            capability=(int(first["computeMajor"]), int(first["computeMinor"])),
            num_multiprocessors=int(first["numSms"]),
            threads=int(first["maxThreadsPerMultiprocessor"]),
            registers=int(first["regsPerMultiprocessor"]),
            shared_bytes=int(first["sharedMemPerMultiprocessor"]),
        )
    except (IndexError, KeyError, TypeError, ValueError):
        return None


class _Inside:
    """Whether a moment of a thread is inside one of the operators."""

    def __init__(self, operators: Iterable[dict[str, Any]]):
        self._spans: dict[Any, list[tuple[float, float]]] = defaultdict(list)
        for event in sorted(operators, key=lambda event: float(event["ts"])):
            start, stop = float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0.0))
            spans = self._spans[event.get("tid")]
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(spans[-1][1], stop))
            else:
                spans.append((start, stop))

    def __call__(self, event: dict[str, Any]) -> bool:
        spans, moment = self._spans.get(event.get("tid"), []), float(event["ts"])
        place = bisect_right(spans, (moment, math.inf)) - 1
        return place >= 0 and spans[place][0] <= moment <= spans[place][1]


def _product(sizes: Any) -> int | None:
    return math.prod(int(size) for size in sizes) if isinstance(sizes, list) and sizes else None


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None
