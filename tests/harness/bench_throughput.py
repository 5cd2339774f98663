"""Verdicts a second: distinct candidates, each compiled, checked and timed in a fresh process.

    python -m tests.harness.bench_throughput cpp --count 50 --workers 2
    python -m tests.harness.bench_throughput triton --count 200 --workers 16 --device cuda

Not collected by pytest and asserted nowhere: the figure depends on the machine.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
import time
from pathlib import Path

from dvk import tasks
from dvk.config import Config
from dvk.harness import Pool
from dvk.records import Candidate

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.silu(x) * y + {shift}


def get_inputs():
    return [torch.randn({rows}, 1024), torch.randn({rows}, 1024)]
"""

CPP = '''
import ctypes, os, subprocess, tempfile
import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void kernel(const float* x, const float* y, float* z, long n) {
    #pragma omp parallel for schedule(static, %d)
    for (long i = 0; i < n; i++) z[i] = x[i] / (1.0f + std::exp(-x[i])) * y[i] + 1.0f;
}
"""
folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
subprocess.run(["g++", *flags, folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
kernel = ctypes.CDLL(folder + "/k.so").kernel
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x, y):
        z = torch.empty_like(x)
        kernel(x.data_ptr(), y.data_ptr(), z.data_ptr(), x.numel())
        return z
'''

TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, z, n, BLOCK: tl.constexpr, NUMBER: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a = tl.load(x + i, mask=mask)
    b = tl.load(y + i, mask=mask)
    tl.store(z + i, a * tl.sigmoid(a) * b + 1.0 + 0.0 * NUMBER, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        z = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024, NUMBER=%d, num_warps=4)
        return z
"""


def main() -> None:
    """Judge and print the rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend", choices=["cpp", "triton"])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--tier", default="search")
    options = parser.parse_args()
    config = Config()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reference.py"
        path.write_text(REFERENCE.format(rows=options.rows, shift=1.0))
        task = tasks.load(str(path), device=options.device)
        text = CPP if options.backend == "cpp" else TRITON
        jobs = [(task, Candidate(source=text % (1000 + i), backend=options.backend)) for i in range(options.count)]
        began = time.perf_counter()
        verdicts = [v for _, v in Pool(options.workers, config).map(jobs, tier=options.tier)]
        seconds = time.perf_counter() - began
    counts = collections.Counter(v.status.value for v in verdicts)
    pairs = sorted(v.timing.num_pairs for v in verdicts if v.timing)
    spread = sorted(v.timing.speedup.value for v in verdicts if v.timing)
    latency = sorted(v.seconds for v in verdicts)
    print(
        f"{options.backend}, {options.workers} workers, {verdicts[0].machine}: {len(verdicts)} verdicts {dict(counts)} "
        f"in {seconds:.1f} s = "
        f"{len(verdicts) / seconds:.2f} verdicts/s; latency median {latency[len(latency) // 2]:.2f} s"
    )
    if pairs:
        print(
            f"pairs median {pairs[len(pairs) // 2]}, speedup min {spread[0]:.3f}, "
            f"median {spread[len(spread) // 2]:.3f}, max {spread[-1]:.3f}"
        )
    print(*{v.error for v in verdicts if v.error}, sep="\n")


if __name__ == "__main__":
    main()
