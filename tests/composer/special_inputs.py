"""Tensors with NaN, infinities, huge and tiny values, all patterns in one tensor; a case, and what its result must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

NAN, INF = math.nan, math.inf


TINY = 1e-42
"""A denormal of float32."""
SCALARS = (
    NAN,
    INF,
    -INF,
    0.0,
    -0.0,
    1e30,
    -1e30,
    3e38,
    -3e38,
    TINY,
    -TINY,
    1e-30,
    0.5,
    -0.5,
    1.0,
    -1.0,
    2.5,
    -2.5,
    3.5,
    -3.0,
    20.5,
    -20.5,
    88.0,
    -88.0,
    100.0,
    -104.0,
    6.0,
    65504.0,
    65520.0,
    1e5,
    -1e5,
    16777217.0,
)


def rows(length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[patterns, length]: finite numbers with special ones at the row's start, middle and end, and rows of one value alone."""
    usual = torch.linspace(-2, 2, length).roll(length // 3)
    found = [usual]
    for values in ((NAN,), (INF,), (-INF,), (INF, -INF), (-INF, NAN), (NAN, INF)):
        for at in (0, length // 2, length - 2, length - len(values)):
            row = usual.clone()
            row[at : at + len(values)] = torch.tensor(values)
            found.append(row)
    found += [
        torch.full((length,), value) for value in (NAN, INF, -INF, 0.0, -0.0, 3.0, 1e30, TINY)
    ]
    last = torch.full((length,), -INF)
    last[-1] = 1.0
    first = torch.full((length,), -INF)
    first[0] = NAN
    found += [
        last,
        first,
        usual * 1e30,
        usual.abs() * 1e35,
        usual * 1e-40,
        -usual.abs(),
        usual * 40,
    ]
    return torch.stack(found).to(dtype)


def scalars(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Every special value, three times over, so that it falls into vector lanes and the remainder loop."""
    return torch.tensor(SCALARS * 3 + (NAN, INF, 1.0)).to(dtype)


def pairs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Every special value with every other."""
    x = torch.tensor(SCALARS[:22]).to(dtype)
    return x[:, None].expand(-1, len(x)).contiguous(), x.expand(len(x), -1).contiguous()


def image(height: int = 9, width: int = 11) -> torch.Tensor:
    """[2, 3, height, width] with special values in the corners, at the borders and inside, and a plane of -inf."""
    x = torch.linspace(-2, 2, 6 * height * width).roll(17).reshape(2, 3, height, width).clone()
    x[0, 0, 0, 0], x[0, 0, -1, -1], x[0, 1, 3, 4], x[0, 1, -1, 2] = NAN, NAN, INF, -INF
    x[1, 0] = -INF
    x[1, 1, 2, 2], x[1, 1, 2, 3], x[1, 1, 6, 7], x[1, 2, 0, 5], x[1, 2, 4, 0] = (
        INF,
        -INF,
        NAN,
        -INF,
        3e38,
    )
    return x


@dataclass(frozen=True)
class Case:
    """One program."""

    function: Callable[..., Any]
    args: tuple[torch.Tensor, ...]
    relative: float = 2e-5
    """Largest difference of finite results, relative to the value plus `scale`."""
    scale: torch.Tensor | None = None
    """One number per row of the results."""
    zero: bool = False
    """The sign of zeros counts."""


def columns(case: Case) -> Case:
    """The same with rows that are strided in memory."""
    return Case(
        lambda x: case.function(x.t()), (case.args[0].t().contiguous(),), case.relative, case.scale
    )


def wrong(found: Any, expected: Any, case: Case) -> str:
    """The first difference in words; empty if NaN, infinities and numbers are in the right elements."""
    leaves = torch.utils._pytree.tree_leaves
    for number, (a, b) in enumerate(zip(leaves(found), leaves(expected), strict=True)):
        a, b = a.cpu(), b.cpu()
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"#{number}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        if not b.is_floating_point():
            bad = a != b
        else:
            a, b = a.double(), b.double()
            size = b.abs()
            if case.scale is not None and b.dim() and len(b) == len(case.scale):
                size = size + case.scale.reshape(-1, *(1 for _ in b.shape[1:]))
            same = (a == b) | (a.isnan() & b.isnan())
            bad = ~same & ~(
                a.isfinite() & b.isfinite() & ((a - b).abs() <= case.relative * size + 1e-6)
            )
            if case.zero:
                bad |= (a == 0) & (b == 0) & (a.signbit() != b.signbit())
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            return f"#{number}{list(at)}: {a[at].item()} instead of {b[at].item()}, {int(bad.sum())} in all"
    return ""


def weight(*shape: int) -> torch.Tensor:
    """Moderate numbers of both signs, none of them 0."""
    values = torch.linspace(-1, 1, math.prod(shape) + 3)[2:-1]
    return (
        torch.where(values.abs() < 1e-3, 0.25, values)
        .roll(math.prod(shape) // 3)
        .reshape(shape)
        .clone()
    )


def matrix(count: int, width: int) -> torch.Tensor:
    """[count, width] with special values here and there."""
    x = weight(count, width).clone()
    x[0, 0], x[1, -1], x[2, width // 2], x[3, 1], x[3, 2] = NAN, INF, -INF, INF, -INF
    x[4, 0], x[5] = 1e30, 0.0
    return x


def zeroed(value: torch.Tensor) -> torch.Tensor:
    """With zeros, which an infinity turns into NaN."""
    value = value.clone()
    value.view(-1)[::5] = 0.0
    return value
