"""Norms whose result is written in another order of memory than their operand is read: the statistics are a kernel apart.

A kernel that reduces long rows walks along memory. Where it stores elements in another layout, as for a convolution in channels-last memory
behind the norm, each of them would be a separate access. Apart from the statistics they are pointwise work in tiles that suit both layouts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from dvk.composer.fusion.groups import FusionGroup, Partition
from dvk.composer.ir.affine import Affine, Var, contiguous_strides, linearize
from dvk.composer.ir.nodes import IRNode, View

LONG = 1024
"""Elements of a row beyond which several rows do not fit in the registers of one program: shorter ones are tiles of several rows."""
LARGE = 1 << 19
"""Elements that pay for a second launch."""

Strides = Mapping[IRNode, tuple[int, ...]]


def kept_apart(part: Partition, strides: Strides, fixed: Collection[IRNode]) -> set[IRNode]:
    """Values that had better not be computed by the kernel that reduces what they depend on.

    Args:
        strides: of values that are not row-major.
        fixed: values whose memory PyTorch, or a call of it, determines.
    """
    result: set[IRNode] = set()
    for group in part.groups:
        long = group.row_length > LONG and group.rows * group.row_length >= LARGE
        if long and not any(p.attrs.get("own") or p.kind == "scan" for p in group.members):
            written = [p for p in group.members if p in part.escapes and p in fixed]
            offsets = [
                linearize(group.index[p], _strides(p, strides))
                for p in written
                if not group.is_row_level(p)
            ]
            lead = _fastest_read(group, strides)
            if lead is not None and any(_fastest(one) is not lead for one in offsets):
                result |= _scaled(group)
    return result


def is_between(apart: Collection[IRNode], first: FusionGroup, second: FusionGroup) -> bool:
    """A reduction, and values that are kept apart from it."""
    reduces = any(p.kind == "reduce" for p in first.members)
    return reduces and any(p in apart for p in second.members)


def _scaled(group: FusionGroup) -> set[IRNode]:
    """Elements computed from a reduction of their row, none of which is reduced again; empty if one of them is."""
    after: set[IRNode] = set()
    again: set[IRNode] = set()
    for prim in group.members:
        read = {o.base for o in prim.operands if isinstance(o, View) and o.base in group.index}
        if prim.kind == "reduce" or read & after:
            after.add(prim)
    pending = [p for p in group.members if p.kind == "reduce"]
    while pending:
        for operand in pending.pop().operands:
            if isinstance(operand, View) and operand.base in group.index:
                if operand.base not in again:
                    again.add(operand.base)
                    pending.append(operand.base)
    elements = {p for p in after if not group.is_row_level(p)}
    shared = {
        o.base
        for p in elements - again
        for o in p.operands
        if isinstance(o, View) and o.base in elements & again
    }
    return set() if shared else elements - again


def _fastest_read(group: FusionGroup, strides: Strides) -> Var | None:
    """The variable that is fastest in the largest operand."""
    most, lead = 0, None
    for prim in group.members:
        for position, operand in enumerate(prim.operands):
            if isinstance(operand, View) and operand.base not in group.index:
                index, size = group.reads(prim, position), math.prod(operand.base.shape)
                if index is not None and size > most:
                    most, lead = size, _fastest(linearize(index, _strides(operand.base, strides)))
    return lead


def _strides(prim: IRNode, strides: Strides) -> tuple[int, ...]:
    return strides.get(prim) or contiguous_strides(prim.shape)


def _fastest(offset: Affine) -> Var | None:
    return min(offset.terms, key=lambda term: abs(term[1]))[0] if offset.terms else None
