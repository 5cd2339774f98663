"""CUDA C++ to machine code without a GPU: several architectures, what the compiler says, and a cache that can be trusted."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dvk import cuda_toolkit
from dvk.errors import MachineError
from dvk.harness.toolchain import nvrtc
from dvk.harness.toolchain.nvrtc import CompileError, compile_cuda

pytestmark = pytest.mark.skipif(
    cuda_toolkit.nvrtc() is None, reason="pip install nvidia-cuda-nvrtc"
)

SOURCE = """
extern "C" __global__ void scale(const float* x, float* y) { y[threadIdx.x] = 2.0f * x[threadIdx.x]; }
extern "C" __global__ void turn(float* x) {
  __shared__ float s[256];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[255 - threadIdx.x];
}
"""


def test_one_text_for_several_architectures(tmp_path: Path) -> None:
    made = compile_cuda(SOURCE, ("sm_80", "sm_90", "sm_90a", "compute_90"), folder=tmp_path)
    assert list(made) == ["sm_80", "sm_90", "sm_90a", "compute_90"]
    for arch in ("sm_80", "sm_90", "sm_90a"):
        module = made[arch]
        assert (
            module.arch == arch
            and module.image.startswith(b"\x7fELF")
            and not module.cached
            and module.seconds > 0
        )
        assert set(module.kernels) == {"scale", "turn"}
        assert (
            module.kernels["turn"]["shared_bytes"] >= 1024
            and module.kernels["scale"]["shared_bytes"] == 0
        )
        assert (
            4 <= module.kernels["scale"]["registers"] <= 64
            and module.kernels["scale"]["spill_bytes"] == 0
        )
    assert made["sm_80"].image != made["sm_90"].image
    ptx = made["compute_90"]
    assert b".target sm_90" in ptx.image and b".entry scale" in ptx.image and ptx.kernels == {}


def test_spilled_registers_are_reported(tmp_path: Path) -> None:
    text = """
    extern "C" __global__ void __launch_bounds__(1024) many(const float* x, float* y) {
      float v[96];
      for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];
      for (int k = 1; k < 96; ++k) {
        #pragma unroll
        for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i + k) % 96] + x[k];
      }
      for (int i = 0; i < 96; ++i) y[i * 1024 + threadIdx.x] = v[i];
    }
    """
    kernel = compile_cuda(text, ("sm_90",), folder=tmp_path)["sm_90"].kernels["many"]
    assert kernel["spill_bytes"] > 0 and 0 < kernel["registers"] <= 64


def test_errors_are_reported_with_their_line(tmp_path: Path) -> None:
    text = SOURCE.replace("2.0f * x", "2.0f * missing")
    with pytest.raises(CompileError) as caught:
        compile_cuda(text, ("sm_90",), folder=tmp_path, name="mine.cu")
    said = str(caught.value)
    assert (
        said.startswith('mine.cu(2): error: identifier "missing" is undefined')
        and "missing[threadIdx.x]" in said
    )
    assert len(said) <= len(caught.value.log) and not list(tmp_path.rglob("*"))
    with pytest.raises(CompileError, match="too much shared data"):
        compile_cuda(SOURCE.replace("s[256]", "s[65536]"), ("sm_90",), folder=tmp_path)
    with pytest.raises(MachineError) as refused:
        compile_cuda(SOURCE, ("sm_12",), folder=tmp_path)
    assert "sm_12" in refused.value.message and "sm_90" in refused.value.hint


def test_the_second_build_is_cached_and_a_damaged_entry_is_rebuilt(tmp_path: Path) -> None:
    first = compile_cuda(SOURCE, ("sm_90",), folder=tmp_path)["sm_90"]
    again = compile_cuda(SOURCE, ("sm_90",), folder=tmp_path)["sm_90"]
    assert (
        again.cached
        and again.seconds == 0
        and (again.image, again.kernels) == (first.image, first.kernels)
    )
    assert not compile_cuda(SOURCE, ("sm_90",), options=("--fmad=false",), folder=tmp_path)[
        "sm_90"
    ].cached
    assert not compile_cuda(SOURCE + "\n", ("sm_90",), folder=tmp_path)["sm_90"].cached
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) == 3
    for path in files:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    fresh = compile_cuda(SOURCE, ("sm_90",), folder=tmp_path)["sm_90"]
    assert not fresh.cached and fresh.image == first.image
    for path in files:
        path.write_bytes(path.read_bytes()[:20])
    assert not compile_cuda(SOURCE, ("sm_90",), folder=tmp_path)["sm_90"].cached


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for _ in range(2):
        assert not compile_cuda(SOURCE, ("sm_90",), folder=blocked / "below")["sm_90"].cached


def test_cuda_headers_are_found(tmp_path: Path) -> None:
    if not cuda_toolkit.include_folders():
        pytest.skip("no CUDA headers here")
    text = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void halve(__half* x, __nv_bfloat16* y) {
      x[0] = __float2half(0.5f * __half2float(x[0]));
      y[0] = __float2bfloat16(0.5f * __bfloat162float(y[0]));
    }
    """
    assert "halve" in compile_cuda(text, ("sm_90",), folder=tmp_path)["sm_90"].kernels


def test_many_threads_may_ask_at_once(tmp_path: Path) -> None:
    images: list[bytes] = []
    texts = [SOURCE.replace("2.0f", f"{n % 3}.5f") for n in range(12)]

    def work(text: str) -> None:
        images.append(compile_cuda(text, ("sm_80", "sm_90"), folder=tmp_path)["sm_90"].image)

    threads = [threading.Thread(target=work, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(images) == 12 and len(set(images)) == 3
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) == 6


def test_a_missing_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cuda_toolkit, "_nvrtc_libraries", lambda major: iter(()))
    assert cuda_toolkit.nvrtc() is None
    with pytest.raises(MachineError) as caught:
        nvrtc.NvrtcLibrary()
    assert "pip install nvidia-cuda-nvrtc" in caught.value.hint
    (tmp_path / "libnvrtc.so.99").write_bytes(b"not a library")
    with pytest.raises(MachineError, match="cannot be loaded"):
        nvrtc.NvrtcLibrary(tmp_path / "libnvrtc.so.99")
