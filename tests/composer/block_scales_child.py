"""Child process of test_block_scales.py: runs every schedule of fp8 products with scales of blocks in Triton's interpreter.

They are held to what the operands say: codes times scales, in float64.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tests.composer.triton_cases import Function
from tests.composer.triton_programs import Program, load, nth

E4M3, E5M2, BRAIN, HALF = torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16


def codes(*shape: int, dtype: torch.dtype = E4M3) -> torch.Tensor:
    return (torch.randn(*shape) * 3).to(dtype)


def scales(*shape: int) -> torch.Tensor:
    """Of very different sizes, so that a wrong one shows."""
    return torch.exp2(torch.randint(-6, 1, shape)) * (torch.rand(*shape) + 1)


def viewed(w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """A weight by its blocks, as a view of four dimensions."""
    (n, k), (p, q) = w.shape, s.shape
    return (w.to(s.dtype).view(p, n // p, q, k // q) * s[:, None, :, None]).view(n, k)


def repeated(w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """The same with each scale repeated; the last blocks may be smaller."""
    n, k = w.shape
    return w.to(s.dtype) * s.repeat_interleave(128, 0).repeat_interleave(128, 1)[:n, :k]


def expanded(w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """The same with each scale expanded, then reshaped."""
    (n, k), (p, q) = w.shape, s.shape
    return w.to(s.dtype) * s[:, None, :, None].expand(p, n // p, q, k // q).reshape(n, k)


def rows(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Activations with a scale for each block of a row."""
    return (x.to(s.dtype).view(*s.shape, -1) * s.unsqueeze(-1)).view(x.shape)


def unquantised(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(x, viewed(w, s).to(x.dtype))


def both(x: torch.Tensor, t: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(rows(x, t), repeated(w, s)).to(HALF)


def wide(
    x: torch.Tensor, t: torch.Tensor, w: torch.Tensor, s: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    return F.gelu(rows(x, t) @ expanded(w, s).t() + b)


def quantised(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Activations quantised by blocks in the module."""
    blocks = x.float().view(*x.shape[:-1], -1, 128)
    t = blocks.abs().amax(-1, keepdim=True).clamp(1e-4) * (1 / 448.0)
    made = ((blocks / t).to(E4M3).to(s.dtype) * t.to(s.dtype)).view(x.shape)
    return (made @ viewed(w, s).t()).to(HALF)


def gated(
    x: torch.Tensor,
    t: torch.Tensor,
    w: torch.Tensor,
    s: torch.Tensor,
    v: torch.Tensor,
    r: torch.Tensor,
) -> torch.Tensor:
    made = rows(x, t)
    return F.silu(made @ viewed(w, s).t()) * (made @ viewed(v, r).t())


def turned(x: torch.Tensor, t: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return rows(x, t) @ viewed(w, s)


def of_rows(x: torch.Tensor, t: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return rows(x, t) @ rows(w, s).t()


def batched(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    e, p, q = s.shape
    made = w.to(s.dtype).view(e, p, -1, q, 128) * s[:, :, None, :, None]
    return torch.bmm(x, made.view(w.shape).transpose(1, 2).to(x.dtype))


@dataclass(frozen=True)
class BlockCase:
    """A product; `limit` is the largest root mean square error relative to the result's own."""

    function: Callable[..., torch.Tensor]
    args: Callable[[], list[torch.Tensor]]
    limit: float = 1e-6
    fused: bool = True
    """Codes are multiplied block by block."""


CASES: dict[str, BlockCase] = {
    "unquantised": BlockCase(
        unquantised, lambda: [torch.randn(20, 256).to(HALF), codes(256, 256), scales(2, 2)], 4e-4
    ),
    "both": BlockCase(
        both, lambda: [codes(17, 256), scales(17, 2), codes(256, 256), scales(2, 2)], 4e-4
    ),
    "wide": BlockCase(
        wide,
        lambda: [codes(17, 256), scales(17, 2), codes(128, 256), scales(1, 2), torch.randn(128)],
    ),
    "quantised": BlockCase(
        quantised, lambda: [torch.randn(2, 9, 256).to(BRAIN), codes(256, 256), scales(2, 2)], 4e-4
    ),
    "gated_row": BlockCase(
        gated, lambda: [codes(1, 256), scales(1, 2), *2 * [codes(256, 256), scales(2, 2)]]
    ),
    "slices_of_k": BlockCase(
        both, lambda: [codes(1, 1024), scales(1, 8), codes(128, 1024), scales(1, 8)], 4e-4
    ),
    "turned": BlockCase(
        turned, lambda: [codes(17, 256), scales(17, 2), codes(256, 384), scales(2, 3)]
    ),
    "short_blocks": BlockCase(
        of_rows, lambda: [codes(20, 96, dtype=E5M2), scales(20, 3), codes(40, 96), scales(40, 3)]
    ),
    "batched": BlockCase(
        batched,
        lambda: [torch.randn(2, 9, 256).to(HALF), codes(2, 128, 256), scales(2, 1, 2)],
        4e-4,
    ),
    "ragged_rows": BlockCase(
        both,
        lambda: [codes(20, 256), scales(20, 2), codes(200, 256), scales(2, 2)],
        4e-4,
        fused=False,
    ),
    "ragged_k": BlockCase(
        lambda x, w, s: x @ repeated(w, s).t(),
        lambda: [torch.randn(20, 200), codes(128, 200), scales(1, 2)],
        fused=False,
    ),
}


def program(name: str) -> tuple[Program, list[torch.Tensor]]:
    """The program of a case for a GPU, and its arguments."""
    torch.manual_seed(0)
    args = CASES[name].args()
    return Program(Function(CASES[name].function), args, "cuda"), args


def widened(x: torch.Tensor) -> torch.Tensor:
    """Codes, and what a case quantises itself, stay as they are."""
    return x.double() if x.dtype in (torch.float32, HALF) else x


def wrong(name: str) -> list[Any]:
    """The schedules of a case that do not agree with float64."""
    made, args = program(name)
    want = CASES[name].function(*map(widened, args)).double()
    failed: list[Any] = []
    for number in made.distinct() if CASES[name].fused else [0]:
        text = made.text(nth(number)).replace("device='cuda'", "device='cpu'")
        got = load(text).run(made.module, *args).double()
        error = float((got - want).pow(2).mean().sqrt() / want.pow(2).mean().sqrt())
        if not error < CASES[name].limit:
            failed.append([str(nth(number)(k)) for k in made.kernels.values()] + [error])
    return failed


if __name__ == "__main__":
    for case in CASES:
        print(json.dumps({"key": case, "wrong": wrong(case)}), flush=True)
