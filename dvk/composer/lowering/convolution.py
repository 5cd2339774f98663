"""Lowering rules for convolutions: windows of the input, multiplied by the weight and summed over channels and places.

A window is the affine view of `windows`, so the prologue of a convolution is read through its bounds, and the epilogue reads the sum once
per element. Families, each behind a separate recipe: depthwise (one input channel per group, whose few multiplications per output are
memory bound: a `window` kernel), pointwise (a matmul over channels) and few input channels (a matmul over channels and places). On GPUs a
fourth covers others of up to 32 channels: a matmul whose rows are read through the windows (`implicit`), place by place, with the channels
innermost. Its input is read from memory as it is, since what every place recomputed would be slower than reading it. Convolutions of more
channels stay with the library.

fp16 and bf16 are multiplied exactly and summed in float32; float32 is multiplied in TF32 only if the task declares that class. Padding is
zeros that are multiplied: a non-finite weight gives NaN at an edge, where torch mostly skips the place. On CPUs the drop-in checks the
weights, once until they change, and runs the original if one is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dvk.composer.ir.nodes import FLOATS, View, register_type
from dvk.composer.lowering import matmul
from dvk.composer.lowering.dispatch import Lowering, codegen_rule, padded
from dvk.composer.lowering.pointwise import finish
from dvk.composer.lowering.pooling import PoolingWindow, per_dim, windows
from dvk.records import Node

DEPTHWISE, POINTWISE, DIRECT, IMPLICIT, TRANSPOSED = (
    "own_depthwise",
    "own_pointwise",
    "own_few_channels",
    "own_convolution",
    "own_transposed",
)
TRANSPOSED_FINITE = "own_transposed_finite"
PRODUCTS = (matmul.RECIPE, DEPTHWISE, POINTWISE, DIRECT, IMPLICIT, TRANSPOSED, TRANSPOSED_FINITE)
"""Recipes whose kernels multiply and sum at once, or not at all."""
OPERATORS = ("conv1d", "conv2d", "conv3d")
FEW_CHANNELS = 4
"""Input channels of a group up to which the library's blocked channel layouts are mostly padding."""
FEW_OUTPUTS, FEW_TERMS = 4, 32
"""Output channels and multiplications each up to which a convolution is bound by memory; a tile of a matmul has 16 of them at least."""
MOST_CHANNELS = 32
"""Input channels of a group up to which an implicit matmul was faster than the library and a kernel behind it: on an H200 with 32 channels
1.1 times in TF32 and 1.6 in bf16, but with 64 and more 0.3 to 0.8 times (`tests.benchmarks.convolutions`)."""


@dataclass(frozen=True)
class Convolution:
    """A call of `conv1d` to `conv3d`: x [N?, groups·c, *sizes], weight [groups·o, c, *window]."""

    x: View
    weight: View
    bias: View | None
    over: tuple[PoolingWindow, ...]
    """One window per spatial dimension."""
    groups: int

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return self.weight.shape[1]

    @property
    def is_depthwise(self) -> bool:
        return self.channels == 1 and self.groups > 1

    @property
    def is_pointwise(self) -> bool:
        return self.groups == 1 and all(
            w.size == w.stride == 1 and w.count == w.length for w in self.over
        )


def described(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Convolution | None:
    """The operands of the call; None for arguments or types that kernels do not cover."""
    x, weight, bias, stride, padding, dilation, groups = padded(args, None, None, None, 1, 0, 1, 1)
    if kwargs or x.dtype not in FLOATS or weight.dtype != x.dtype or node.shape is None:
        return None
    count = len(weight.shape) - 2
    strides, gaps = per_dim(stride, count, []), per_dim(dilation, count, [])
    sizes, first = weight.shape[2:], len(x.shape) - count
    if padding in ("same", "valid"):
        ahead: list[int] | None = [
            (size - 1) * gap // 2 if padding == "same" else 0
            for size, gap in zip(sizes, gaps or (), strict=True)
        ]
    else:
        ahead = per_dim(padding, count, [])
    if not strides or not gaps or not ahead:
        return None
    dims = zip(
        range(first, len(x.shape)),
        x.shape[first:],
        node.shape[first:],
        sizes,
        strides,
        ahead,
        gaps,
        strict=True,
    )
    return Convolution(x, weight, bias, tuple(PoolingWindow(*dim) for dim in dims), groups)


def lowered(low: Lowering, conv: Convolution, **marks: Any) -> View:
    """The convolution in the register type, with bias; `marks` name the family of its sum."""
    kind, count, groups = register_type(conv.x.dtype), len(conv.over), conv.groups
    many = conv.x.shape[: -1 - count]
    places, sizes = tuple(w.count for w in conv.over), tuple(w.size for w in conv.over)
    outputs = conv.weight.shape[0] // groups
    implicit = bool(marks.get("implicit"))
    if implicit and conv.x.base.kind == "pw":
        low.kept_whole.add(conv.x.base)
    view = windows(low, conv.x, conv.over, 0.0, implicit)
    # [N, groups·c, *places, *window] → [N, groups, 1, *places, c, *window]
    parted = (*many, groups, conv.channels, *places, *sizes)
    view = view.then("reshape", parted, parted)
    rank, at = len(parted), len(many) + 1
    order = (*range(at), *range(at + 1, at + 1 + count), at, *range(rank - count, rank))
    view = view.then("permute", order, tuple(parted[d] for d in order))
    # Drop a dimension of one element, so that slices of the result are slices of the sum.
    lead = (1,) if groups == 1 else (groups,) if outputs == 1 else (groups, 1)
    spread = (*many, *lead, *places, conv.channels, *sizes)
    view = view.then("reshape", spread, spread)
    lead = (outputs,) if groups == 1 else (groups,) if outputs == 1 else (groups, outputs)
    weight_shape = (*lead, *(1 for _ in places), conv.channels, *sizes)
    weight = conv.weight.then("reshape", weight_shape, weight_shape)
    steps = tuple((w.stride, w.dilation) for w in conv.over)
    # A sum of one term is ordinary pointwise work.
    marks = (
        {"own": True, "contracted": steps, **marks}
        if math.prod(sizes) * conv.channels > 1
        else {"own": True}
    )
    times = low.pointwise("mul", view, weight, dtype=kind, compute=kind, **marks)
    rank = len(times.shape)
    value = low.reduce("sum", times, tuple(range(rank - 1 - count, rank)), False, **marks)
    shape = (*many, groups * outputs, *places)
    value = value.then("reshape", shape, shape)
    if conv.bias is None:
        return value
    across = (groups * outputs, *(1 for _ in places))
    return low.pointwise("add", value, conv.bias.then("reshape", across, across), compute=kind)


def _rule(
    recipe: str,
    covers: Callable[[Convolution], bool],
    marks: Callable[[Lowering, Convolution], dict[str, Any]],
) -> None:
    @codegen_rule(recipe, *OPERATORS)
    def convolve(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
        conv = described(node, args, kwargs)
        if (
            conv is None
            or not covers(conv)
            or not low.assume_finite(
                node.args[1], (n for w in conv.over for n in (w.ahead, w.behind))
            )
        ):
            return None
        return finish(low, node, lowered(low, conv, **marks(low, conv)))


def _product(low: Lowering, conv: Convolution) -> dict[str, Any]:
    return {"product": True, "tf32": low.tf32 and conv.x.dtype == "float32"}


_rule(DEPTHWISE, lambda conv: conv.is_depthwise, lambda low, conv: {"window": True})
_rule(POINTWISE, lambda conv: conv.is_pointwise, _product)


def _direct(low: Lowering, conv: Convolution) -> dict[str, Any]:
    """On a GPU the tiles of a matmul would be empty for a few outputs: they are read through windows, as memory allows."""
    terms = conv.channels * math.prod(w.size for w in conv.over)
    few = conv.weight.shape[0] <= FEW_OUTPUTS and terms <= FEW_TERMS
    return {"window": True} if few and low.device == "cuda" else _product(low, conv)


_rule(
    DIRECT,
    lambda conv: conv.channels <= FEW_CHANNELS and not conv.is_depthwise and not conv.is_pointwise,
    _direct,
)
_rule(
    IMPLICIT,
    lambda conv: FEW_CHANNELS < conv.channels <= MOST_CHANNELS and not conv.is_pointwise,
    lambda low, conv: {**_product(low, conv), "implicit": True},
)
