"""Profile of a call with torch.profiler in the process that makes the call. Child side.

On a GPU: every kernel's time, launch shape and registers, from the driver's records (CUPTI). On a CPU: time inside PyTorch's operators, and
the rest. There `own code` is a call's time outside the operators, in processes that have loaded native code from outside Python's and the
system's folders; it includes Python's share, so for calls of some microseconds it is an upper bound.

Operators that only make or describe tensors (`BOOKKEEPING`) compute nothing and count as host time.
"""

from __future__ import annotations

import contextlib
import json
import os
import site
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from dvk import aten
from dvk.harness.profiling.occupancy import MultiprocessorLimits, occupancy
from dvk.harness.profiling.record import KernelTime, Profile
from dvk.harness.profiling.trace import KernelExecution, busy_us, device_limits, launches
from dvk.records import Device

WARMUP = 3
MAX_CALLS, MIN_CALLS = 20, 3
BUDGET_S = 0.5
"""Longest time for calls under the profiler, and for those before."""
OWN_CODE = "own code"

BOOKKEEPING = frozenset(
    "aten::" + name
    for name in aten.of("view", "reshape", "cut")
    | set(
        "contiguous empty empty_like empty_strided is_nonzero item new_empty new_empty_strided ravel reshape_as resize_ resolve_conj "
        "resolve_neg result_type set_ to view_as_real _local_scalar_dense _nested_tensor_from_mask _reshape_alias _reshape_copy".split()
    )
)
"""Operators without elementwise work; operators that they call (`clone`, `copy_`) are counted separately."""

Compiled = Mapping[str, Mapping[str, int]]
"""By kernel: registers, spill_bytes, shared_bytes, as in `Verdict.compiled`."""


def profile_call(
    fn: Callable[[], object],
    device: Device,
    own_kernels: Collection[str] | None = None,
    compiled: Compiled | None = None,
    num_bytes: float | None = None,
    flops: float | None = None,
) -> Profile:
    """Profile `fn()`, which is called some 10 to 45 times. A process's first profile on a GPU takes 2 to 8 s.

    Args:
        fn: one call of the module, alike each time.
        device: its device.
        own_kernels: names of the candidate's compiled functions by the launch record, mangled or not. None: all kernels not
        launched by PyTorch count as own, except in a CUDA graph, whose launches carry no mark of their origin.
        compiled: the compiler's figures, if known; Triton's are also read from its launcher.
        num_bytes: bytes of inputs, weights and outputs, once each.
        flops: floating-point operations of the reference per call.

    Raises:
        Whatever `fn` raises.
    """
    for _ in range(WARMUP):
        fn()
    facts = {"num_bytes": num_bytes, "flops": flops}
    if device == "cpu":
        return _on_cpu(fn, facts)
    return _on_cuda(
        fn,
        None if own_kernels is None else {_plain(name) for name in own_kernels},
        compiled or {},
        facts,
    )


# ---------------------------------------------------------------- GPU


def _on_cuda(
    fn: Callable[[], object], own: set[str] | None, compiled: Compiled, facts: dict[str, Any]
) -> Profile:
    torch.cuda.synchronize()
    walls = _walls(fn, torch.cuda.synchronize)
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with (
        profile(activities=both, record_shapes=True, with_flops=True, acc_events=True) as profiler,
        _triton() as seen,
    ):
        num_calls = len(_walls(fn, torch.cuda.synchronize))
    trace = _trace(profiler)
    executions = launches(trace["traceEvents"], own)
    limits = device_limits(trace.get("deviceProperties", []))
    total = sum(launch.device_us for launch in executions)
    flops = _flops_by_kernel(profiler)
    groups: dict[tuple[str, str], list[KernelExecution]] = defaultdict(list)
    for launch in executions:
        groups[launch.name, launch.origin].append(launch)
    kernels = []
    for (name, origin), group in groups.items():
        figures: dict[str, float | None] = (
            {**seen.get(name, {}), **compiled.get(name, {})} if origin == "own" else {}
        )
        estimate = flops.get(name) if origin == "library" else None
        kernels.append(_kernel_time(group, total, num_calls, limits, figures, estimate))
    wall = median(walls)
    busy = busy_us(executions) / num_calls / 1e3
    return Profile(
        device="cuda",
        num_calls=num_calls,
        wall_ms=wall,
        device_ms=total / num_calls / 1e3,
        host_ms=max(0.0, wall - busy),
        coverage=sum(kernel.share for kernel in kernels if kernel.origin == "own")
        if total
        else None,
        kernels=_ordered(kernels),
        num_multiprocessors=limits.num_multiprocessors if limits else None,
        **facts,
    )


def _kernel_time(
    group: Sequence[KernelExecution],
    total_us: float,
    num_calls: int,
    limits: MultiprocessorLimits | None,
    figures: Mapping[str, float | None],
    flops: float | None,
) -> KernelTime:
    """Return the time of one kernel from its launches; `figures` and `flops` as far as they are known, of all calls."""
    largest = max(group, key=lambda launch: launch.blocks or 0)
    shape = {
        "threads": largest.threads,
        "blocks": largest.blocks,
        "registers": largest.registers,
        "shared_bytes": largest.shared_bytes,
    }
    filled = (
        occupancy(limits, *shape.values()) if limits and None not in shape.values() else None  # type: ignore[arg-type]
    )
    used_us = sum(launch.device_us for launch in group)
    return KernelTime(
        name=group[0].name,
        origin=group[0].origin,
        count=len(group) / num_calls,
        device_ms=used_us / num_calls / 1e3,
        share=used_us / total_us if total_us else 0.0,
        **{
            key: value if value is not None else _whole(figures.get(key))
            for key, value in shape.items()
        },
        spill_bytes=_whole(figures.get("spill_bytes")),
        occupancy=filled.share if filled else None,
        limiter=filled.limiter if filled else None,
        waves=filled.waves if filled else None,
        num_bytes=_a_call(figures.get("num_bytes"), num_calls),
        flops=_a_call(flops, num_calls),
    )


def _trace(profiler: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dvk-profile-") as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        return result


def _flops_by_kernel(profiler: Any) -> dict[str, float]:
    """Assign PyTorch's estimates for its operators to the longest kernel of each."""
    result: dict[str, float] = defaultdict(float)
    for event in profiler.events():
        if event.flops and event.kernels:
            result[max(event.kernels, key=lambda kernel: kernel.duration).name] += event.flops
    return result


@contextlib.contextmanager
def _triton() -> Iterator[dict[str, dict[str, float]]]:
    """Record Triton's launches in the body: the compiler's figures by kernel, and the bytes of its tensor arguments."""
    found: dict[str, dict[str, float]] = {}
    function = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    if function is None:
        yield found
        return
    run = function.run

    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = run(self, *args, **kwargs)
        with contextlib.suppress(
            Exception
        ):  # another version of Triton reports less; a launch must not fail for that
            figures = found.setdefault(kernel.name, {"num_bytes": 0.0})
            tensors = {
                a.data_ptr(): a.numel() * a.element_size()
                for a in (*args, *kwargs.values())
                if isinstance(a, torch.Tensor)
            }
            figures["num_bytes"] += sum(tensors.values())
            figures |= {
                "registers": kernel.n_regs,
                "spill_bytes": kernel.n_spills,
                "shared_bytes": kernel.metadata.shared,
            }
        return kernel

    function.run = recording
    try:
        yield found
    finally:
        function.run = run


def _plain(name: str) -> str:
    """Return a compiled function's name as the profiler writes it."""
    try:
        return str(torch._C._demangle(name)) if name.startswith("_Z") else name
    except (AttributeError, RuntimeError):
        return name


# ---------------------------------------------------------------- CPU


def _on_cpu(fn: Callable[[], object], facts: dict[str, Any]) -> Profile:
    wall = median(_walls(fn, lambda: None))
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True, acc_events=True
    ) as profiler:
        profiled = _walls(fn, lambda: None)
    num_calls = len(profiled)
    operators: dict[str, list[float]] = defaultdict(
        lambda: [0.0, 0.0, 0.0]
    )  # calls, milliseconds, flops
    bookkeeping = 0.0
    for event in profiler.events():
        ms = event.self_cpu_time_total / 1e3
        if event.name in BOOKKEEPING:
            bookkeeping += ms
        elif event.name.startswith("aten::"):
            sums = operators[event.name]
            sums[0], sums[1], sums[2] = sums[0] + 1, sums[1] + ms, sums[2] + (event.flops or 0)
    computing = sum(ms for _, ms, _ in operators.values())
    own = max(0.0, sum(profiled) - computing - bookkeeping) if _own_libraries() else 0.0
    total = computing + own
    scale = wall / sum(
        profiled
    )  # remaining share of all calls' times without the profiler's overhead
    kernels = [
        KernelTime(
            name=name,
            origin="library",
            count=count / num_calls,
            device_ms=ms * scale,
            share=ms / total if total else 0.0,
            flops=_a_call(flops, num_calls),
        )
        for name, (count, ms, flops) in operators.items()
    ]
    if own:
        kernels.append(
            KernelTime(
                name=OWN_CODE, origin="own", count=1, device_ms=own * scale, share=own / total
            )
        )
    return Profile(
        device="cpu",
        num_calls=num_calls,
        wall_ms=wall,
        device_ms=total * scale,
        host_ms=max(0.0, wall - total * scale),
        coverage=own / total if total else None,
        kernels=_ordered(kernels),
        **facts,
    )


def _own_libraries() -> list[str]:
    """Return files with executable pages in this process that belong neither to Python, nor its packages, nor the system."""
    brought = [
        sys.prefix,
        sys.base_prefix,
        *site.getsitepackages(),
        *sysconfig.get_paths().values(),
        os.path.dirname(torch.__file__),
    ]
    known = tuple(
        {os.path.realpath(path) + "/" for path in brought}
        | {"/usr/", "/lib/", "/lib64/", "/opt/", "/nix/"}
    )
    result = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if (
            len(words) == 6
            and "x" in words[1]
            and words[5].startswith("/")
            and not words[5].startswith(known)
        ):
            result.add(words[5])
    return sorted(result)


# ---------------------------------------------------------------- both


def _walls(fn: Callable[[], object], settle: Callable[[], None]) -> list[float]:
    """Return milliseconds of single calls."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < MIN_CALLS or (
        len(times) < MAX_CALLS and time.perf_counter() - began < BUDGET_S
    ):
        settle()
        start = time.perf_counter()
        fn()
        settle()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _ordered(kernels: list[KernelTime]) -> tuple[KernelTime, ...]:
    return tuple(sorted(kernels, key=lambda kernel: -kernel.device_ms))


def _a_call(total: float | None, num_calls: int) -> float | None:
    return total / num_calls if total else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
