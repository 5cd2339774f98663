"""Moving averages that are updated in the kernel that computes what they move towards.

`torch._foreach_lerp_([running, …], [batch, …], w)` costs two launches and, on the host, as much as a batch norm's kernels. The kernel that
writes `batch`, one element per row, has it in a register: it reads `running` there and writes `running + w·(batch − running)` back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dvk.composer.fusion.groups import FusionGroup, Partition
from dvk.composer.ir.effects import refs
from dvk.composer.ir.loops import Buffer, Instr, Kernel, Ref, Store
from dvk.composer.ir.nodes import IRNode, View, contiguous_strides
from dvk.composer.lowering.whole_graph import PrimGraph

CALL = "aten._foreach_lerp_.Scalar"
FAMILIES = ("pointwise", "row", "column")
"""Kernels that store a row's value once."""
TYPES = ("float32", "float64")
Kernels = dict[int, Kernel]
"""By identity of their group."""


@dataclass(frozen=True)
class _Update:
    """One running value and the batch's."""

    running: View
    batch: View


def updated_inside(
    prims: PrimGraph,
    part: Partition,
    kernels: Mapping[int, Kernel],
    strides: Mapping[IRNode, tuple[int, ...]],
    outputs: set[IRNode],
) -> tuple[Partition, Kernels]:
    """The partition without the updates that kernels make, and the kernels that make them.

    Args:
        strides: of values that are not row-major.
        outputs: values that the program returns.
    """
    found = dict(kernels)
    owner = {prim: group for group in part.groups for prim in group.members}
    gone: set[IRNode] = set()
    steps: list[FusionGroup | IRNode] = []
    for step in part.schedule:
        if not isinstance(step, IRNode) or step.op != CALL:
            steps.append(step)
            continue
        left: list[int] = []
        pairs = _pairs(step, prims)
        for number, pair in enumerate(pairs):
            running, batch = pair.running.base, pair.batch.base
            group = owner.get(batch)
            alone = part.users[running] == [step] and running not in outputs
            if running in strides or group is None or not alone:
                left.append(number)
                continue
            # No one else reads the batch's value: it stays in its register.
            only = part.users[batch] == [step] and batch not in outputs
            only &= [one.batch.base for one in pairs].count(batch) == 1
            made = _with_update(found[id(group)], pair, _weight(step), only)
            if made is None:
                left.append(number)
                continue
            found[id(group)] = made
            gone |= {batch} if only else set()
        if left:
            steps.append(step if len(left) == len(pairs) else _with(step, left, prims))
    return Partition(part.groups, steps, part.users, part.escapes - gone), found


def _pairs(step: IRNode, prims: PrimGraph) -> list[_Update]:
    assert step.node is not None
    running, batch = (refs(step.node.args[at]) for at in (0, 1))
    return [_Update(prims.values[a], prims.values[b]) for a, b in zip(running, batch, strict=True)]


def _weight(step: IRNode) -> float:
    assert step.node is not None
    return float(step.node.args[2])


def _with(step: IRNode, left: list[int], prims: PrimGraph) -> IRNode:
    """The call with some of its pairs."""
    assert step.node is not None
    running, batch = ([step.node.args[at][n] for n in left] for at in (0, 1))
    node = step.node.model_copy(update={"args": (running, batch, step.node.args[2])})
    operands = tuple(prims.values[name] for name in refs([running, batch]))
    return replace(step, node=node, operands=operands)


def _with_update(kernel: Kernel, pair: _Update, weight: float, only: bool) -> Kernel | None:
    """The kernel with an update of a running value; None if it does not write each element of the batch's value once.

    Args:
        only: instead of the batch's value, which nothing else reads.
    """
    running, batch = pair.running.base, pair.batch.base
    known = [n for n, buffer in enumerate(kernel.outputs) if buffer.prim is batch]
    plain = not pair.running.steps and all(s.method == "reshape" for s in pair.batch.steps)
    held = running.kind == "source" and running.dtype == batch.dtype and batch.dtype in TYPES
    if not known or not plain or not held or kernel.family not in FAMILIES:
        return None
    (number,) = known
    out = kernel.outputs[number]
    store = next(one for one in kernel.stores if one.buffer == number)
    rows = {v for v in kernel.rows if v.size != 1}
    if (
        out.strides != contiguous_strides(out.shape)
        or store.folded
        or store.places
        or not kernel.is_row_store(store)
        or not rows <= store.offset.vars
        or any(buffer.prim is running for buffer in kernel.inputs)
    ):
        return None
    target = Buffer(running, running.shape, contiguous_strides(running.shape), running.dtype)
    value, count = kernel.instrs[store.value], len(kernel.instrs)
    kind, where, stage = value.type, store.offset.vars, value.stage
    load = Instr(
        count, "load", (), kind, kind, where, 0, buffer=len(kernel.inputs), offset=store.offset,
        prim=running, view=pair.running,
    )  # fmt: skip
    # As torch.lerp rounds: from the nearer end.
    ends = (Ref(value.id), Ref(count)) if weight < 0.5 else (Ref(count), Ref(value.id))
    share = weight if weight < 0.5 else 1.0 - weight
    gap = Instr(count + 1, "sub", ends, kind, kind, where, stage)
    step = Instr(count + 2, "mul", (Ref(count + 1), share), kind, kind, where, stage)
    moved = Instr(count + 3, "add", (ends[1], Ref(count + 2)), kind, kind, where, stage)
    if only:
        outputs = tuple(target if n == number else one for n, one in enumerate(kernel.outputs))
        stores = tuple(replace(s, value=moved.id) if s is store else s for s in kernel.stores)
    else:
        outputs = (*kernel.outputs, target)
        stores = (*kernel.stores, Store(moved.id, len(kernel.outputs), store.offset))
    return replace(
        kernel,
        inputs=(*kernel.inputs, target),
        outputs=outputs,
        instrs=(*kernel.instrs, load, gap, step, moved),
        stores=stores,
    )
