"""A network around a drop-in: µs a call eager, with the drop-in called directly, and inside of torch.compile.

    python -m tests.benchmarks.operator_time [--device cuda] [--rows 16 2048] [--seconds 0.5]

On a GPU also with the kernels as a `triton_op`, which Inductor sees, beside the `custom_op` of the drop-in, which it does not.
"""

from __future__ import annotations

import argparse
import copy
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dvk.composer import Plan, compose
from dvk.composer.capture.export import trace_module
from dvk.records import Task
from tests.benchmarks.host_time import per_call_us
from tests.composer.dropins import importable
from tests.composer.programs import run_source, usual

WIDTH = 64
SOURCE = f"""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm({WIDTH})

    def forward(self, x):
        return nn.functional.gelu(self.norm(x)) * torch.sigmoid(x) + x
"""
LAUNCHER = re.compile(r"^run_(\w+) = dvk_launcher\(\1, (\d+), (\d+)(?:, \d+)?\)$", re.MULTILINE)


class Around(nn.Module):
    """A linear layer and pointwise operators on both sides of a block."""

    def __init__(self, block: nn.Module):
        super().__init__()
        self.block = block
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.last(self.block(self.first(x) + 1) * 2))


class Calls(nn.Module):
    """A block as one call of an operator."""

    def __init__(self, operator: Callable[..., Any], norm: nn.LayerNorm):
        super().__init__()
        self.operator, self.norm = operator, norm

    def forward(self, x: torch.Tensor) -> Any:
        return self.operator(x, self.norm.weight, self.norm.bias)


def as_triton_op(source: str) -> Callable[..., Any]:
    """The program of a Triton drop-in as a `triton_op` of its operand and two weights."""
    module = run_source(source)

    def wrapped(name: str, grid: int, warps: int) -> Callable[..., None]:
        def launch(*tensors: torch.Tensor) -> None:
            kernel = torch.library.wrap_triton(getattr(module, name))
            kernel[(grid,)](*tensors, num_warps=warps)

        return launch

    for name, grid, warps in LAUNCHER.findall(source):
        setattr(module, f"run_{name}", wrapped(name, int(grid), int(warps)))
    program = module._dvk_program_1

    def fused(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = program(x, weight, bias)
        return result

    fused.__annotations__ = dict.fromkeys(("x", "weight", "bias", "return"), torch.Tensor)
    return torch.library.triton_op(f"measured::fused_{len(LAUNCHED)}", fused, mutates_args=())


LAUNCHED: list[str] = []


@torch.no_grad()
def measured(rows: int, device: str, seconds: float) -> dict[str, float]:
    """µs a call, by the way that the network runs."""
    x = torch.randn(rows, WIDTH, device=device)
    backend = "triton" if device == "cuda" else "cpp"
    recipes = ("fuse_rowwise", "fuse_pointwise") if device == "cuda" else None
    captured = trace_module(run_source(SOURCE).Model().eval().to(device), [x], ["x"])
    task = Task(id="use", name="use", source=SOURCE, entry="Model", kind="module", device=device)  # type: ignore[arg-type]
    candidate = compose(task, captured, Plan(recipes or usual(captured.graph)), backend)
    module = importable(run_source(candidate.source))
    original = Around(module.Model().eval()).eval().to(device)
    new = Around(module.ModelNew().eval()).eval().to(device)
    new.load_state_dict(original.state_dict())
    ways: dict[str, Callable[..., Any]] = {
        "eager": original,
        "direct": new,
        "compiled drop-in": torch.compile(copy.deepcopy(new), fullgraph=True),
        "compiled original": torch.compile(copy.deepcopy(original), fullgraph=True),
    }
    if device == "cuda":
        LAUNCHED.append(candidate.source)
        visible = Around(Calls(as_triton_op(candidate.source), original.block.norm)).eval()
        visible.first, visible.last = original.first, original.last
        ways["compiled triton_op"] = torch.compile(visible, fullgraph=True)
    before = new.block.dvk_calls["kernels"]  # type: ignore[operator, union-attr]
    want = original(x)
    for way in ways.values():
        torch.testing.assert_close(way(x), want, rtol=1e-3, atol=1e-4)
    if new.block.dvk_calls["kernels"] == before:  # type: ignore[operator, union-attr]
        raise RuntimeError(new.block.dvk_why(original.first(x)))  # type: ignore[operator]
    return {name: per_call_us(lambda way=way: way(x), seconds) for name, way in ways.items()}  # type: ignore[misc]


def main() -> None:
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 2048])
    parser.add_argument("--seconds", type=float, default=0.5)
    asked = parser.parse_args()
    for rows in asked.rows:
        torch._dynamo.reset()
        found = measured(rows, asked.device, asked.seconds)
        told = "  ".join(f"{name} {us:.1f}" for name, us in found.items())
        print(f"{rows} x {WIDTH}: {told} µs", flush=True)


if __name__ == "__main__":
    main()
