"""Matmuls of 8-bit floating-point codes with a scale for each block of k.

Checkpoints in the manner of DeepSeek-V3 hold a weight [N, K] with scales [N / 128, K / 128], activations [M, K] with scales [M, K / 128].
Dequantised, `Σ_k (x s)(w t)` is the sum over blocks b of `s_b t_b Σ_i x_bi w_bi`: the inner sum is one step of matrix units, the outer one
is in float32. An operand in fp16 or bf16 has no scales; the other's codes are multiplied in its type, which holds each of them.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.affine import (
    ZERO,
    Affine,
    Index,
    Var,
    contiguous_strides,
    linearize,
    radix,
    refine,
)
from dvk.composer.ir.effects import refs
from dvk.composer.ir.nodes import EIGHTHS, HALVES, View
from dvk.composer.ir.symint import SymbolicSize
from dvk.composer.lowering.dequantised import (
    CONVERSIONS,
    Dequantised,
    dequantised,
    finite_or_nan,
    scaled_by,
    through,
    without,
)
from dvk.composer.lowering.dispatch import Lowering

BLOCKS = (128, 64, 32)
"""Elements of k to a block; the longest that fits all scales is taken."""


def product_of_blocks(low: Lowering, left: View, right: View, marks: dict[str, Any]) -> View | None:
    """The product of two operands summed over their last dimension, in float32; None unless codes have scales of blocks."""
    length = left.shape[-1]
    if left.dtype == "float64" or isinstance(length, SymbolicSize):
        return None
    for size in BLOCKS:
        if length % size or length == size:
            continue
        one, other = _operand(left, size), _operand(right, size)
        if one is not None and other is not None and (_of_blocks(one) or _of_blocks(other)):
            rough = left.dtype in HALVES or _is_rounded(low)
            return _product(low, (one, other), size, rough, marks)
    return None


def _operand(view: View, size: int) -> Dequantised | None:
    """Codes with the scales that hold for a block, which have two dimensions of k, or for all of k; values of 16 bits without any."""

    def keep(part: View) -> View | None:
        whole = without(part, 1)
        return scale_of_blocks(part, size) if whole is None else whole

    made = dequantised(view, keep)
    if made is None:
        base = view.base
        if base.kind == "pw" and base.op in CONVERSIONS and view.dtype == "float32":
            inner = base.operands[0]
            if isinstance(inner, View) and inner.dtype in HALVES:
                view = through(inner, view)
        made = Dequantised(view, ())
    if made.codes.dtype not in (*EIGHTHS, *HALVES) or len(_of_blocks(made)) > 1:
        return None
    return made if _places(_in_blocks(made.codes, size)) is not None else None


def _of_blocks(side: Dequantised) -> list[View]:
    rank = len(side.codes.shape)
    return [f for f in side.factors if isinstance(f, View) and len(f.shape) > rank]


def _product(
    low: Lowering,
    sides: tuple[Dequantised, Dequantised],
    size: int,
    rough: bool,
    marks: dict[str, Any],
) -> View:
    scales = [_of_blocks(side) for side in sides]
    types = [side.codes.dtype for side in sides]
    how = "sums" if rough and types[0] == types[1] else "halves"
    how = next((dtype for dtype in types if dtype in HALVES), how)
    marks = {**marks, "tf32": False, "narrow": how, "blocks": size}
    times = low.pointwise(
        "scaled",
        *(_in_blocks(side.codes, size) for side in sides),
        *(_scale(low, found[0]) if found else 1.0 for found in scales),
        dtype="float32",
        compute="float32",
        **marks,
    )
    rank = len(times.shape)
    value = low.reduce("sum", times, (rank - 2, rank - 1), False, **marks)
    for side, own in zip(sides, scales, strict=True):
        value = scaled_by(low, value, [f for f in side.factors if f not in own])
    return value


def _is_rounded(low: Lowering) -> bool:
    """All that reads the result of the current operator rounds it to 16 bits."""
    name = list(low.nodes)[low.position]
    found = [n for n in low.nodes.values() if name in refs([list(n.args), n.kwargs])]
    readers = [n for n in found if n.dtype is not None]  # others only check it
    returned = low.last_read.get(name, 0) >= len(low.nodes)
    return bool(readers) and not returned and all(n.dtype in HALVES for n in readers)


def _in_blocks(view: View, size: int) -> View:
    """A view [..., K] as [..., K / size, size]."""
    return view.then("reshape", (), (*view.shape[:-1], view.shape[-1] // size, size))


def _scale(low: Lowering, view: View) -> View:
    """A scale in float32, computed before it is repeated."""
    return View(finite_or_nan(low, View(view.base)).base, view.steps)


def scale_of_blocks(view: View, size: int) -> View | None:
    """A factor [..., K] that does not vary within a block, as [..., K / size, size] of what it repeats; None for others."""
    while view.base.kind == "pw" and view.base.op in CONVERSIONS:
        inner = view.base.operands[0]
        if not isinstance(inner, View) or not {view.dtype, inner.dtype} <= {*HALVES, "float32"}:
            break
        view = through(inner, view)
    view = _in_blocks(view, size)
    found = _places(view)
    if found is None or any(part.vars & found[1] for part in found[0]):
        return None
    return view


def _places(view: View) -> tuple[Index, frozenset[Var]] | None:
    """The index in the base of each element of a view, and the one variable of its last dimension.

    A reshape may split other dimensions, as fusion does it for one; None where that is not enough.
    """
    own = tuple(Affine.of(Var(size)) if size > 1 else ZERO for size in view.shape)
    for _ in range(2):
        index: Index | None = own
        for step in reversed(view.steps):
            assert index is not None
            inside, index = index, step.index_before(index)
            if index is None:
                break
        if index is not None:
            return (index, own[-1].vars) if len(own[-1].terms) == 1 else None
        flat = radix(linearize(inside, contiguous_strides(step.after)))
        if step.method != "reshape" or flat is None:
            return None
        split = refine(flat, [Var(size) for size in step.before if size > 1])
        if split is None:
            return None
        own = tuple(part.substitute(split[1]) for part in own)
    return None
