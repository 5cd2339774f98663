"""Kernels of every family at sizes on both sides of the heuristics' limits; meta tensors, nothing is computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from dvk.composer import applicable, fuse
from dvk.composer.ir.loops import Kernel
from tests.composer.block_scales_child import rows, viewed
from tests.composer.packed_cases import words
from tests.composer.programs import TASK, capture

HALF = torch.bfloat16


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def _four_bits(k: int, n: int) -> tuple[torch.Tensor, ...]:
    """One row and the words, scales and zero points of a weight of four bits."""
    word, group = meta(n, k // 8, dtype=torch.int32), meta(n, k // 128, dtype=HALF)
    return meta(1, k, dtype=HALF), word, group, group


def _codes_in_blocks(m: int, k: int, n: int) -> tuple[torch.Tensor, ...]:
    """Rows in fp8 with scales of blocks of 128, and a weight with scales of blocks of 128 × 128."""
    eight = torch.float8_e4m3fn
    x, w = meta(m, k, dtype=eight), meta(n, k, dtype=eight)
    return x, meta(m, k // 128), w, meta(n // 128, k // 128)


def _blocks(x: torch.Tensor, t: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(rows(x, t), viewed(w, s)).to(HALF)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "small": (lambda x: torch.relu(x) + 1, (meta(100, 30),)),
    "large": (lambda x: torch.relu(x) + 1, (meta(4096, 4096),)),
    "half": (lambda x: F.gelu(x), (meta(2048, 1000, dtype=HALF),)),
    "broadcast": (lambda x, b: x + b, (meta(4096, 1024), meta(1024))),
    "transpose": (lambda x: x.t().contiguous() + 1, (meta(2000, 3000),)),
    "softmax": (_softmax, (meta(4096, 1000),)),
    "softmax long": (_softmax, (meta(512, 1 << 17),)),
    "softmax short": (_softmax, (meta(1 << 18, 33),)),
    "norm": (_norm, (meta(8192, 1024, dtype=HALF),)),
    "norm few": (_norm, (meta(3, 50000),)),
    "sum": (lambda x: x.sum(), (meta(1 << 12, 1 << 12),)),
    "sum rows": (lambda x: x.sum(-1), (meta(100, 40000),)),
    "argmax": (lambda x: x.argmax(-1), (meta(1000, 500),)),
    "variance": (lambda x: torch.var(x, 1), (meta(64, 1 << 15),)),
    "columns": (lambda x: x.sum(0), (meta(1 << 15, 256),)),
    "columns short": (lambda x: torch.softmax(x, 1), (meta(64, 50, 1000),)),
    "columns variance": (lambda x: torch.var(x, 0), (meta(3000, 20000),)),
    "pool": (lambda x: F.max_pool2d(x, 3, 2, 1), (meta(16, 64, 112, 112),)),
    "pool 2": (lambda x: F.avg_pool2d(x, 2), (meta(8, 3, 32, 32),)),
    "pool wide": (lambda x: F.avg_pool1d(x, 50), (meta(8, 64, 5000),)),
    "scan": (lambda x: x.cumsum(-1), (meta(1024, 1024),)),
    "scan long": (lambda x: x.cumsum(-1), (meta(3, 1 << 18),)),
    "scan columns": (lambda x: x.cumsum(0), (meta(500, 3000),)),
    "matmul": (torch.matmul, (meta(4096, 4096, dtype=HALF), meta(4096, 4096, dtype=HALF))),
    "matmul float": (torch.matmul, (meta(300, 7000), meta(7000, 900))),
    "matmul double": (
        torch.matmul,
        (meta(64, 64, dtype=torch.float64), meta(64, 64, dtype=torch.float64)),
    ),
    "matmul deep": (torch.matmul, (meta(128, 65536, dtype=HALF), meta(65536, 128, dtype=HALF))),
    "matmul few": (
        lambda x, w: torch.tanh(F.linear(x, w)),
        (meta(8, 4096, dtype=HALF), meta(4096, 4096, dtype=HALF)),
    ),
    "vector": (torch.matmul, (meta(1, 4096, dtype=HALF), meta(4096, 4096, dtype=HALF))),
    "blocks of codes": (_blocks, _codes_in_blocks(512, 7168, 2048)),
    "blocks of codes few": (_blocks, _codes_in_blocks(1, 7168, 2048)),
    "four bits up": (words, _four_bits(4096, 14336)),
    "four bits down": (words, _four_bits(14336, 4096)),
    "four bits large": (words, _four_bits(8192, 28672)),
    "convolution": (
        lambda x, w: torch.relu(F.conv2d(x, w, padding=1)),
        (meta(2, 32, 56, 56), meta(48, 32, 3, 3)),
    ),
    "depthwise": (
        lambda x, w: torch.relu(F.conv2d(x, w, stride=2, padding=2, groups=24)),
        (meta(1, 24, 60, 60), meta(24, 1, 5, 5)),
    ),
}


@cache
def kernels(name: str, backend: str) -> list[Kernel]:
    """The kernels of a case under all recipes of a back end."""
    function, args = CASES[name]
    device = "cpu" if backend == "cpp" else "cuda"
    captured = capture(function, *args)
    recipes = tuple(applicable(captured.graph, device, backend))
    return fuse(TASK.model_copy(update={"device": device}), captured, recipes).ordered
