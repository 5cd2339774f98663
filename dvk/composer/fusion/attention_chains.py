"""Attention in one kernel: a matmul that makes scores, a kernel of their softmax alone, and a matmul of the weights, in a row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from dvk.composer.fusion.groups import FusionGroup, Partition
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.attention_kernel import FAMILY, AttentionKernel, aligned
from dvk.composer.ir.loops import Argument, Buffer, Instr, Kernel, Ref
from dvk.composer.ir.matmul_form import form_of
from dvk.composer.ir.nodes import HALVES, IRNode

MAX_WIDTH = 256
"""Longest head: a whole one is in registers."""
Kernels = dict[int, Kernel]
"""By identity of their group."""


def joined(
    part: Partition, kernels: Mapping[int, Kernel], outputs: set[IRNode]
) -> tuple[Partition, Kernels]:
    """The partition and its kernels with attentions joined."""
    owner = {m: g for g in part.groups for m in g.members}
    found = dict(kernels)
    wholes: dict[int, FusionGroup] = {}
    """Last group of a chain → the chain."""
    gone: set[int] = set()
    for last in part.groups:
        chain = _chain(last, part, owner, kernels, outputs)
        if chain is None:
            continue
        first, middle, made = chain
        # Of two attentions in a row, the product between them belongs to one.
        if any(id(group) in gone or id(group) in wholes for group in (first, middle, last)):
            continue
        whole = replace(last, members=[*first.members, *middle.members, *last.members])
        gone |= {id(first), id(middle)}
        wholes[id(last)] = whole
        found[id(whole)] = made
    steps = [wholes.get(id(step), step) for step in part.schedule if id(step) not in gone]
    groups = [step for step in steps if isinstance(step, FusionGroup)]
    left = {id(group) for group in groups}
    return Partition(groups, steps, part.users, part.escapes), {
        k: v for k, v in found.items() if k in left
    }


def _chain(
    last: FusionGroup,
    part: Partition,
    owner: Mapping[IRNode, FusionGroup],
    kernels: Mapping[int, Kernel],
    outputs: set[IRNode],
) -> tuple[FusionGroup, FusionGroup, AttentionKernel] | None:
    """The groups before a matmul with which it is an attention, and their kernel."""
    values = kernels.get(id(last))
    if values is None or values.family != "product" or isinstance(values, AttentionKernel):
        return None
    form = form_of(values)
    if form is None or len(form.terms) != 1 or form.terms[0].left.op != "load":
        return None
    weights = form.terms[0].left.prim
    middle = owner.get(weights) if weights is not None else None
    softmax = kernels.get(id(middle))
    if weights is None or middle is None or softmax is None:
        return None
    if softmax.row_length != values.row_length:
        return None
    source = _softmax_of(softmax)
    scores = softmax.inputs[source[0].buffer].prim if source is not None else None
    first = owner.get(scores) if scores is not None else None
    made = kernels.get(id(first))
    if scores is None or first is None or made is None or made.family != "product":
        return None
    alone = all(
        one not in outputs and all(owner.get(u) is reader for u in part.users[one])
        for one, reader in ((scores, middle), (weights, last))
    )
    if not alone or len(made.stores) != 1 or made.outputs[0].prim is not scores:
        return None
    kernel = _together(made, values, weights)
    if kernel is None or source is None:
        return None
    return first, middle, replace(kernel, zero_if_none=source[1])


def _softmax_of(kernel: Kernel) -> tuple[Instr, bool] | None:
    """The load of which a kernel is the softmax over its rows, and nothing else, and whether the weights of a row without a key are 0.

    None for other kernels.
    """
    if kernel.family != "row" or len(kernel.inputs) != 1 or len(kernel.stores) != 1:
        return None
    value = _made(kernel, Ref(kernel.stores[0].value))
    zero = value is not None and value.op == "where"
    if value is not None and zero:
        unseen, nothing, weights = (_made(kernel, a) for a in value.args)
        seen = unseen is not None and unseen.op == "eq" and unseen.args[1] == -math.inf
        top = _made(kernel, unseen.args[0]) if unseen is not None and seen else None
        if top is None or top.op != "reduce_max" or nothing is not None or value.args[1] != 0:
            return None
        value = weights
    if value is None or value.op not in ("mul", "div"):
        return None
    load, total = _exponent_of(kernel, value.args[0]), _made(kernel, value.args[1])
    if total is not None and value.op == "mul":
        total = _made(kernel, total.args[0]) if total.op == "reciprocal" else None
    if load is None or total is None or total.op != "reduce_sum":
        return None
    whole = not load.bounds and _has_dense_rows(kernel, load.offset)
    same = _exponent_of(kernel, total.args[0]) is load
    return (load, zero) if same and whole and load.offset == kernel.stores[0].offset else None


def _has_dense_rows(kernel: Kernel, offset: Affine) -> bool:
    """The offset walks over whole memory, and the elements of one row are neighbours."""
    ordered = tuple(v for v, _ in offset.terms)
    row = {v for v in kernel.reduced if v.size > 1}
    live = row | {v for v in kernel.rows if v.size > 1}
    inner = set(ordered[len(ordered) - len(row) :])
    return set(ordered) == live and inner == row and offset == _row_major(ordered)


def _made(kernel: Kernel, value: Argument) -> Instr | None:
    """What computes a value, conversions between floating-point types aside; None for a number."""
    while isinstance(value, Ref):
        instr = kernel.instrs[value.id]
        if instr.type != "float32" or not (instr.op == "as" or instr.op.startswith("cast_")):
            return instr
        value = instr.args[0]
    return None


def _exponent_of(kernel: Kernel, value: Argument) -> Instr | None:
    """The load x of exp(x - max x)."""
    exp = _made(kernel, value)
    sub = _made(kernel, exp.args[0]) if exp is not None and exp.op == "exp" else None
    if sub is None or sub.op != "sub":
        return None
    load, top = (_made(kernel, a) for a in sub.args)
    if load is None or top is None or load.op != "load" or top.op != "reduce_max":
        return None
    return load if _made(kernel, top.args[0]) is load else None


def _together(scores: Kernel, values: Kernel, weights: IRNode) -> AttentionKernel | None:
    forms = aligned(scores, values)
    if forms is None or scores.size_arguments or values.size_arguments:
        return None
    one, other = forms
    reduced = tuple(v for v in values.reduced if v.size > 1)
    load = other.terms[0].left
    ordered = [
        (scores.stores[0].offset, (*one.batch, *one.rows, *one.columns)),
        (load.offset, (*other.batch, *other.rows, *reduced)),
    ]
    sides = (one.sizes, (*other.sizes[:2], values.row_length))
    dtypes = {*one.terms[0].dtypes, *other.terms[0].dtypes}
    if sides[0] != sides[1] or len(dtypes) != 1 or not dtypes <= {*HALVES, "float32"}:
        return None
    if one.block or other.block:
        return None
    if max(scores.row_length, other.sizes[2]) > MAX_WIDTH or load.bounds:
        return None
    if any(offset != _row_major(variables) for offset, variables in ordered):
        return None
    inputs: list[Buffer] = []
    for buffer in (*scores.inputs, *(b for b in values.inputs if b.prim is not weights)):
        if buffer not in inputs:
            inputs.append(buffer)
    first = _renumbered(scores, inputs, 0)
    last = _renumbered(values, inputs, len(scores.instrs))
    return AttentionKernel(
        values.name,
        values.rows,
        values.reduced,
        tuple(inputs),
        values.outputs,
        (),
        (),
        FAMILY,
        f"{scores.summary} → softmax → {values.summary}",
        scores=replace(first, outputs=values.outputs, instrs=tuple(map(_of_score, first.instrs))),
        values=last,
    )


def _of_score(instr: Instr) -> Instr:
    """A function of a score that PyTorch would round to bf16, marked: units for functions are as exact."""
    prim = instr.prim
    if instr.op != "tanh" or prim is None or prim.dtype != "bfloat16":
        return instr
    return replace(instr, prim=replace(prim, attrs={**prim.attrs, "score": True}))


def _row_major(variables: tuple[Var, ...]) -> Affine:
    coefs: dict[Var, int] = {}
    step = 1
    for var in reversed(variables):
        coefs[var] = step
        step *= var.size
    return Affine.build(coefs)


def _renumbered(kernel: Kernel, inputs: list[Buffer], first: int) -> Kernel:
    """The kernel with ids from `first` on, and loads of the joint inputs; -1 where a buffer is none of them."""
    places = [inputs.index(b) if b in inputs else -1 for b in kernel.inputs]
    empty = tuple(Instr(n, "iota", (), "int64", "int64", frozenset(), 0) for n in range(first))
    instrs = tuple(
        replace(
            i,
            id=i.id + first,
            args=tuple(Ref(a.id + first) if isinstance(a, Ref) else a for a in i.args),
            buffer=places[i.buffer] if i.buffer >= 0 else -1,
        )
        for i in kernel.instrs
    )
    stores = tuple(replace(s, value=s.value + first) for s in kernel.stores)
    return replace(kernel, inputs=tuple(inputs), instrs=(*empty, *instrs), stores=stores)
