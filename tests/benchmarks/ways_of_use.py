"""One drop-in, as users use it: a line for each way, with µs a call beside eager and beside the drop-in called directly.

    python -m tests.benchmarks.ways_of_use [--device cuda] [--seconds 0.5]

The module is the first example. `kernels`: whether they ran, as the drop-in and its operator count. Without kernels the reason is
printed. Programs have the composer's first schedules, without a search.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dvk.composer import Plan, applicable, compose, join
from dvk.composer.capture.export import trace_module
from dvk.composer.capture.joint import with_backward
from dvk.composer.capture.sizes import formulas
from dvk.composer.plan_space import MEASURED
from dvk.composer.sized import SizedParts
from dvk.records import Task
from dvk.tasks import dynamic
from tests.benchmarks.host_time import per_call_us
from tests.composer.dropins import importable
from tests.composer.programs import run_source

EXAMPLE = Path("data/tasks/examples/layernorm_gelu_residual.py")
WIDTH = 768
SHAPE = (16, 197, WIDTH)
OTHER = (13, 197, WIDTH)
RANGE = f"x=float32[batch:1..64, 197, {WIDTH}]"
Call = Callable[[], Any]


class Network(nn.Module):
    """The example between two linear layers."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 64)
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(self.first(x)))


@dataclass
class Made:
    """An executed drop-in."""

    file: Any
    model: nn.Module

    @property
    def runs(self) -> int:
        """Runs of the kernels so far: direct calls, and calls of the operators."""
        known = torch.ops.__dict__.get("_dvk_operators", {})
        names = [v.name for v in vars(self.file).values() if hasattr(v, "layouts")]
        return int(self.model.dvk_calls["kernels"]) + sum(known[n].calls for n in names)  # type: ignore[operator]


class Ways:
    """Drop-ins of the example for one device, and what is done with them."""

    def __init__(self, device: str, seconds: float):
        self.device, self.seconds = device, seconds
        self.backend = "cpp" if device == "cpu" else "triton"
        self.source = EXAMPLE.read_text(encoding="utf-8")
        self.x, self.y = (torch.randn(shape, device=device) for shape in (SHAPE, OTHER))
        self.model = self.original()

    def original(self, train: bool = False) -> nn.Module:
        torch.manual_seed(0)
        return importable(run_source(self.source)).Model(WIDTH).train(train).to(self.device)

    def _plan(self, graph: Any) -> Plan:
        names = applicable(graph, self.device, self.backend)  # type: ignore[arg-type]
        return Plan(tuple(name for name in names if name not in MEASURED))

    def _made(self, text: str, train: bool = False) -> Made:
        file = importable(run_source(text))
        model = file.ModelNew(WIDTH).train(train).to(self.device)
        model.load_state_dict(self.model.state_dict())
        return Made(file, model)

    def _task(self, train: bool = False) -> Task:
        return Task(
            id="use",
            name="use",
            source=self.source,
            entry="Model",
            kind="module",
            device=self.device,  # type: ignore[arg-type]
            train=train,
        )

    def fixed(self) -> Made:
        """For one size."""
        captured = trace_module(self.model, [self.x], ["x"])
        plan = self._plan(captured.graph)
        return self._made(compose(self._task(), captured, plan, self.backend).source)  # type: ignore[arg-type]

    def training(self) -> Made:
        """With gradients."""
        model = self.original(train=True)
        captured = with_backward(trace_module(model, [self.x], ["x"]), model)
        plan = self._plan(captured.graph)
        return self._made(compose(self._task(True), captured, plan, self.backend).source, True)  # type: ignore[arg-type]

    def ranged(self) -> Made:
        """For a range of batches."""
        inputs = dynamic.parse([RANGE])
        assert inputs is not None
        (dim,) = inputs.dims
        captures = {}
        for sizes in inputs.fitted():
            x = torch.randn(sizes[dim.name], *SHAPE[1:], device=self.device)
            captures[tuple(sizes.values())] = trace_module(self.model, [x], ["x"])
        sized = formulas(inputs.dims, captures)
        plan, points = self._plan(sized.captured.graph), inputs.points()
        maker = SizedParts(self._task(), sized, self.backend)  # type: ignore[arg-type]
        parts = [part for n in range(len(points)) for part in maker.parts(points, n, plan)]
        return self._made(join(parts, self.backend).source)  # type: ignore[arg-type]

    def say(self, what: str, made: Made, eager: Call, direct: Call, used: Call) -> None:
        """Print a line: the kernels' runs, µs of each call."""
        used()
        before = made.runs
        used()
        ran = made.runs > before
        times = [per_call_us(call, self.seconds) for call in (eager, direct, used)]
        told = "kernels" if ran else "the original"
        cells = [what, told, *(f"{one:.0f}" for one in times), f"{times[0] / times[2]:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


@torch.no_grad()
def inference(ways: Ways) -> None:
    """Calls without gradients."""
    x, made = ways.x, ways.fixed()
    eager, direct = (lambda: ways.model(x)), (lambda: made.model(x))
    made.model.train()
    ways.say("called directly, as made", made, eager, direct, direct)
    made.model.eval()
    ways.say("ModelNew(...).eval()", made, eager, direct, direct)
    net = Network(ways.original()).eval().to(ways.device)
    whole = made.file.replace(copy.deepcopy(net), quiet=True)
    inner = Made(made.file, whole.inner)
    around, around_new = (lambda: net(x)), (lambda: whole(x))
    ways.say("replace(network), eval mode", inner, around, around_new, around_new)
    compiled = torch.compile(made.model)
    ways.say("torch.compile(drop_in)", made, eager, direct, lambda: compiled(x))
    ways.say("the same drop-in, uncompiled, afterwards", made, eager, direct, direct)
    full = torch.compile(whole, fullgraph=True)
    ways.say("compile(network, fullgraph)", inner, around, around_new, lambda: full(x))
    plain = torch.compile(net, fullgraph=True)
    ways.say("compile(the original network)", inner, around, around_new, lambda: plain(x))
    exported = torch.export.export(whole, (x,)).module()
    ways.say("torch.export", inner, around, around_new, lambda: exported(x))
    ways.say("another batch", made, lambda: ways.model(ways.y), direct, lambda: made.model(ways.y))
    print(f"  why: {made.model.why(ways.y)}")  # type: ignore[operator]
    ranged, y = ways.ranged(), ways.y
    eager_y, direct_y = (lambda: ways.model(y)), (lambda: ranged.model(y))
    ways.say("another batch, made with --dynamic", ranged, eager_y, direct_y, direct_y)
    marked = torch.compile(ranged.model, dynamic=True, fullgraph=True)
    marked(x)
    ways.say("the same, compile(dynamic=True)", ranged, eager_y, direct_y, lambda: marked(y))


def packaged(ways: Ways) -> None:
    """AOTInductor's package of a network around the drop-in."""
    made = ways.fixed()
    made.model.eval()
    net = Network(ways.original()).eval().to(ways.device)
    whole = made.file.replace(copy.deepcopy(net), quiet=True)
    inner = Made(made.file, whole.inner)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        program = torch.export.export(whole, (ways.x,))
        file = torch._inductor.aoti_compile_and_package(
            program, package_path=str(Path(folder) / "net.pt2")
        )
        loaded = torch._inductor.aoti_load_package(file)
        ways.say(
            "AOTInductor package",
            inner,
            lambda: net(ways.x),
            lambda: whole(ways.x),
            lambda: loaded(ways.x),
        )


def gradients(ways: Ways) -> None:
    """Steps: forward and backward."""
    made, original = ways.fixed(), ways.original(train=True)
    x = ways.x.clone().requires_grad_(True)
    along = torch.randn_like(x)

    def step(model: Callable[..., Any]) -> Call:
        return lambda: model(x).backward(along)

    eager = step(original)
    ways.say("gradients", made, eager, step(made.model), step(made.model))
    print(f"  why: {made.model.why(x)}")  # type: ignore[operator]
    trained = ways.training()
    direct = step(trained.model)
    ways.say("gradients, made with --train", trained, eager, direct, direct)
    compiled = torch.compile(trained.model, fullgraph=True)
    ways.say("the same, compiled", trained, eager, direct, step(compiled))
    plain = torch.compile(original, fullgraph=True)
    ways.say("compile(the original)", trained, eager, direct, step(plain))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=0.5)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    ways = Ways(asked.device, asked.seconds)
    print("| way | runs | eager, µs | direct, µs | this way, µs | over eager |")
    print("|---|---|---|---|---|---|")
    for part in (inference, gradients, packaged):
        try:
            part(ways)
        except Exception as error:  # noqa: BLE001 - the other parts go on
            print(f"{part.__name__}: {type(error).__name__}: {error}"[:600], flush=True)


if __name__ == "__main__":
    main()
