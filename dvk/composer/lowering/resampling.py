"""Lowering rules for reads at indices computed from the result's own: resampling, rolls, reflecting or replicating padding.

Sources: the index formulas of PyTorch's documentation of `interpolate` (`align_corners`, "nearest", "nearest-exact"); they are computed in
float32, as PyTorch computes them.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from dvk.composer.ir.nodes import FLOATS, View
from dvk.composer.lowering.dispatch import Lowering, codegen_rule, padded
from dvk.composer.lowering.indexing import RECIPE, gathered, place_of
from dvk.composer.lowering.pointwise import finish
from dvk.records import Node


@codegen_rule(
    RECIPE,
    "pad",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
)
def _pad(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, amounts, mode = padded(args, None, None, "constant")[:3]
    mode = {"refl": "reflect", "repl": "replicate"}.get(
        node.op.split(".")[1][:4], kwargs.get("mode", mode)
    )
    if (
        mode not in ("reflect", "replicate", "circular")
        or not any(amounts)
        or not all(type(n) is int and n >= 0 for n in amounts)
    ):
        return None
    shape, rank = tuple(node.shape or ()), len(x.shape)
    at: list[int | View] = list(range(rank))
    for n in range(len(amounts) // 2):
        dim = rank - 1 - n
        last = x.shape[dim] - 1
        if not any(amounts[2 * n : 2 * n + 2]):
            continue
        place = low.pointwise("sub", place_of(low, dim, shape), amounts[2 * n])
        if mode == "reflect":
            place = low.pointwise(
                "sub",
                last,
                low.pointwise("abs", low.pointwise("sub", last, low.pointwise("abs", place))),
            )
        elif mode == "replicate":
            place = low.pointwise("min", low.pointwise("max", place, 0), last)
        else:
            for beyond, shift in (
                (low.pointwise("lt", place, 0), last + 1),
                (low.pointwise("gt", place, last), -last - 1),
            ):
                place = low.pointwise(
                    "where", beyond, low.pointwise("add", place, shift), place, compute="int32"
                )
        at[dim] = place
    return finish(low, node, gathered(low, x, at, shape, sure=True))


@codegen_rule(RECIPE, "roll")
def _roll(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, shifts, dims = padded(args, None, None, [])
    shifts, dims = (
        [v] if isinstance(v, int) else list(v) for v in (shifts, kwargs.get("dims", dims))
    )
    dims = [dim % len(x.shape) for dim in dims if x.shape]
    if not dims or len(set(dims)) != len(shifts):
        return None
    at: list[int | View] = list(range(len(x.shape)))
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        place = low.pointwise("sub", place_of(low, dim, x.shape), shift % size if size else 0)
        at[dim] = low.pointwise(
            "where",
            low.pointwise("lt", place, 0),
            low.pointwise("add", place, size),
            place,
            compute="int32",
        )
    return finish(low, node, gathered(low, x, at, x.shape, sure=True))


@codegen_rule(
    RECIPE,
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
)
def _nearest(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, shape = args[0], tuple(node.shape or ())
    steps = _steps(node, args, x, shape)
    if steps is None:
        return None
    at: list[int | View] = list(range(len(x.shape)))
    for n, step in enumerate(steps):
        dim = n + 2
        place = place_of(low, dim, shape, "float32")
        place = low.pointwise("add", place, 0.5) if "exact" in node.op else place
        at[dim] = low.pointwise(
            "min", _floor(low, low.pointwise("mul", place, step)), x.shape[dim] - 1
        )
    return finish(low, node, gathered(low, x, at, shape, sure=True))


@codegen_rule(RECIPE, "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def _linear(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, shape = args[0], tuple(node.shape or ())
    corners = args[2]
    steps = _steps(node, [args[0], args[1], *args[3:]], x, shape)
    if steps is None or x.dtype not in FLOATS or x.dtype == "float64":
        return None
    ends: list[tuple[tuple[View, View], tuple[View, View]]] = []
    for n, step in enumerate(steps):
        dim = n + 2
        if corners:
            step = (x.shape[dim] - 1) / (shape[dim] - 1) if shape[dim] > 1 else 0.0
        place = place_of(low, dim, shape, "float32")
        if corners:
            place = low.pointwise("mul", place, step)
        else:
            place = low.pointwise(
                "max",
                low.pointwise(
                    "sub", low.pointwise("mul", low.pointwise("add", place, 0.5), step), 0.5
                ),
                0.0,
            )
        first = low.pointwise("min", _floor(low, place), x.shape[dim] - 1)
        second = low.pointwise("min", low.pointwise("add", first, 1), x.shape[dim] - 1)
        beyond = low.pointwise(
            "sub", place, low.typed(first, "float32")
        )  # where it is more than one, both ends are the last element
        ends.append(((first, low.pointwise("sub", 1.0, beyond)), (second, beyond)))
    total: View | None = None
    for corner in product(*ends):
        value = low.typed(
            gathered(low, x, (0, 1, *(place for place, _ in corner)), shape, sure=True), "float32"
        )
        for _, weight in reversed(corner):
            value = low.pointwise("mul", value, weight)
        total = value if total is None else low.pointwise("add", total, value)
    return finish(low, node, total) if total is not None else None


def _floor(low: Lowering, place: View) -> View:
    return low.pointwise("as", low.pointwise("floor", place), dtype="int32", compute="int32")


def _steps(node: Node, args: list[Any], x: View, shape: tuple[int, ...]) -> list[float] | None:
    """Distance in the input per step of the output along each resampled dimension; None for arguments not understood."""
    count = len(x.shape) - 2
    factors = padded(args, None, None, None)[2] if node.op.endswith(".vec") else None
    given = [f for f in factors or [] if isinstance(f, float) and f > 0]
    if not node.op.endswith(".vec") and any(v is not None for v in args[2:]):
        return None
    if factors and len(given) != count:
        return None
    sizes = [(x.shape[n + 2], shape[n + 2]) for n in range(count)]
    if not all(math.prod(pair) for pair in sizes):
        return None
    if any(
        after in (before, 2 * before) and factor * before != after
        for factor, (before, after) in zip(given, sizes, strict=False)
    ):
        return None  # for equal or doubled sizes PyTorch's CPU loops use the sizes, whatever the factor
    return [1.0 / f for f in given] if factors else [before / after for before, after in sizes]


CUBIC = -0.75
"""PyTorch's coefficient of cubic convolution."""


@codegen_rule(RECIPE, "upsample_bicubic2d")
def _cubic(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    """Four places along each dimension, clamped to the edges; the four rows are summed up first along their columns, as PyTorch does."""
    x, shape = args[0], tuple(node.shape or ())
    corners = args[2]
    steps = _steps(node, [args[0], args[1], *args[3:]], x, shape)
    if steps is None or x.dtype not in FLOATS or x.dtype == "float64":
        return None
    ends: list[list[tuple[View, View]]] = []
    for n, step in enumerate(steps):
        dim = n + 2
        place = place_of(low, dim, shape, "float32")
        if corners:
            step = (x.shape[dim] - 1) / (shape[dim] - 1) if shape[dim] > 1 else 0.0
            place = low.pointwise("mul", place, step)
        else:
            place = low.pointwise(
                "sub", low.pointwise("mul", low.pointwise("add", place, 0.5), step), 0.5
            )
        first = _floor(low, place)
        beyond = low.pointwise("sub", place, low.typed(first, "float32"))
        last = x.shape[dim] - 1
        places = [
            low.pointwise("min", low.pointwise("max", low.pointwise("add", first, by), 0), last)
            for by in (-1, 0, 1, 2)
        ]
        ends.append(list(zip(places, _cubic_weights(low, beyond), strict=True)))
    total: View | None = None
    for row, row_weight in ends[0]:
        line: View | None = None
        for column, weight in ends[1]:
            value = low.typed(gathered(low, x, (0, 1, row, column), shape, sure=True), "float32")
            value = low.pointwise("mul", value, weight)
            line = value if line is None else low.pointwise("add", line, value)
        assert line is not None
        line = low.pointwise("mul", line, row_weight)
        total = line if total is None else low.pointwise("add", total, line)
    return finish(low, node, total) if total is not None else None


def _cubic_weights(low: Lowering, beyond: View) -> list[View]:
    """Weights of the elements at -1, 0, 1 and 2 of a place `beyond` the element at 0."""
    a = CUBIC
    other = low.pointwise("sub", 1.0, beyond)

    def polynomial(x: View, *numbers: float) -> View:
        value: View = low.pointwise("mul", x, numbers[0])
        for number in numbers[1:-1]:
            value = low.pointwise("mul", low.pointwise("add", value, number), x)
        return low.pointwise("add", value, numbers[-1])

    def far(x: View) -> View:
        return polynomial(low.pointwise("add", x, 1.0), a, -5 * a, 8 * a, -4 * a)

    def near(x: View) -> View:
        value = low.pointwise("sub", low.pointwise("mul", x, a + 2), a + 3)
        square = low.pointwise("mul", low.pointwise("mul", value, x), x)
        return low.pointwise("add", square, 1.0)

    return [far(beyond), near(beyond), near(other), far(other)]
