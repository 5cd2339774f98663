"""Small modules that exercise every family of the Triton renderer, every type, and every scalar operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Function(nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@dataclass(frozen=True)
class Case:
    """One module with inputs; `bound` is the allowed error relative to |reference| + its rms."""

    function: Callable[..., Any]
    args: Callable[[], list[Any]]
    bound: float = 2e-6
    kinds: frozenset[str] = frozenset()
    """Schedule kinds that must be among the options."""
    gpu: bool = True
    """Eager PyTorch computes it on a GPU, too."""
    interpreted: frozenset[str] = frozenset()
    """Schedule kinds that Triton's interpreter computes right; empty for all. It has no bf16 products, nor bf16 from integers."""


def rand(*shape: int, dtype: torch.dtype = torch.float32, shift: float = 0.0) -> torch.Tensor:
    return (torch.randn(*shape, dtype=torch.float64) + shift).to(dtype)


def kinds(*names: str) -> frozenset[str]:
    return frozenset(names)


SPREAD = [
    0.0,
    1e-30,
    1e-12,
    1e-7,
    3e-4,
    0.01,
    0.1,
    0.3,
    0.49,
    0.51,
    0.7,
    1.0,
    1.5,
    2.5,
    3.7,
    8.0,
    19.0,
    40.0,
    80.0,
]


def both_signs() -> torch.Tensor:
    values = torch.tensor(SPREAD)
    return torch.cat([values, -values, torch.linspace(-12, 12, 201)])


def positive() -> torch.Tensor:
    return torch.cat(
        [
            torch.tensor(SPREAD)[2:],
            torch.linspace(0.01, 9, 150),
            torch.tensor([1e30, 1.0001, 0.9999]),
        ]
    )


def within_one() -> torch.Tensor:
    values = torch.tensor(SPREAD[:12] + [0.999, 0.9999999])
    return torch.cat([values, -values, torch.linspace(-1, 1, 101)])


HALF, BRAIN = torch.float16, torch.bfloat16

CASES: dict[str, Case] = {
    # pointwise
    "bias_gelu": Case(
        lambda x, b: F.gelu(x + b), lambda: [rand(33, 70), rand(70)], kinds=kinds("flat", "tile")
    ),
    "same_shape_exact": Case(
        lambda x, y: torch.relu(x) * y + 1,
        lambda: [rand(16, 64), rand(16, 64)],
        kinds=kinds("flat"),
    ),
    "channel_affine": Case(
        lambda x, w, b: F.silu(x * w[:, None, None] + b[:, None, None]),
        lambda: [rand(2, 5, 9, 8), rand(5), rand(5)],
    ),
    "transpose_add": Case(
        lambda x, y: x.t() + y, lambda: [rand(70, 50), rand(50, 70)], kinds=kinds("tile", "flat")
    ),
    "permute_outer": Case(
        lambda x: x.permute(0, 2, 1).contiguous() * 2,
        lambda: [rand(3, 40, 33)],
        kinds=kinds("tile"),
    ),
    "strided_input": Case(lambda x: torch.tanh(x) + 1, lambda: [rand(40, 64)[:, ::2]]),
    "expanded_input": Case(lambda x, y: x * y, lambda: [rand(7, 1).expand(7, 30), rand(7, 30)]),
    "sliced": Case(lambda x: F.glu(x, -1), lambda: [rand(9, 44)]),
    "scalar": Case(lambda x: x * 2 + 1, lambda: [torch.tensor(0.3)]),
    "two_outputs": Case(lambda x, y: (x + y, torch.exp(x)), lambda: [rand(21, 5), rand(21, 5)]),
    "gelu": Case(F.gelu, lambda: [both_signs()]),
    "gelu_tanh": Case(lambda x: F.gelu(x, approximate="tanh"), lambda: [both_signs()]),
    "triangle": Case(lambda x: torch.tril(x, 1) + torch.triu(x), lambda: [rand(2, 19, 23)]),
    # rows
    "softmax": Case(
        lambda x: torch.softmax(x, -1), lambda: [rand(9, 300)], kinds=kinds("persistent")
    ),
    "softmax_short": Case(
        lambda x: torch.softmax(x, -1), lambda: [rand(530, 9)], kinds=kinds("persistent")
    ),
    "softmax_loop": Case(
        lambda x: torch.softmax(x, -1), lambda: [rand(3, 2100)], kinds=kinds("persistent", "looped")
    ),
    "odd_elements": Case(
        lambda x: F.silu(x) + 1, lambda: [rand(3, 1367).to(torch.float16)], 2e-3, kinds("flat")
    ),
    "odd_total": Case(
        lambda x, y: F.smooth_l1_loss(x, y),
        lambda: [rand(3, 3001), rand(3, 3001)],
        kinds=kinds("split"),
    ),
    "odd_variance": Case(lambda x: x.var(), lambda: [rand(3, 3001, shift=3)], 2e-5, kinds("split")),
    "log_softmax_split": Case(
        lambda x: torch.log_softmax(x * 4, -1),
        lambda: [rand(2, 8500)],
        kinds=kinds("looped", "split"),
    ),
    "layer_norm": Case(
        lambda x, w, b: F.layer_norm(x, (130,), w, b), lambda: [rand(7, 130), rand(130), rand(130)]
    ),
    "layer_norm_far": Case(
        lambda x: F.layer_norm(x, (3000,)), lambda: [rand(2, 3000, shift=30)], 2e-5, kinds("looped")
    ),
    "residual_rms": Case(
        lambda x, r, w: (x + r, F.rms_norm(x + r, (64,), w, 1e-6)),
        lambda: [rand(90, 64), rand(90, 64), rand(64)],
    ),
    "group_norm": Case(
        lambda x, w, b: F.group_norm(x, 2, w, b), lambda: [rand(2, 6, 23, 19), rand(6), rand(6)]
    ),
    "row_max_keepdim": Case(lambda x: x - torch.amax(x, -1, True), lambda: [rand(31, 75)]),
    "row_min_prod": Case(lambda x: (torch.amin(x, 1), torch.prod(x, 1)), lambda: [rand(6, 24)]),
    "constant_operand": Case(
        lambda x: (x[:, :1].expand(8, 50) * 2).sum(1) + x.sum(1), lambda: [rand(8, 50)]
    ),
    # columns
    "sum_columns": Case(
        lambda x: x.sum(0), lambda: [rand(100, 70)], kinds=kinds("persistent", "looped")
    ),
    "softmax_columns": Case(
        lambda x: torch.softmax(x, 1),
        lambda: [rand(2, 37, 45)],
        kinds=kinds("persistent", "looped"),
    ),
    "standardize_columns": Case(
        lambda x: (x - x.mean(0)) / x.std(0),
        lambda: [rand(260, 24, shift=5)],
        1e-5,
        kinds("looped"),
    ),
    "split_columns": Case(
        lambda x: x.var(0) + x.sum(0), lambda: [rand(1100, 12, shift=5)], 1e-5, kinds("split")
    ),
    "middle_max": Case(lambda x: torch.amax(x, 1), lambda: [rand(3, 33, 40)]),
    "channel_norm": Case(
        lambda x: x / (x * x).mean(1, keepdim=True).sqrt(), lambda: [rand(2, 12, 8, 9)]
    ),
    # full reductions and losses
    "mean_square": Case(
        lambda x, y: ((x - y) ** 2).mean(),
        lambda: [rand(61, 101), rand(61, 101)],
        kinds=kinds("split", "looped"),
    ),
    "batch_variance": Case(
        lambda x: torch.var(x + 100, (0, 2, 3)), lambda: [rand(4, 3, 31, 29)], 2e-5, kinds("split")
    ),
    "cross_entropy": Case(F.cross_entropy, lambda: [rand(20, 300), torch.randint(0, 300, (20,))]),
    "cross_entropy_ignored": Case(
        lambda x, t: F.cross_entropy(x, t, ignore_index=3, reduction="none"),
        lambda: [rand(12, 1500), torch.arange(12)],
        kinds=kinds("looped"),
    ),
    "cross_entropy_split": Case(
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
        lambda: [rand(2, 9000), torch.randint(0, 9000, (2,))],
        kinds=kinds("split"),
    ),
    "logsumexp": Case(lambda x: torch.logsumexp(x, 1), lambda: [rand(8, 90)]),
    "count": Case(lambda x: (x > 0).sum(1), lambda: [rand(9, 50)]),
    # types
    "half": Case(
        lambda x, b: F.gelu(x + b), lambda: [rand(20, 48, dtype=HALF), rand(48, dtype=HALF)], 2e-3
    ),
    "beyond_half": Case(
        lambda x: torch.where(x > 0, 1e6, x) / 1e6 > 2,
        lambda: [rand(20, 48, dtype=HALF)],
        gpu=False,
    ),
    "brain": Case(
        lambda x, w: F.rms_norm(x, (48,), w, 1e-6),
        lambda: [rand(20, 48, dtype=BRAIN), rand(48, dtype=BRAIN)],
        2e-2,
    ),
    "double": Case(
        lambda x: torch.softmax(torch.tanh(x) * 0.1, -1) + F.gelu(x).expm1(),
        lambda: [rand(5, 40, dtype=torch.float64)],
        1e-14,
    ),
    "mask": Case(
        lambda x, m: torch.softmax(x.masked_fill(m, float("-inf")), -1),
        lambda: [rand(9, 30), torch.rand(9, 30) > 0.7],
    ),
    "bool_output": Case(
        lambda x, y: ((x > y) | (x == 0), torch.logical_not(x < y)),
        lambda: [rand(11, 13), rand(11, 13)],
    ),
    "casts": Case(
        lambda x: (
            x.to(HALF),
            x.to(BRAIN),
            x.to(torch.int32),
            (x * 20).to(torch.int8),
            x.to(torch.float64),
            x.to(torch.bool),
        ),
        lambda: [rand(9, 20) * 3],
        8e-3,
    ),
    "integers": Case(
        lambda a, b: (a + b * 3, torch.clamp(a, -2, 2), a.float() / 3, torch.maximum(a, b)),
        lambda: [torch.randint(-9, 9, (7, 11)), torch.randint(-9, 9, (7, 11))],
    ),
    "bytes": Case(
        lambda a: (a + 250, a.float() / 255),
        lambda: [torch.randint(0, 255, (7, 11), dtype=torch.uint8)],
    ),
}

SCALARS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[], torch.Tensor]]] = {
    **{
        name: (getattr(torch, name), both_signs)
        for name in (
            "exp",
            "expm1",
            "tanh",
            "erf",
            "sin",
            "cos",
            "sigmoid",
            "floor",
            "ceil",
            "trunc",
            "round",
            "abs",
            "neg",
            "sign",
            "exp2",
            "relu",
            "isnan",
            "isinf",
            "logical_not",
            "tan",
            "atan",
            "sinh",
            "cosh",
            "asinh",
            "signbit",
            "sinc",
        )
    },
    **{name: (getattr(torch, name), within_one) for name in ("asin", "acos", "atanh", "erfinv")},
    "acosh": (torch.acosh, lambda: 1 + positive()),
    "log10": (torch.log10, positive),
    **{
        name: (lambda x, name=name: getattr(torch, name)(x, x.flip(0)), both_signs)
        for name in ("atan2", "fmod", "remainder", "hypot", "copysign", "fmax", "fmin")
    },
    "fmod of far": (lambda x: torch.fmod(x * 2.0**90, x.flip(0)), both_signs),
    "x % c": (lambda x: x % -0.75, both_signs),
    "x // c": (lambda x: torch.div(x, 0.75, rounding_mode="floor"), both_signs),
    "isclose": (lambda x: torch.isclose(x, x * (1 + 1e-5)), both_signs),
    **{
        name: (getattr(torch, name), positive)
        for name in ("log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal")
    },
    "log1p_negative": (
        torch.log1p,
        lambda: -torch.tensor([0.0, 1e-12, 1e-7, 1e-3, 0.1, 0.5, 0.9, 0.999]),
    ),
    "round_halves": (
        torch.round,
        lambda: torch.cat(
            [torch.arange(-6, 7) + 0.5, torch.tensor([8388607.5, -8388607.5, 4194303.5, 3e9])]
        ),
    ),
    "softplus": (F.softplus, both_signs),
    "mish": (F.mish, both_signs),
    "silu": (F.silu, both_signs),
    "elu": (F.elu, both_signs),
    "selu": (F.selu, both_signs),
    "logsigmoid": (F.logsigmoid, both_signs),
    "hardswish": (F.hardswish, both_signs),
    "softshrink": (F.softshrink, both_signs),
    "clamp": (lambda x: torch.clamp(x, -1.5, 0.75), both_signs),
    "where": (lambda x: torch.where(x > 1, x, 0.5), both_signs),
    "where_numbers": (lambda x: torch.where(x > 1, 1.0, 0.25), both_signs),
    "minimum": (lambda x: torch.minimum(x, -x * 2), both_signs),
    "compare": (lambda x: (x >= 0.5) & (x != 3.7), both_signs),
    "leaky": (lambda x: F.leaky_relu(x, 0.1), both_signs),
}

SINGLE = ("fmod", "remainder", "fmod of far", "x % c", "x // c", "erfinv")
"""Those that stay calls of PyTorch in double precision."""

SPECIAL = [float("nan"), float("inf"), float("-inf"), 0.0, 1.0, -1.0]

SPECIALS: dict[str, Callable[[torch.Tensor], Any]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "asinh",
            "acosh",
            "atanh",
            "log10",
            "erfinv",
            "sinc",
        )
    },
    **{
        name: lambda x, name=name: getattr(torch, name)(x, x.flip(1) * 0.5)
        for name in (
            "atan2",
            "fmod",
            "remainder",
            "hypot",
            "copysign",
            "fmax",
            "fmin",
            "floor_divide",
            "heaviside",
        )
    },
    "nansum": lambda x: torch.nansum(x, 1),
    "relu": torch.relu,
    "clamp": lambda x: torch.clamp(x, -0.5, 0.5),
    "maximum": lambda x: torch.maximum(x, x.flip(1).clone()),
    "tanh": torch.tanh,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sigmoid": torch.sigmoid,
    "isnan": torch.isnan,
    "amax": lambda x: torch.amax(x, 1),
    "amin": lambda x: torch.amin(x, 1),
    "amax_columns": lambda x: torch.amax(x, 0),
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "sum": lambda x: x.sum(1),
    "softmax_of_max": lambda x: torch.softmax(x, 1) + torch.amax(x, 1, True),
}
WIDE = (
    "bias_gelu",
    "transpose_add",
    "softmax",
    "log_softmax_split",
    "layer_norm_far",
    "odd_total",
    "odd_variance",
    "sum_columns",
    "cross_entropy",
)
"""Cases that are also run with 64-bit offsets."""
LONG = ("amax", "amin", "softmax", "log_softmax", "softmax_of_max")
"""Cases that are also run on rows long enough for loops."""


def special_rows(columns: int) -> torch.Tensor:
    """Finite rows, and rows with one or only special values."""
    rows = [torch.linspace(-2, 2, columns) for _ in range(len(SPECIAL) + 3)]
    for position, value in enumerate(SPECIAL):
        rows[position][(position * 7) % columns] = value
    rows[-3][:] = float("-inf")
    rows[-2][columns // 2 :] = float("-inf")
    return torch.stack(rows)
