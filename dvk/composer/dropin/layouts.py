"""Memory of a program's values: outputs that overwrite an input, and strides other than row-major."""

from __future__ import annotations

import math
from collections.abc import Collection

from dvk import aten
from dvk.composer.codegen.analysis.centred import centred
from dvk.composer.fusion.groups import FusionGroup, Partition
from dvk.composer.ir.affine import Affine, contiguous_strides, linearize
from dvk.composer.ir.loops import READS, Kernel
from dvk.composer.ir.nodes import IRNode, View
from dvk.composer.lowering.whole_graph import PrimGraph
from dvk.records import Graph


def inplace_pairs(
    kernel: Kernel, part: Partition, graph: PrimGraph, outputs: set[IRNode], splits_rows: bool
) -> dict[int, int]:
    """Outputs that may overwrite an input: same element, same layout, and no later reader of the input.

    Args:
        splits_rows: see `Codegen`; each launch reads the first element of a row whose mean is computed around it.
    """
    pairs: dict[int, int] = {}
    if splits_rows:
        kernel = centred(kernel)
    last = max((i.stage for i in kernel.instrs), default=0)
    for number, buffer in enumerate(kernel.inputs):
        prim = buffer.prim
        if (
            buffer.steps
            or prim.kind != "extern"
            or prim.op.removeprefix("aten.").split(".")[0] not in aten.LIBRARY
            or prim in outputs
        ):
            continue
        readers = {id(u) for u in part.users[prim]}
        inside = {
            id(p)
            for g in part.groups
            if any(o.prim in g.index for o in kernel.outputs)
            for p in g.members
        }
        reads = [
            i for i in kernel.instrs if i.op in READS and kernel.inputs[i.buffer].prim is prim
        ]  # through any view
        loads = {i.offset for i in reads}
        if (
            readers - inside
            or len(loads) != 1
            or any(i.op == "gather" or i.buffer != number for i in reads)
        ):
            continue
        for store in kernel.stores:
            out = kernel.outputs[store.buffer]
            same = (out.shape, out.strides, out.dtype) == (
                buffer.shape,
                buffer.strides,
                buffer.dtype,
            )
            if (
                same
                and not store.places
                and {store.offset} == loads
                and kernel.instrs[store.value].stage == last
                and store.buffer not in pairs
            ):
                pairs[store.buffer] = number
                break
    return pairs


def layouts(graph: Graph, prims: PrimGraph) -> dict[IRNode, tuple[int, ...]]:
    """Strides of values in eager PyTorch's layout, if dense but not row-major."""
    result: dict[IRNode, tuple[int, ...]] = {}
    for node in graph.nodes:
        value = prims.values.get(node.name)
        if not isinstance(value, View) or value.steps or node.strides is None or node.shape is None:
            continue
        held = value.base.kind in ("source", "extern")
        if node.strides != contiguous_strides(node.shape) and (
            held or _dense(node.shape, node.strides)
        ):
            result[value.base] = node.strides
    return result


def layouts_as_read(
    part: Partition, known: dict[IRNode, tuple[int, ...]], fixed: Collection[IRNode]
) -> dict[IRNode, tuple[int, ...]]:
    """Strides of values between kernels that are computed from a value in another than row-major memory: the same order.

    Args:
        known: strides of values that are not row-major.
        fixed: values whose memory PyTorch, or a call of it, determines.
    """
    result: dict[IRNode, tuple[int, ...]] = {}
    for group in part.groups:
        guide = _guide(group, known)
        for prim in group.members if guide is not None else ():
            inside = all(user.kind in ("pw", "reduce", "scan") for user in part.users[prim])
            if prim not in part.escapes or prim in fixed or not inside:
                continue
            index = group.index[prim]
            if not frozenset().union(*(one.vars for one in index)) <= guide.vars:  # type: ignore[union-attr]
                continue
            steps = [
                min((abs(guide.coef(v)) for v in one.vars), default=0)  # type: ignore[union-attr]
                for one in index
            ]
            strides, step = [0] * len(steps), 1
            for dim in sorted(range(len(steps)), key=lambda d: (steps[d], -d)):
                strides[dim], step = step, step * prim.shape[dim]
            if tuple(strides) != contiguous_strides(prim.shape):
                result[prim] = tuple(strides)
    return result


def _guide(group: FusionGroup, known: dict[IRNode, tuple[int, ...]]) -> Affine | None:
    """Where the group reads its largest operand, for the last time, if that is not row-major."""
    most, guide = 0, None
    for prim in group.members:
        if prim in group.partials:
            continue  # it reads sums of rows, which are row-major
        for position, operand in enumerate(prim.operands):
            if isinstance(operand, View) and operand.base not in group.index:
                index, strides = group.reads(prim, position), known.get(operand.base)
                size = math.prod(operand.base.shape)
                if index is not None and size >= most:
                    most, guide = size, linearize(index, strides) if strides else None
    return guide


def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for stride, size in sorted((st, sz) for sz, st in zip(shape, strides, strict=True) if sz > 1):
        if stride != expected:
            return False
        expected *= size
    return True
