"""Profiles separate own code, libraries and the host, on a real call and a real GPU's trace."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.config import Config
from dvk.harness.profiling import profile as profiling
from dvk.harness.profiling.feedback import MAX_LINES, feedback
from dvk.harness.profiling.occupancy import MultiprocessorLimits, occupancy
from dvk.harness.profiling.profile import profile_call
from dvk.harness.profiling.record import KernelTime, Profile, against
from dvk.harness.profiling.trace import KernelExecution, busy_us, device_limits, launches
from dvk.harness.timing.roofline import Ceilings
from dvk.sandbox import Message, call
from tests.python_path import python_path

FILES = Path(__file__).parent / "files"
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
H100 = MultiprocessorLimits(
    capability=(9, 0), num_multiprocessors=132, threads=2048, registers=65536, shared_bytes=233472
)


# ---------------------------------------------------------------- CPU

WORK = """extern "C" void work(const float* a, float* b, long n) {
    for (int again = 0; again < 40; again++)
        for (long i = 0; i < n; i++) b[i] = a[i] * 1.0001f + b[i] * 0.5f;
}"""


@pytest.fixture(scope="module")
def own_work(tmp_path_factory: pytest.TempPathFactory) -> Callable[[torch.Tensor], torch.Tensor]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "work.cpp").write_text(WORK)
    subprocess.run(
        ["g++", "-O3", "-shared", "-fPIC", "-o", str(folder / "work.so"), str(folder / "work.cpp")],
        check=True,
    )
    function = ctypes.CDLL(str(folder / "work.so")).work
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        function(x.data_ptr(), y.data_ptr(), x.numel())
        return y

    return call


def test_library_work_is_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        profiling, "_own_libraries", list
    )  # whatever other tests of this process have loaded
    x = torch.randn(256, 256)
    found = profile_call(
        lambda: torch.relu(x @ x).t().contiguous(), "cpu", num_bytes=3.0, flops=2.0 * 256**3
    )
    assert found.coverage == 0 and found.device == "cpu" and found.num_bytes == 3.0
    names = {kernel.name: kernel for kernel in found.kernels}
    assert (
        names["aten::mm"].flops == 2 * 256**3
        and names["aten::mm"].origin == "library"
        and names["aten::mm"].count == 1
    )
    assert "aten::empty" not in names and "aten::t" not in names and "aten::clamp_min" in names
    assert sum(kernel.share for kernel in found.kernels) == pytest.approx(1.0)
    assert found.device_ms + found.host_ms == pytest.approx(found.wall_ms)
    assert list(found.kernels) == sorted(found.kernels, key=lambda kernel: -kernel.device_ms)


@needs_compiler
def test_own_code_is_what_libraries_did_not_do(
    own_work: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x, small = torch.randn(100_000), torch.randn(50, 50)
    alone = profile_call(lambda: own_work(x), "cpu")
    assert alone.coverage is not None and alone.coverage > 0.95 and alone.kernels[0].origin == "own"
    beside = profile_call(lambda: (own_work(small), torch.sin(x.repeat(8))), "cpu")
    assert beside.coverage is not None and beside.coverage < 0.3
    assert {kernel.origin for kernel in beside.kernels} == {"own", "library"}


@pytest.mark.slow
def test_only_code_from_elsewhere_is_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fresh process, because this one has loaded unknown libraries."""
    monkeypatch.setenv("PYTHONPATH", python_path())
    mine = str(tmp_path / "mine.so")
    answer = call("tests.harness.profile_child:looks", {"path": mine}, Config().limits)
    assert answer == Message({"before": [], "coverage": 0.0, "after": [mine]})


def test_what_the_call_raises_is_raised() -> None:
    def bad() -> None:
        raise RuntimeError("from the call")

    with pytest.raises(RuntimeError, match="from the call"):
        profile_call(bad, "cpu")


def test_a_call_that_computes_nothing() -> None:
    found = profile_call(lambda: None, "cpu")
    assert found.kernels == () or found.kernels[0].name == "own code"
    assert "a call takes" in feedback(found)


# ---------------------------------------------------------------- records and ceilings


def kernel(**more: Any) -> KernelTime:
    return KernelTime.model_validate(
        {"name": "k", "origin": "own", "count": 1, "device_ms": 1.0, "share": 1.0, **more}
    )


def test_profiles_are_set_against_the_machine() -> None:
    ceilings = Ceilings(device="cuda", copy_gbps=2000, gflops={"fp32": 50_000})
    raw = Profile(
        device="cuda",
        num_calls=10,
        wall_ms=1.1,
        device_ms=1.0,
        host_ms=0.1,
        coverage=1.0,
        num_bytes=1e9,
        flops=1e10,
        kernels=(kernel(num_bytes=1e9, flops=1e10), kernel(name="l", origin="library")),
    )
    found = against(raw, ceilings)
    assert found.floor_ms == pytest.approx(0.5)
    assert found.kernels[0].gbps == pytest.approx(1000) and found.kernels[
        0
    ].memory_share == pytest.approx(0.5)
    assert found.kernels[0].gflops == pytest.approx(10_000) and found.kernels[
        0
    ].compute_share == pytest.approx(0.2)
    assert found.kernels[1].gbps is None
    blind = against(raw, None)
    assert (
        blind.kernels[0].gbps == pytest.approx(1000)
        and blind.kernels[0].memory_share is None
        and blind.floor_ms is None
    )
    assert Profile.model_validate(json.loads(json.dumps(found.model_dump(mode="json")))) == found


# ---------------------------------------------------------------- feedback


def test_feedback_leads_with_what_matters_and_ends() -> None:
    many = [
        kernel(
            name=f"part_{n}",
            device_ms=0.1,
            share=0.05,
            threads=128,
            blocks=40,
            registers=64,
            shared_bytes=0,
            occupancy=0.25,
            limiter="registers",
            waves=0.1,
            spill_bytes=48 if n == 0 else 0,
            counters={"dram_percent": 12.345, "stall": "barrier"},
        )
        for n in range(10)
    ]
    name = "sm90_xmma_gemm_f32f32\n" + "x" * 100
    gemm = kernel(
        name=name, origin="library", device_ms=1.0, share=0.5, gflops=30_000.0, compute_share=0.6
    )
    found = Profile(
        device="cuda",
        num_calls=10,
        wall_ms=5.0,
        device_ms=2.0,
        host_ms=3.0,
        coverage=0.5,
        floor_ms=0.5,
        kernels=(gemm, *many),
        num_multiprocessors=132,
    )
    lines = feedback(found).splitlines()
    assert len(lines) <= MAX_LINES
    assert "5 ms" in lines[0] and "50%" in lines[0] and "500 µs" in lines[0]
    assert "spill" in lines[1] and "part_0" in lines[1] and "48" in lines[1]
    assert "11 launches" in lines[2] and "sm90" in lines[3]
    assert (
        lines[4].startswith("sm90_xmma_gemm_f32f32?xxx")
        and "…" in lines[4]
        and "60% of the peak" in lines[4]
    )
    assert (
        "92 of 132 multiprocessors have no block" in lines[6] and "limited by registers" in lines[6]
    )
    assert "dram_percent 12.3, stall barrier" in lines[7]
    assert lines[-1].endswith("together") and "more take" in lines[-1]


def test_feedback_of_a_good_kernel_is_short() -> None:
    shape = {
        "threads": 256,
        "blocks": 10_000,
        "registers": 32,
        "shared_bytes": 0,
        "occupancy": 1.0,
        "waves": 9.5,
        "spill_bytes": 0,
    }
    found = Profile(
        device="cuda",
        num_calls=10,
        wall_ms=1.02,
        device_ms=1.0,
        host_ms=0.02,
        coverage=1.0,
        num_multiprocessors=132,
        kernels=(kernel(gbps=2900.0, memory_share=0.93, **shape),),
    )
    lines = feedback(found).splitlines()
    assert len(lines) == 3 and "near the limit" in lines[1] and "100%" in lines[0]


# ---------------------------------------------------------------- occupancy


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "blocks"),
    [
        (4, 41, 4096, 10),
        (4, 61, 24576, 8),
        (4, 156, 49152, 3),
        (8, 92, 131072, 1),
        (8, 64, 49152, 4),
        (1, 53, 4096, 32),
        (2, 54, 49152, 4),
        (1, 168, 0, 12),
        (2, 95, 0, 10),
        (4, 55, 0, 9),
        (8, 38, 32, 6),
        (16, 26, 64, 4),
        (32, 20, 128, 2),
    ],
)
def test_occupancy_is_what_the_driver_said(
    warps: int, registers: int, shared: int, blocks: int
) -> None:
    """cuOccupancyMaxActiveBlocksPerMultiprocessor of matmul and softmax kernels on an H100."""
    found = occupancy(H100, 32 * warps, 264, registers, shared)
    assert (
        found is not None
        and found.share == pytest.approx(blocks * warps / 64)
        and found.waves == pytest.approx(2 / blocks)
    )


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limiter"),
    [
        (1024, 32, 0, None),
        (1024, 33, 0, "registers"),
        (32, 16, 0, "blocks"),
        (128, 16, 232_448, "shared memory"),
        (768, 16, 0, "block size"),
    ],
)
def test_what_keeps_occupancy_down(
    threads: int, registers: int, shared: int, limiter: str | None
) -> None:
    found = occupancy(H100, threads, 264, registers, shared)
    assert found is not None and found.limiter == limiter


def test_what_does_not_fit_has_no_occupancy() -> None:
    assert occupancy(H100, 128, 1, 16, 240_000) is None and occupancy(H100, 1024, 1, 255, 0) is None
    assert occupancy(H100, 0, 1, 16, 0) is None and occupancy(H100, 4096, 1, 16, 0) is None


# ---------------------------------------------------------------- traces

RECORDED = json.loads((FILES / "trace_h100.json").read_text())
"""Two Triton kernels and a matmul, twice, by torch.profiler on an H100."""


def test_a_real_trace_is_read() -> None:
    found = launches(RECORDED["traceEvents"], None)
    assert [(launch.name[:11], launch.origin) for launch in found] == [
        ("add_relu", "own"),
        ("row_softmax", "own"),
        ("sm80_xmma_g", "library"),
    ] * 2
    add, soft, gemm = found[:3]
    assert (add.threads, add.blocks, add.registers, add.shared_bytes) == (128, 32768, 26, 0)
    assert add.device_us == 129.762 and busy_us(found) <= sum(launch.device_us for launch in found)
    assert device_limits(RECORDED["deviceProperties"]) == H100
    for launch, event in ((add, 1.0), (soft, 0.75), (gemm, 0.125)):
        filled = occupancy(
            H100,
            launch.threads or 0,
            launch.blocks or 0,
            launch.registers or 0,
            launch.shared_bytes or 0,
        )
        assert filled is not None and filled.share == event
    assert [
        launch.origin
        for launch in launches(RECORDED["traceEvents"], {"row_softmax", gemm.name})[:3]
    ] == ["library", "own", "library"]


def event(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


def a_kernel(name: str, correlation: int, ts: float = 100.0) -> dict[str, Any]:
    shape = {
        "grid": [4, 2, 1],
        "block": [32, 4, 1],
        "registers per thread": 40,
        "shared memory": 1024,
    }
    return event("kernel", name, ts, 5.0, tid=7, correlation=correlation, **shape)


OPERATORS = [
    event("cpu_op", "aten::linear", 0, 20),
    event("cpu_op", "aten::mm", 5, 10),
    event("cpu_op", "mine::fused", 30, 10),
    event("cpu_op", "Torch-Compiled Region: 0/0", 50, 10),
    event("cpu_op", "aten::relu", 30, 10, tid=2),
    event("cuda_runtime", "cudaLaunchKernel", 8, 1, correlation=1),
    event("cuda_driver", "cuLaunchKernelEx", 22, 1, correlation=2),
    event("cuda_driver", "cuLaunchKernelEx", 35, 1, correlation=3),
    event("cuda_driver", "cuLaunchKernelEx", 55, 1, correlation=4),
    event("cuda_runtime", "cudaGraphLaunch", 70, 1, correlation=5),
    event("cuda_runtime", "cudaMemcpyAsync", 72, 1, correlation=6),
]


def origins(own: set[str] | None) -> dict[str, str]:
    names = {1: "gemm", 2: "mine", 3: "from_my_operator", 4: "triton_poi_0", 5: "graphed"}
    kernels = [a_kernel(name, correlation) for correlation, name in names.items()]
    copy = event("gpu_memcpy", "Memcpy HtoD", 200, 3, tid=7, correlation=6)
    return {
        launch.name: launch.origin
        for launch in launches([*OPERATORS, *kernels, copy, {"ph": "M", "name": "x"}], own)
    }


def test_whose_a_kernel_is() -> None:
    found = origins(None)
    assert found == {
        "gemm": "library",
        "mine": "own",
        "from_my_operator": "own",
        "triton_poi_0": "library",
        "graphed": "library",
        "Memcpy HtoD": "copy",
    }


def test_names_are_compared_whole_and_borrowed_names_do_not_help() -> None:
    found = origins({"mine", "gemm", "graph", "graphed", "from_my", "Memcpy HtoD"})
    assert [name for name, origin in found.items() if origin == "own"] == ["mine", "graphed"]
    assert found["gemm"] == "library" and found["Memcpy HtoD"] == "copy"


def test_overlap_counts_once() -> None:
    def at(start: float, length: float) -> KernelExecution:
        return KernelExecution("k", "own", start, length)

    assert busy_us([at(0, 10), at(5, 10), at(6, 1), at(20, 5)]) == 20
    assert busy_us([]) == 0


def test_limits_that_are_not_reported() -> None:
    assert device_limits([]) is None and device_limits([{"id": 0}]) is None
