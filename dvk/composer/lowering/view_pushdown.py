"""Slices of computed values: a slice of a sum is the sum of slices, so that the reader of a view fuses with its source."""

from __future__ import annotations

import math
from typing import Any, Protocol

from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.nodes import IRNode, Operand, View

PIECES = ("slice", "select", "pad", "windows", "flip")
"""Views that may drop, add, repeat or reverse elements."""
SUMMED = {"product", "contracted"}
"""Attributes of a matmul's sum that stays in its kernel."""
MAX_AGAIN = 64
"""Maximum operations recomputed for a slice: nested concatenations would double the slices at each level."""
MARKS = {"own", "tf32", "narrow", "window", "phased", "implicit", "normed", *SUMMED}
"""Attributes that a slice of such a sum shares with the whole."""


class Lowering(Protocol):
    """The members of `dispatch.Lowering`, a higher layer, that this module uses."""

    kept_whole: set[IRNode]
    pieces: dict[View, View]

    def pointwise(
        self,
        op: str,
        *operands: Operand,
        dtype: str | None = None,
        compute: str | None = None,
        **attrs: Any,
    ) -> View: ...

    def reduce(
        self,
        op: str,
        operand: View,
        dims: tuple[int, ...],
        keepdim: bool,
        dtype: str | None = None,
        **attrs: Any,
    ) -> View: ...

    def scan(self, op: str, operand: View, dim: int, backward: bool = False) -> View: ...


def push_views(low: Lowering, view: View) -> View:
    """Push a view down into a computed value, so that the slice is computed from slices of the operands and fuses with its reader."""
    if view.base in low.kept_whole:
        return view
    if view.base.kind == "scan" and view.steps and all(s.method == "flip" for s in view.steps):
        return _turned(low, view)
    summed = view.base.kind == "reduce" and any(view.base.attrs.get(mark) for mark in SUMMED)
    if summed and view.steps and all(s.method == "slice" for s in view.steps):
        # The scales of a slice of the rows would begin within a block.
        return view if view.base.attrs.get("blocks") else _part(low, view)
    if view.base.op == "iota":
        return _counted(low, view)
    if (
        view.base.kind != "pw"
        or view.base.op == "gather"
        or not any(s.method in PIECES for s in view.steps)
    ):
        return view
    attrs = {k: v for k, v in view.base.attrs.items() if k != "compute"}
    if view.base.op == "bounded":
        attrs["steps"] = (*attrs["steps"], *view.steps)
    if not _is_cheap(low, view):
        low.kept_whole.add(view.base)
        return view
    if view not in low.pieces:
        operands: list[Operand] = []
        for operand in view.base.operands:
            if isinstance(operand, View):
                piece = operand.then("expand", view.base.shape, view.base.shape)
                for step in view.steps:
                    piece = piece.then(step.method, step.args, step.after)
                operand = piece
            operands.append(operand)
        low.pieces[view] = low.pointwise(
            view.base.op,
            *operands,
            shape=view.shape,
            dtype=view.base.dtype,
            compute=view.base.attrs["compute"],
            **attrs,
        )
    return low.pieces[view]


def _is_cheap(low: Lowering, view: View) -> bool:
    """Its slices are worth computing: they are small, they read little at computed places, and the views determine the bounds below them.

    What is read at a computed place is written before it is sliced: the four corners of a resampled image are four images.
    """
    seen: set[IRNode] = set()
    gathered: dict[IRNode, int] = {}
    pending = [view.base]
    while pending and len(seen) <= MAX_AGAIN:
        one = pending.pop()
        if (
            one.kind == "pw"
            and one.op != "gather"
            and one not in seen
            and one not in low.kept_whole
        ):
            seen.add(one)
            pending.extend(o.base for o in one.operands if isinstance(o, View))
        elif one.op == "gather":
            gathered[one] = math.prod(one.shape)
    if len(gathered) > 1 and sum(gathered.values()) > math.prod(view.base.shape):
        return False
    at = tuple(Affine.of(Var(n)) for n in view.shape)
    bounds = [
        View(p, (*p.attrs["steps"], *view.steps))
        for p in seen
        if p.op == "bounded" and p.shape == view.base.shape
    ]
    return len(seen) <= MAX_AGAIN and all(bound.base_index(at) is not None for bound in bounds)


def _turned(low: Lowering, view: View) -> View:
    """Rewrite a flipped scan as the scan of the flipped operand from the other end."""
    if view not in low.pieces:
        (operand,), dim, backward = (
            view.base.operands,
            view.base.attrs["dim"],
            view.base.attrs["backward"],
        )
        assert isinstance(operand, View)
        for step in view.steps:
            operand = operand.then("flip", step.args, step.after)
            backward ^= dim in step.args
        low.pieces[view] = low.scan(view.base.op, operand, dim, backward)
    return low.pieces[view]


def _part(low: Lowering, view: View) -> View:
    """Compute some rows or columns of a matmul or convolution from those of its factors: the two parts of a gate's weight are two sums."""
    if view not in low.pieces:
        (whole,), marks = (
            view.base.operands,
            {k: v for k, v in view.base.attrs.items() if k in MARKS},
        )
        assert isinstance(whole, View)
        operands: list[Operand] = []
        for operand in whole.base.operands:
            assert isinstance(operand, View)
            for step in view.steps:
                dim, start, every = step.args
                at = dim - len(whole.shape) + len(operand.shape)
                if at >= 0 and operand.shape[at] > 1:
                    after = (*operand.shape[:at], step.after[dim], *operand.shape[at + 1 :])
                    operand = operand.then("slice", (at, start, every), after)
            operands.append(operand)
        times = low.pointwise("mul", *operands, dtype=whole.dtype, compute=whole.dtype, **marks)
        low.pieces[view] = low.reduce("sum", times, view.base.attrs["dims"], False, **marks)
    return low.pieces[view]


def _counted(low: Lowering, view: View) -> View:
    """Compute indices seen through slices and paddings where they are read, because they are never stored."""
    dim, sliced = view.base.attrs["dim"], any(s.method in ("slice", "pad") for s in view.steps)
    if (
        dim is None
        or not sliced
        or not all(s.method in ("slice", "pad", "expand") for s in view.steps)
        or view.base.shape[dim] == 1
    ):
        return view
    if view not in low.pieces:
        dim += len(view.shape) - len(view.base.shape)
        value = low.pointwise("iota", shape=view.shape, dim=dim, compute="int64")
        for step in reversed(view.steps):
            if step.method == "pad":
                value = low.pointwise("sub", value, step.args[dim])
            elif step.method == "expand":
                dim -= len(step.after) - len(step.before)
            elif step.args[0] == dim:
                _, start, every = step.args
                value = low.pointwise(
                    "add", low.pointwise("mul", value, every) if every != 1 else value, start
                )
        low.pieces[view] = value
    return low.pieces[view]
