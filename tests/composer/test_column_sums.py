"""Sums over rows, computed in the pass over the rows: gradients of weights and biases of norms, gates and residual scales."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from tests.composer.training_steps import TrainingDropIn, errors

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand({width}) + 0.5)
        self.bias = nn.Parameter(torch.randn({width}) * 0.2)

    def forward(self, x{more}):
        return {text}
"""
CASES: dict[str, tuple[str, tuple[int, ...], int, int]] = {
    # text, shape of x, sums that move, further inputs
    "layer norm": ("F.gelu(F.layer_norm(x, (24,), self.weight, self.bias))", (150, 24), 2, 0),
    "three dimensions": ("F.layer_norm(x, (33,), self.weight, self.bias)", (5, 31, 33), 2, 0),
    "bias of a line": ("F.gelu(F.linear(x, self.weight.diag(), self.bias))", (5, 40, 32), 1, 0),
    "rms norm": ("F.silu(F.rms_norm(x, (40,), self.weight)) + self.bias", (131, 40), 2, 0),
    "residual": ("y + F.layer_norm(x + y, (16,), self.weight, self.bias)", (200, 16), 2, 1),
    "scale": ("y + self.weight * torch.tanh(x + self.bias)", (3, 64, 20), 2, 1),
    "modulated": ("F.layer_norm(x, (48,)) * (1 + self.weight) + self.bias", (140, 48), 2, 0),
    "two norms": (
        "F.layer_norm(F.layer_norm(x, (20,), self.weight, self.bias).tanh(), (20,))",
        (180, 20),
        2,
        0,
    ),
}


def made(name: str, backend: str = "cpp", dtype: torch.dtype = torch.float32) -> TrainingDropIn:
    torch.manual_seed(0)
    text, shape, _, more = CASES[name]
    source = HEAD.format(width=shape[-1], text=text, more=", y" * more)
    args = [torch.randn(shape, dtype=dtype) for _ in range(1 + more)]
    return TrainingDropIn(source, *args, backend=backend)


def moved(block: TrainingDropIn) -> int:
    """Sums that a kernel adds up in blocks."""
    text = block.candidate.source
    return (
        text.count("+ l] = 0;") if block.candidate.backend == "cpp" else text.count("= tl.zeros([")
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_gradients_are_as_exact_as_eager(name: str) -> None:
    block = made(name)
    found = errors(block)
    assert all(new <= 4 * eager + 2e-6 for eager, new in found.values()), found
    assert moved(block) == CASES[name][2] and block.runs == {"run": 1, "back": 1}


def test_two_runs_give_equal_bits() -> None:
    block = made("layer norm")
    first, second = block.gradients(True), block.gradients(True)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_result_that_needs_the_sum_first_is_not_moved() -> None:
    """Batch norm's gradient of x is computed from the sums: a kernel cannot wait for all rows."""
    torch.manual_seed(0)
    text = "(x - x.mean(0)) * torch.rsqrt(x.var(0) + 1e-5) * self.weight + self.bias"
    source = HEAD.format(width=32, text=text, more="")
    block = TrainingDropIn(source, torch.randn(160, 32))
    assert all(new <= 4 * eager + 2e-6 for eager, new in errors(block).values()), errors(block)


@pytest.mark.slow
def test_in_tritons_interpreter() -> None:
    command = [sys.executable, "-m", "tests.composer.test_column_sums"]
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def interpreted() -> None:
    """Every case, and narrow rows several at a time."""
    for name in CASES:
        block = made(name, "triton")
        found = errors(block)
        assert all(new <= 4 * eager + 2e-6 for eager, new in found.values()), (name, found)
        assert moved(block) == CASES[name][2], (name, moved(block))
        print(name, "ok", flush=True)


if __name__ == "__main__":
    interpreted()
