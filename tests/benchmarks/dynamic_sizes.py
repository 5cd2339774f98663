"""One program for a range beside programs made for each of its sizes.

    python -m tests.benchmarks.dynamic_sizes --device cpu|cuda [--backend cuda]

Prints a line per module and size: milliseconds of the original, of the program for the size, of the program for the range, and the
last two's ratio (1: as fast, above: the range's is faster). Both have the schedules that the composer lists first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dvk.composer import Plan, applicable, compose, join
from dvk.composer.capture.export import trace_module
from dvk.composer.capture.sizes import formulas
from dvk.composer.plan_space import MEASURED
from dvk.composer.sized import SizedParts
from dvk.records import BackendName, Device, Task
from dvk.tasks import dynamic
from tests.composer.dropins import module_text
from tests.composer.programs import run_source

MODULES = {
    "norm and gelu": (
        "return F.gelu(self.n(x)) + x",
        "self.n = nn.LayerNorm(768)",
        "x=float32[batch:1..64, 197, 768]",
    ),
    "softmax over the sequence": (
        "return torch.softmax(x * 0.125, -1)",
        "pass",
        "x=float32[8, 12, 64, seq:16..4096]",
    ),
    "gated product": (
        "return self.l(F.silu(x) * torch.sigmoid(x))",
        "self.l = nn.Linear(512, 512)",
        "x=float32[rows:1..4096, 512]",
    ),
}
NUM_SIZES = 12
SECONDS = 0.4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--backend", choices=("cpp", "triton", "cuda"), help="triton on a GPU")
    parser.add_argument("--only", help="one module by its name")
    args = parser.parse_args()
    backend = args.backend or {"cpu": "cpp", "cuda": "triton"}[args.device]
    for name in MODULES if args.only is None else (args.only,):
        _module(name, args.device, backend)


@torch.no_grad()
def _module(name: str, device: Device, backend: BackendName) -> None:
    body, init, spec = MODULES[name]
    source = "import torch.nn.functional as F\n" + module_text(body, init=init)
    task = Task(id=name, name=name, source=source, entry="Model", kind="module", device=device)
    model: nn.Module = run_source(source).Model().eval().to(device)
    inputs = dynamic.parse([spec])
    assert inputs is not None
    ((_, _, shape, _),), (dim,) = inputs.inputs, inputs.dims

    def draw(size: int) -> torch.Tensor:
        return torch.randn([size if isinstance(d, str) else d for d in shape], device=device)

    def made(text: str) -> nn.Module:
        new: nn.Module = run_source(text).ModelNew().eval().to(device)
        new.load_state_dict(model.state_dict())
        return new

    captures = {
        tuple(s.values()): trace_module(model, [draw(s[dim.name])], ["x"]) for s in inputs.fitted()
    }
    sized = formulas(inputs.dims, captures)
    names = applicable(sized.captured.graph, device, backend)
    plan = Plan(tuple(name for name in names if name not in MEASURED))
    points = inputs.points()
    maker = SizedParts(task, sized, backend)
    parts = [part for n in range(len(points)) for part in maker.parts(points, n, plan)]
    ranged = made(join(parts, backend).source)
    ratios = []
    for size in _sizes(dim.lo, dim.hi):
        x = draw(size)
        alone = made(compose(task, trace_module(model, [x], ["x"]), plan, backend).source)
        assert ranged._dvk_fits(x) and alone._dvk_fits(x)
        eager, one, both = _timed([model, alone, ranged], x, device)
        ratios.append(one / both)
        print(
            f"{name}, {dim.name}={size}: {eager:.4f} {one:.4f} {both:.4f} ms, {one / both:.2f}",
            flush=True,
        )
    print(f"{name}: least {min(ratios):.2f}, median {statistics.median(ratios):.2f}", flush=True)


def _sizes(lo: int, hi: int) -> list[int]:
    """Sizes on a logarithmic scale, the ends among them; every other one is odd."""
    found = [round(lo * (hi / lo) ** (k / (NUM_SIZES - 1))) for k in range(NUM_SIZES)]
    odd = [n + (k % 2 and 1 - n % 2) for k, n in enumerate(found)]
    return sorted({min(max(n, lo), hi) for n in odd})


def _timed(calls: list[Callable[[Any], Any]], x: torch.Tensor, device: str) -> list[float]:
    """Milliseconds of each call, the least of interleaved runs: other programs only add to it."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call(x)
    until = time.perf_counter() + SECONDS * len(calls)
    while time.perf_counter() < until or len(times[0]) < 12:
        for call, kept in zip(calls, times, strict=True):
            if device == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            call(x)
            if device == "cuda":
                torch.cuda.synchronize()
            kept.append(time.perf_counter() - began)
    return [1e3 * min(kept) for kept in times]


if __name__ == "__main__":
    main()
