"""Host time of a call, drop-in beside eager: µs a call and µs an operator, on tensors so small that the host is all there is.

    python -m tests.benchmarks.host_time [--device cuda] [--calls 10 50 200] [--json]

Chains of the given length. `library`: convolutions, norms and products that stay with PyTorch, and one kernel at the end, so that the
drop-in makes the same calls as eager; `fused`: products, each followed by a kernel; `training`: steps, forward and backward, of batch
norms and activations.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from dvk import backends, tasks
from dvk.composer import Plan, applicable_to, capture, fuse, write
from dvk.composer.plan_space import MEASURED
from dvk.config import Limits
from dvk.tasks.sourcefile import execute

HEAD = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
"""
NETWORKS = {
    "library": HEAD
    + """
        self.layers = nn.ModuleList(
            layer for _ in range({num} // 2) for layer in (nn.Conv2d(4, 4, 1), nn.MaxPool2d(1))
        )
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return torch.tanh(x)
def get_inputs():
    return [torch.randn(1, 4, 2, 2)]
def get_init_inputs():
    return []
""",
    "fused": HEAD
    + """
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range({num} // 2))
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
""",
    "training": HEAD
    + """
        self.layers = nn.ModuleList(
            layer for _ in range({num} // 2) for layer in (nn.BatchNorm1d(8), nn.ReLU())
        )
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
""",
}


def per_call_us(call: Callable[[], Any], seconds: float) -> float:
    """Median over batches of the time of a call; the device is not waited for, except between batches."""
    for _ in range(20):
        call()
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    batches, end = [], time.perf_counter() + seconds
    while len(batches) < 5 or time.perf_counter() < end:
        wait()
        start = time.perf_counter()
        for _ in range(10):
            call()
        batches.append((time.perf_counter() - start) / 10 * 1e6)
    return median(batches)


def step(model: torch.nn.Module, x: torch.Tensor) -> Callable[[], tuple[torch.Tensor, ...]]:
    """A training step: the gradients of the weights."""
    weights, along = list(model.parameters()), torch.ones_like(x)
    return lambda: torch.autograd.grad(model(x), weights, along)


def rows(network: str, num_calls: int, device: str, seconds: float) -> dict[str, float]:
    """µs a call of eager and of the drop-in, for a network of about `num_calls` operators."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.py"
        path.write_text(NETWORKS[network].format(num=num_calls))
        train = network == "training"
        task = tasks.load(str(path), device=device, limits=Limits(), train=train)  # type: ignore[arg-type]
        captured = capture(task, Limits())
    backend = backends.default(task.device)
    names = applicable_to(captured, task.device, backend)
    plan = Plan(tuple(name for name in names if name not in MEASURED))
    made = write(task, captured, fuse(task, captured, plan.recipes), plan, backend)
    module = execute(made.source, role="candidate")
    old, new = module.Model().to(device), module.ModelNew().to(device)
    new.load_state_dict(old.state_dict())
    x = module.get_inputs()[0].to(device)
    if train:
        steps = {"eager": step(old, x), "drop-in": step(new, x)}
        for made, want in zip(steps["drop-in"](), steps["eager"](), strict=True):
            torch.testing.assert_close(made, want, rtol=1e-2, atol=1e-3)
        return {name: per_call_us(one, seconds) for name, one in steps.items()}
    with torch.no_grad():
        torch.testing.assert_close(new(x), old(x), rtol=1e-3, atol=1e-3)
        return {
            "eager": per_call_us(lambda: old(x), seconds),
            "drop-in": per_call_us(lambda: new(x), seconds),
        }


def main() -> None:
    """Print a line for each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--calls", type=int, nargs="+", default=[10, 50, 200])
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(
        1
    )  # on a busy machine a team of threads is waited for longer than the host takes
    result: dict[str, dict[int, dict[str, float]]] = {name: {} for name in NETWORKS}
    for network in NETWORKS:
        for n in asked.calls:
            found = result[network][n] = rows(network, n, asked.device, asked.seconds)
            told = "  ".join(
                f"{name} {us:8.1f} µs ({us / n:5.2f} an operator)" for name, us in found.items()
            )
            if not asked.json:
                ratio = found["eager"] / found["drop-in"]
                print(f"{network:8} {n:4} operators: {told}  {ratio:.2f}×", flush=True)
    if asked.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
