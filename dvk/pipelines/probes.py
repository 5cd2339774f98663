"""The child side of `dvk doctor`: each probe tries the operation and answers with the result.

Run through `dvk.sandbox.call`, never in the parent: a broken driver may crash or hang, and a CUDA
context must not be opened in a process that later forks. An answer has `works` and, when false,
`error`: one line for a person.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dvk.sandbox import RequestChannel

CPP_SOURCE = r"""
#include <omp.h>
extern "C" int probe(float* x, long n) {
    int threads = 1;
    #pragma omp parallel
    {
        #pragma omp single
        threads = omp_get_num_threads();
    }
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) x[i] = 2.0f * x[i] + 1.0f;
    return threads;
}
"""


def shut_in(channel: RequestChannel) -> None:
    """Block until the result is read."""
    channel.receive()


def cpp(channel: RequestChannel) -> None:
    """Compile a tiny OpenMP kernel in `folder` with the command `compiler`, load it, run it, check it."""
    request = channel.receive() or {}
    folder, compiler = Path(request["folder"]), list(request["compiler"])
    source, library = folder / "probe.cpp", folder / "probe.so"
    source.write_text(CPP_SOURCE)
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    start = time.perf_counter()
    command = [*compiler, *flags, str(source), "-o", str(library)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:  # $CXX names no program
        channel.send({"works": False, "error": f"{compiler[0]}: {error.strerror}"})
        return
    compile_s = time.perf_counter() - start
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        channel.send(
            {"works": False, "error": next((line for line in lines if "error" in line), lines[-1])}
        )
        return
    values = (ctypes.c_float * 1000)(*range(1000))
    threads = ctypes.CDLL(str(library)).probe(values, ctypes.c_long(1000))
    if list(values) != [2.0 * i + 1.0 for i in range(1000)]:
        channel.send({"works": False, "error": "the compiled kernel computed something else"})
        return
    channel.send({"works": True, "num_threads": threads, "compile_s": round(compile_s, 3)})


def cpu(channel: RequestChannel) -> None:
    """Torch's throughput on all cores: copy, read and write bandwidth over `num_bytes`, matmuls of side `matmul`, operator cost."""
    import torch

    request = channel.receive() or {}
    source = torch.ones(int(request["num_bytes"]) // 4)
    target = torch.empty_like(source)
    copy_s = _least(lambda: target.copy_(source), 9)
    read_s = _least(lambda: source.max(), 9)
    write_s = _least(lambda: target.fill_(2.0), 9)
    small = torch.ones(1)
    facts = {
        "copy_gbps": round(2 * source.nbytes / copy_s / 1e9, 2),
        "read_gbps": round(source.nbytes / read_s / 1e9, 2),
        "write_gbps": round(source.nbytes / write_s / 1e9, 2),
        "gflops": {
            name: _matmul_gflops("cpu", name, int(request["matmul"])) for name in ("fp32", "bf16")
        },
        "launch_us": round(_least(lambda: [small.add_(1) for _ in range(200)], 9) / 200 * 1e6, 3),
    }
    channel.send({"works": True, **facts, "sync_us": facts["launch_us"]})


def _least(work: Callable[[], object], count: int) -> float:
    """Seconds of the quickest of `count` runs, the first two left out: they touch pages and create thread pools."""
    times = []
    for _ in range(count + 2):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[2:])


MATMULS = {
    "fp32": ("float32", False),
    "tf32": ("float32", True),
    "bf16": ("bfloat16", False),
    "fp16": ("float16", False),
}
"""Precision → dtype, and whether TF32 is allowed."""


def _matmul_gflops(device: str, precision: str, side: int) -> float:
    """1e9 floating-point operations a second of a square matmul, the quickest of several, within a second or two."""
    import torch

    dtype, tf32 = MATMULS[precision]
    left, right = (
        torch.randn(side, side, device=device).to(getattr(torch, dtype)) for _ in range(2)
    )
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        times: list[float] = []
        began = time.perf_counter()
        while len(times) < 2 or (len(times) < 12 and time.perf_counter() - began < 1.0):
            times.append(_seconds(lambda: left @ right, device))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return round(2 * side**3 / min(times) / 1e9, 1)


def _seconds(work: Callable[[], object], device: str) -> float:
    """Time of one run, on a GPU between two events."""
    import torch

    if device == "cpu":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def cuda(channel: RequestChannel) -> None:
    """The GPUs that torch sees, its throughput on the first (see `cpu`), and NVRTC."""
    import torch

    request = channel.receive() or {}
    num_bytes = int(request["num_bytes"])
    if torch.version.cuda is None:
        channel.send(
            {
                "works": False,
                "error": f"torch {torch.__version__} is built without CUDA",
                "nvrtc": _nvrtc(),
            }
        )
        return
    if not torch.cuda.is_available():
        error = "torch finds no usable NVIDIA GPU or driver"
        channel.send(
            {"works": False, "error": error, "cuda": torch.version.cuda, "nvrtc": _nvrtc()}
        )
        return
    gpus = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        gpus.append(
            {
                "name": properties.name,
                "memory_bytes": properties.total_memory,
                "capability": f"{properties.major}.{properties.minor}",
                "num_multiprocessors": properties.multi_processor_count,
            }
        )
    source = torch.ones(num_bytes // 4, device="cuda")
    target = torch.empty_like(source)
    copy_s = min(_seconds(lambda: target.copy_(source), "cuda") for _ in range(20))
    read_s = min(_seconds(lambda: source.max(), "cuda") for _ in range(20))
    write_s = min(_seconds(lambda: target.fill_(2.0), "cuda") for _ in range(20))
    channel.send(
        {
            "works": True,
            "gpus": gpus,
            "copy_gbps": round(2 * num_bytes / copy_s / 1e9, 1),
            "read_gbps": round(num_bytes / read_s / 1e9, 1),
            "write_gbps": round(num_bytes / write_s / 1e9, 1),
            "gflops": {
                name: _matmul_gflops("cuda", name, int(request["matmul"])) for name in MATMULS
            },
            **_launches(),
            "cuda": torch.version.cuda,
            "nvrtc": _nvrtc(),
        }
    )


def _launches() -> dict[str, float]:
    """The cost of an empty kernel: microseconds each when many follow, and until the host sees the end of one."""
    import torch

    small = torch.ones(1, device="cuda")

    def many() -> None:
        for _ in range(1000):
            small.add_(1)
        torch.cuda.synchronize()

    def one() -> None:
        small.add_(1)
        torch.cuda.synchronize()

    return {
        "launch_us": round(_least(many, 5) / 1000 * 1e6, 3),
        "sync_us": round(_least(one, 200) * 1e6, 3),
    }


def triton(channel: RequestChannel) -> None:
    """Run a tiny Triton kernel on `device`; on `cpu` the environment has selected Triton's interpreter."""
    device = (channel.receive() or {})["device"]
    try:
        import torch
        import triton
        import triton.language as tl
    except ImportError as error:
        channel.send({"works": False, "error": str(error)})
        return

    @triton.jit
    def double(source, target, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(
            target + offsets, 2 * tl.load(source + offsets, mask=offsets < n), mask=offsets < n
        )

    start = time.perf_counter()
    source = torch.arange(1000, dtype=torch.float32, device=device)
    target = torch.zeros_like(source)
    try:
        double[(triton.cdiv(1000, 256),)](source, target, 1000, BLOCK=256)
        right = bool(torch.equal(target, 2 * source))
    except Exception as error:  # noqa: BLE001 - whatever a broken installation raises is the finding
        lines = str(error).strip().splitlines() or [type(error).__name__]
        channel.send({"works": False, "error": f"{type(error).__name__}: {lines[-1]}"})
        return
    if not right:
        channel.send({"works": False, "error": "the kernel computed something else"})
        return
    channel.send({"works": True, "compile_s": round(time.perf_counter() - start, 3)})


def _nvrtc() -> str | None:
    """Version of the runtime compiler, None when none can be loaded."""
    libraries = [
        path
        for entry in sys.path
        if entry
        for path in Path(entry).glob("nvidia/*/lib/libnvrtc.so.*")
    ]
    roots = [os.environ.get("CUDA_HOME"), _toolkit(), "/usr/local/cuda"]
    libraries += [path for root in roots if root for path in Path(root).glob("lib64/libnvrtc.so*")]
    names = [str(path) for path in libraries if "builtins" not in path.name]
    for name in [*names, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0:
            return f"{major.value}.{minor.value}"
    return None


def _toolkit() -> str | None:
    """The folder above `bin/nvcc`, also where a wrapper script on PATH names it."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return None
    path = Path(nvcc).resolve()
    if (path.parent.parent / "lib64").is_dir():
        return str(path.parent.parent)
    named = re.search(r"(/\S+)/bin/nvcc", path.read_bytes()[:500].decode("utf-8", "replace"))
    return named.group(1) if named else None
