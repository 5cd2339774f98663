"""Copies that a reshape makes of a computed value: its kernel stores it in the reshape's order, and PyTorch copies nothing.

A reshape of a permuted tensor copies it. Where PyTorch reads the result, as an operand of a call or as an output, the value becomes one in
the permuted order. A kernel that computes rows does so only if it still stores runs of neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.nodes import BYTES, IRNode, View, register_type
from dvk.composer.lowering.dispatch import Lowering

RUN = 32
"""Bytes of a sector of memory: shorter runs are written more slowly than a copy takes."""


def stored_as_read(low: Lowering, view: View, laid: Mapping[IRNode, tuple[int, ...]]) -> View:
    """The same elements, in a value of the order in which the view's reshape copies them; the view itself if nothing is copied.

    Args:
        laid: strides of values that are not row-major.
    """
    base = view.base
    if base.kind not in ("pw", "reduce", "scan") or base in low.kept_whole:
        return view
    strides: tuple[int, ...] | None = laid.get(base, contiguous_strides(base.shape))
    for at, step in enumerate(view.steps):
        assert strides is not None
        if step.method == "permute":
            strides = tuple(strides[dim] for dim in step.args)
        elif step.method == "select":
            strides = (*strides[: step.args[0]], *strides[step.args[0] + 1 :])
        elif step.method == "reshape":
            after = viewed(step.before, strides, step.after)
            if after is None:
                if not _is_stored_in_runs(base, step.before, strides):
                    return view
                return _stored(low, View(base, view.steps[:at]), view, at)
            strides = after
        else:
            return view
    return view


def _stored(low: Lowering, before: View, view: View, at: int) -> View:
    """The value in the order of a view, which equal reshapes share, read through the rest of the views.

    Unequal ones have a copy each, as in eager: two returned tensors must not become one.
    """
    shared = View(before.base, view.steps[: at + 1])
    if shared not in low.copies:
        kind = register_type(before.dtype)
        low.copies[shared] = low.pointwise("as", before, dtype=before.dtype, compute=kind)
    return View(low.copies[shared].base, view.steps[at:])


def _is_stored_in_runs(base: IRNode, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """The value is stored in whole sectors: tiles of elementwise work always are, rows if neighbours stay neighbours."""
    inner = next((d for d in reversed(range(len(shape))) if shape[d] > 1), None)
    if inner is None:
        return False
    if strides[inner] == 1 and shape[inner] * BYTES[base.dtype] >= RUN:
        return True
    seen, pending = {base}, [base]
    while pending:
        one = pending.pop()
        if one.kind in ("reduce", "scan"):
            return False
        below = {o.base for o in one.operands if isinstance(o, View)} if one.kind == "pw" else set()
        pending += below - seen
        seen |= below
    return True


def viewed(
    before: tuple[int, ...], strides: tuple[int, ...], after: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of a reshape that is a view, or None if it copies.

    Neighbouring dimensions that are dense in memory are one block, which the new dimensions must divide without remainder.
    """
    blocks: list[tuple[int, int]] = []
    for size, stride in zip(before, strides, strict=True):
        if size == 1:
            continue
        if blocks and blocks[-1][1] == size * stride:
            blocks[-1] = (blocks[-1][0] * size, stride)
        else:
            blocks.append((size, stride))
    found: list[int] = []
    left, stride = blocks.pop() if blocks else (1, 1)
    for size in reversed(after):
        if size == 1:
            found.append(stride)
            continue
        if left == 1 and blocks:
            left, stride = blocks.pop()
        if left % size:
            return None
        found.append(stride)
        left, stride = left // size, stride * size
    return tuple(reversed(found))
