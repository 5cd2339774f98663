"""Run rendered CUDA on the CPU: g++ compiles the text under a shim, with a block's threads as fibers that take turns.

Every `__syncthreads` and shuffle switches to the next thread. A turn must bring all threads to the same call: a kernel in which one thread
skips a barrier that another reaches is reported as an error. C++ replaces fp16 conversions, which are PTX in the text; other GPU-specific
functions (its own exp, its NaN-keeping max) are tested on a GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from dvk.composer.codegen.cuda.scalar import PRELUDE
from dvk.composer.codegen.cuda.writer import CudaFunction

_folder = tempfile.TemporaryDirectory()

SHIM = r"""
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <utility>
#include <vector>
using std::min;
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(n)
struct Dim { unsigned x; };
static Dim threadIdx, blockIdx;

namespace emulator {
constexpr size_t STACK = 1 << 17;
static ucontext_t scheduler;
static std::vector<ucontext_t> fibers;
static std::vector<char> stacks, ended;
static std::vector<int> waits;
static std::vector<double> slots;
static std::function<void()> body;
static void enter() {
  body();
  ended[threadIdx.x] = 1;
}
static void turn(int what) {
  waits[threadIdx.x] = what;
  const unsigned me = threadIdx.x;
  swapcontext(&fibers[me], &scheduler);
}
static void block(unsigned threads) {
  fibers.resize(threads);
  stacks.resize(threads * STACK);
  ended.assign(threads, 0);
  waits.assign(threads, 0);
  slots.resize(threads);
  for (unsigned i = 0; i < threads; ++i) {
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = stacks.data() + i * STACK;
    fibers[i].uc_stack.ss_size = STACK;
    fibers[i].uc_link = &scheduler;
    makecontext(&fibers[i], enter, 0);
  }
  while (true) {
    for (unsigned i = 0; i < threads; ++i) {
      threadIdx.x = i;
      swapcontext(&scheduler, &fibers[i]);
    }
    for (unsigned i = 1; i < threads; ++i)
      if (ended[i] != ended[0] || (!ended[i] && waits[i] != waits[0])) {
        fprintf(stderr, "threads 0 and %u of block %u wait at different places\n", i, blockIdx.x);
        exit(3);
      }
    if (ended[0]) return;
  }
}
static void grid(unsigned blocks, unsigned threads, bool together, std::function<void()> kernel) {
  body = kernel;
  for (unsigned b = 0; b < blocks; ++b) {
    blockIdx.x = b;
    if (together) block(threads);
    else for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel();
  }
}
template <class... A, size_t... I> void call(void (*f)(A...), void** a, std::index_sequence<I...>) { f((A)a[I]...); }
template <class... A> void run(void (*f)(A...), void** a, unsigned blocks, unsigned threads, bool together) {
  grid(blocks, threads, together, [=] { call(f, a, std::index_sequence_for<A...>()); });
}
}

static void __syncthreads() { emulator::turn(1); }
template <class T> static T __shfl_xor_sync(unsigned, T x, int step) {
  const unsigned me = threadIdx.x;
  memcpy(&emulator::slots[me], &x, sizeof(T));
  emulator::turn(100 + step);
  T y;
  memcpy(&y, &emulator::slots[me ^ step], sizeof(T));
  emulator::turn(200 + step);
  return y;
}
template <class A, class B> static A bits(B x) { A y; memcpy(&y, &x, sizeof(A)); return y; }
static float __uint_as_float(unsigned x) { return bits<float>(x); }
static float __int_as_float(int x) { return bits<float>(x); }
static int __float_as_int(float x) { return bits<int>(x); }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
static unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static double __longlong_as_double(long long x) { return bits<double>(x); }
static float __fdividef(float x, float y) { return x / y; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
"""
HALVES = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));': "y = (float)bits<_Float16>(x.bits);",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));': "y.bits = bits<unsigned short>((_Float16)x);",
}


def prelude() -> str:
    """The kernels' prelude with fp16 and bf16 conversions in C++."""
    text = PRELUDE
    for asm, plain in HALVES.items():
        assert asm in text, asm
        text = text.replace(asm, plain)
    return text


def library(
    texts: Sequence[str], functions: Sequence[CudaFunction], aligned: bool = True
) -> ctypes.CDLL:
    """One shared object with all kernels; names are unique among them."""
    runs = [
        f'extern "C" void emu_{f.name}(void** a) {{ emulator::run({f.name}, a, {f.grid}, {f.threads}, '
        f"{'true' if '__shared__' in f.text or 'dvk_warp<' in f.text else 'false'}); }}"
        for f in functions
    ]
    return _built([f"#define DVK_ALIGNED {int(aligned)}", SHIM, prelude(), *texts, *runs])


def _built(parts: Sequence[str]) -> ctypes.CDLL:
    """The compiled object of these texts."""
    text = "\n".join(parts)
    path = Path(_folder.name) / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.so"
    flags = [
        "-O1",
        "-std=c++17",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
        "-w",
        "-shared",
        "-fPIC",
    ]
    done = subprocess.run(
        ["g++", "-x", "c++", "-", "-o", str(path), *flags],
        input=text,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(path))


def launcher(loaded: ctypes.CDLL, name: str) -> Callable[..., None]:
    """A function that runs a kernel on CPU tensors."""
    function = getattr(loaded, f"emu_{name}")

    def launch(*tensors: torch.Tensor) -> None:
        function((ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors)))

    return launch


class Recorder:
    """Stands for the module `dvk_record`: a drop-in's CUDA text, compiled for this emulator when it is loaded."""

    def cuda_kernel(self, source: str, name: str, options: Sequence[str]) -> Callable[..., None]:
        """A function that runs a kernel of a drop-in's text with any grid; sizes follow the tensors."""
        text = source
        for asm, plain in HALVES.items():
            text = text.replace(asm, plain)
        kernel = source[source.index('extern "C"') :]
        together = "true" if "__shared__" in kernel or "dvk_warp<" in kernel else "false"
        run = (
            f'extern "C" void emu_{name}(void** a, unsigned blocks, unsigned threads) '
            f"{{ emulator::run({name}, a, blocks, threads, {together}); }}"
        )
        aligned = next(o.rpartition("=")[2] for o in options if "DVK_ALIGNED" in o)
        function = getattr(
            _built([f"#define DVK_ALIGNED {aligned}", SHIM, text, run]), f"emu_{name}"
        )

        def launch(
            grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, given: Sequence[Any]
        ) -> None:
            args = [g if isinstance(g, int) else g.data_ptr() for g in given]
            function((ctypes.c_void_p * len(args))(*args), grid[0], block[0])

        return launch
