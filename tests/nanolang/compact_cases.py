"""Modules that every algorithm must get right: odd sizes, rows of -inf, large offsets, NaN; one dimension and several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def rand(*shape: int, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(*shape) + shift


def masked(rows: int, columns: int) -> torch.Tensor:
    """Rows with -inf here and there, one of them with nothing else but one element."""
    x = torch.randn(rows, columns)
    x[x > 0.7] = float("-inf")
    x[1] = float("-inf")
    x[1, columns // 2] = 2.0
    return x


def special(rows: int, columns: int) -> torch.Tensor:
    """A row of -inf alone, one with NaN, one with both infinities."""
    x = torch.randn(rows, columns)
    x[0] = float("-inf")
    x[1, columns - 1] = float("nan")
    x[2, 0], x[2, columns - 1] = float("inf"), float("-inf")
    return x


CASES: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), lambda: [rand(5, 131)]),
    "softmax_masked": (lambda x: torch.softmax(x, -1), lambda: [masked(4, 1300)]),
    "softmax_special": (lambda x: torch.softmax(x, -1), lambda: [special(5, 77)]),
    "softmax_far": (lambda x: torch.log_softmax(x, -1), lambda: [rand(3, 1111, shift=4000.0)]),
    "softmax_columns": (lambda x: torch.softmax(x, 1), lambda: [rand(3, 37, 21)]),
    "softmax_two_axes": (
        lambda x: torch.softmax(x.transpose(1, 2).flatten(1), -1),
        lambda: [rand(3, 9, 11)],
    ),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (97,), w, b),
        lambda: [rand(6, 97), rand(97), rand(97)],
    ),
    "layer_norm_far": (lambda x: F.layer_norm(x, (1300,)), lambda: [rand(4, 1300, shift=300.0)]),
    "layer_norm_constant": (
        lambda x: F.layer_norm(x, (128,)),
        lambda: [torch.full((3, 128), 123.5)],
    ),
    "layer_norm_nan": (lambda x: F.layer_norm(x, (150,)), lambda: [special(5, 150)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (131,), w, 1e-6), lambda: [rand(5, 131), rand(131)]),
    "group_norm": (
        lambda x, w, b: F.silu(F.group_norm(x, 3, w, b)),
        lambda: [rand(2, 6, 7, 5, shift=9.0), rand(6), rand(6)],
    ),
    "variance_columns": (lambda x: x.var(0), lambda: [rand(130, 19, shift=50.0)]),
    "std_rows": (lambda x: x.std(-1), lambda: [rand(7, 261, shift=100.0)]),
    "sum_all": (lambda x: x.sum(), lambda: [rand(13, 77)]),
    "mean_middle": (lambda x: x.mean(1), lambda: [rand(3, 41, 17)]),
    "max_rows": (lambda x: torch.amax(x, -1), lambda: [special(6, 203)]),
    "min_columns": (lambda x: torch.amin(x, 0), lambda: [rand(45, 33)]),
    "logsumexp": (lambda x: torch.logsumexp(x * 3, -1), lambda: [special(5, 140)]),
    "product": (lambda x: x.prod(-1), lambda: [rand(5, 23)]),
    "pointwise": (lambda x, y: torch.tanh(x) * y + 1, lambda: [rand(33, 37), rand(33, 37)]),
    "elementary": (
        lambda x, y: (
            torch.remainder(x, 0.75) + torch.atan2(x, y) - torch.fmod(y, 0.5),
            torch.sinh(x),
            torch.hypot(x, y),
            x.signbit(),
        ),
        lambda: [rand(9, 37), rand(9, 37)],
    ),
    "any": (lambda x: ((x > 1).any(-1), torch.nansum(x, -1)), lambda: [special(6, 77)]),
    "whole": (
        lambda x: ((x % 3) * 2 - x // 4, x & 6, x << 2),
        lambda: [torch.randint(-40, 40, (9, 37))],
    ),
    "broadcast": (lambda x, b: F.gelu(x + b[:, None]) * 2, lambda: [rand(5, 19, 23), rand(19)]),
    "transposed": (lambda x, y: torch.relu(x.t()) + y, lambda: [rand(35, 27), rand(27, 35)]),
    "linear_gelu": (
        lambda x, w, b: F.gelu(F.linear(x, w, b)) * 0.5,
        lambda: [rand(9, 20), rand(31, 20), rand(31)],
    ),
    "matmul_softmax": (
        lambda x, y: torch.softmax((x @ y) * 0.3, -1),
        lambda: [rand(2, 9, 8), rand(2, 8, 15)],
    ),
    "product_few_rows": (
        lambda x, w, b: torch.tanh(F.linear(x, w, b)),
        lambda: [rand(3, 300), rand(45, 300), rand(45)],
    ),
    "product_long": (
        lambda x, w, y: F.silu(x @ w) + y,
        lambda: [rand(37, 530), rand(530, 41), rand(41)],
    ),
    "product_batches": (
        lambda x, y: (torch.relu(x) @ y.transpose(1, 2)).clamp(-1, 1),
        lambda: [rand(3, 20, 33), rand(3, 35, 33)],
    ),
    "product_gate": (
        lambda x, v, w: torch.sigmoid(F.linear(x, v)) * F.linear(x, w),
        lambda: [rand(19, 50), rand(34, 50), rand(34, 50)],
    ),
    "product_half": (
        lambda x, w, b: F.relu(F.linear(x, w, b)),
        lambda: [rand(20, 36).half(), rand(33, 36).half(), rand(33).half()],
    ),
    "product_vector": (
        lambda x, w: torch.mv(x, w).exp(),
        lambda: [rand(70, 150, shift=0.1) * 0.1, rand(150) * 0.1],
    ),
    "product_norm": (
        lambda x, w: F.layer_norm(F.linear(x, w), (30,)),
        lambda: [rand(21, 40), rand(30, 40)],
    ),
    "conv_norm": (
        lambda x, w: F.relu(F.group_norm(F.conv2d(x, w), 2)) + 0.25,
        lambda: [rand(2, 3, 9, 9), rand(4, 3, 3, 3)],
    ),
    "conv_lines": (
        lambda x, w: F.conv1d(x, w).clamp(-1, 1) * 3,
        lambda: [rand(2, 3, 50), rand(4, 3, 3)],
    ),
}
