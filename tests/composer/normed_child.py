"""Child process of test_normed.py: runs every schedule of matmuls behind a norm in Triton's interpreter, against PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.composer.triton_cases import Function
from tests.composer.triton_programs import Program, load, nth

BRAIN = torch.bfloat16
LIMIT = 0.02
"""Root mean square error of a result relative to its own: twice what rounding operands to bf16 makes of the gated cases."""


def brain(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(BRAIN)


def scaled(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """Llama's norm."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return gain * wide.to(x.dtype)


def one(x: torch.Tensor, gain: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.linear(scaled(x, gain), w)


def gated(x: torch.Tensor, gain: torch.Tensor, w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    normed = scaled(x, gain)
    return F.silu(F.linear(normed, w)) * F.linear(normed, u)


def halves(x: torch.Tensor, gain: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    gate, up = F.linear(scaled(x, gain), w).chunk(2, -1)
    return F.silu(gate) * up


def gemma(x: torch.Tensor, gain: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (wide * (1.0 + gain.float())).to(x.dtype) @ w.t()


def library(x: torch.Tensor, gain: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(F.rms_norm(x, (x.shape[-1],), gain, 1e-5), w, b)


CASES: dict[str, tuple[Callable[..., torch.Tensor], Callable[[], list[torch.Tensor]]]] = {
    "one_row": (one, lambda: [brain(1, 512) * 3, brain(512), brain(24, 512)]),
    "a_rest_of_k": (one, lambda: [brain(1, 200), brain(200), brain(40, 200)]),
    "slices_of_k": (gated, lambda: [brain(1, 1024), brain(1024), brain(24, 1024), brain(24, 1024)]),
    "gated": (gated, lambda: [brain(1, 264), brain(264), brain(40, 264), brain(40, 264)]),
    "gemma": (gemma, lambda: [brain(1, 1, 128), brain(128), brain(48, 128)]),
    "library": (library, lambda: [brain(1, 128), brain(128), brain(8, 128), brain(8)]),
    "few_columns": (one, lambda: [brain(1, 160), brain(160), brain(4, 160)]),
    "halves_of_one_weight": (halves, lambda: [brain(1, 128), brain(128), brain(80, 128)]),
}


def program(name: str) -> tuple[Program, list[torch.Tensor]]:
    """The program of a case for a GPU, and its arguments."""
    torch.manual_seed(0)
    function, made = CASES[name]
    args = made()
    return Program(Function(function), args, "cuda"), args


def wrong(name: str) -> list[str]:
    """The schedules of a case that do not agree with PyTorch."""
    made, args = program(name)
    want = CASES[name][0](*args).double()
    failed: list[Any] = []
    for number in made.distinct():
        text = made.text(nth(number)).replace("device='cuda'", "device='cpu'")
        got = load(text).run(made.module, *args).double()
        error = float((got - want).pow(2).mean().sqrt() / want.pow(2).mean().sqrt())
        if not error < LIMIT:
            failed.append([str(nth(number)(k)) for k in made.kernels.values()] + [error])
    return failed


if __name__ == "__main__":
    for case in CASES:
        print(json.dumps({"key": case, "wrong": wrong(case)}), flush=True)
