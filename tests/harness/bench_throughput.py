"""Verdicts a second: distinct candidates, compiled, checked and timed; as many others with warm processes; then the first again, from
the verdict cache.

    python -m tests.harness.bench_throughput cpp --count 50 --workers 2
    python -m tests.harness.bench_throughput triton --count 300 --tasks 30 --workers 16 --device cuda --contract plan

Not collected by pytest and asserted nowhere: the figure depends on the machine.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dvk import tasks
from dvk.config import Config
from dvk.harness import JudgeQueue, JudgeSpec
from dvk.harness.session.verdict_cache import Remembered
from dvk.records import Candidate, Task, Verdict

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
    #pragma omp parallel for schedule(static, NUMBER_HERE)
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
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024, NUMBER=NUMBER_HERE, num_warps=4)
        return z
"""


CUDA = '''
import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void kernel(const float* x, const float* y, float* z, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] / (1.0f + expf(-x[i])) * y[i] + 1.0f + 0.0f * NUMBER_HERE;
}
"""
kernel = torch.cuda._compile_kernel(SOURCE, "kernel")


class ModelNew(nn.Module):
    def forward(self, x, y):
        z = torch.empty_like(x)
        n = x.numel()
        kernel(grid=((n + 255) // 256, 1, 1), block=(256, 1, 1), args=[x, y, z, n])
        return z
'''


def main() -> None:
    """Judge and print the rate, then once more from the verdict cache."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend", choices=["cpp", "triton", "cuda"])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--tier", default="search")
    parser.add_argument("--settled", type=float, default=0.02)
    parser.add_argument("--contract", default="auto", choices=["auto", "module", "plan"])
    options = parser.parse_args()
    config = Config.model_validate({"judge": {"settled": options.settled}})
    with (
        tempfile.TemporaryDirectory() as folder,
        JudgeQueue[int](options.workers, config, Remembered(Path(folder) / "verdicts.db")) as pool,
    ):
        pool.warm()

        def load(number: int) -> Task:
            path = Path(folder) / f"reference{number}.py"
            path.write_text(REFERENCE.format(rows=options.rows + 8 * number, shift=1.0))
            return tasks.load(str(path), device=options.device)

        with ThreadPoolExecutor(options.workers) as threads:
            began = time.perf_counter()
            loaded = list(threads.map(load, range(options.tasks)))
            print(
                f"{options.tasks} tasks examined in {time.perf_counter() - began:.1f} s", flush=True
            )
        text = {"cpp": CPP, "triton": TRITON, "cuda": CUDA}[options.backend]

        def jobs(first: int) -> list[tuple[Task, Candidate]]:
            made = [
                Candidate(
                    source=text.replace("NUMBER_HERE", str(first + i)), backend=options.backend
                )
                for i in range(options.count)
            ]
            return [(loaded[i % options.tasks], candidate) for i, candidate in enumerate(made)]

        for run, first in (("judged", 1000), ("warm", 100_000), ("again", 1000)):
            began = time.perf_counter()
            verdicts, ends = [], []
            for _, verdict in pool.map(
                jobs(first), JudgeSpec(tier=options.tier, contract=options.contract)
            ):
                verdicts.append(verdict)
                ends.append(time.perf_counter() - began)
            show(run, options, verdicts, ends)


def show(run: str, options: argparse.Namespace, verdicts: list[Verdict], ends: list[float]) -> None:
    """One run's figures: the whole, start of all processes included, and the second half, when they are warm."""
    seconds, half = ends[-1], len(ends) // 2
    counts = collections.Counter(f"{v.status.value} {v.contract}" for v in verdicts)
    latency = sorted(v.seconds for v in verdicts)
    print(
        f"{run}: {options.backend}, {options.tasks} tasks, {options.workers} workers, {verdicts[0].machine}: "
        f"{len(verdicts)} verdicts {dict(counts)} in {seconds:.2f} s = {len(verdicts) / seconds:.2f} verdicts/s (second half "
        f"{(len(ends) - half) / max(1e-9, ends[-1] - ends[half - 1]):.2f}); "
        f"latency median {latency[len(latency) // 2]:.2f} s"
    )
    if run != "again":
        pairs = sorted(v.timing.num_pairs for v in verdicts if v.timing)
        spread = sorted(v.timing.speedup.value for v in verdicts if v.timing)
        stages = sorted({name for v in verdicts for name in v.stages_s})
        print(
            "seconds a verdict by stage:",
            {
                name: round(sum(v.stages_s.get(name, 0) for v in verdicts) / len(verdicts), 3)
                for name in stages
            },
        )
        if pairs:
            print(
                f"pairs median {pairs[len(pairs) // 2]}, speedup min {spread[0]:.3f}, "
                f"median {spread[len(spread) // 2]:.3f}, max {spread[-1]:.3f}"
            )
        print(*{f"{(v.error or '')[:300]} | {v.log[-300:]}" for v in verdicts if v.error}, sep="\n")


if __name__ == "__main__":
    main()
