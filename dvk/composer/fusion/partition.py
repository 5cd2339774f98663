"""Partition a primitive graph into kernels.

Every value of a kernel has exactly one index over the kernel's loop variables. Two groups merge when the index at which the consumer reads
the producer can be made equal to the one at which the producer computes it; loop variables are split where a reshape needs it. All
reductions of a kernel run over the same variables, so a kernel is rows of reduction loops with pointwise work between them. Scans are in
kernels without reductions, and all scans of a kernel run along the same variables in the same direction.

Horizontal fusion (two kernels that merely share an input) is not done here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from dvk.composer.fusion.groups import FusionGroup, Partition, _has_effect, live, output_bases
from dvk.composer.fusion.matmul_rules import is_product, is_sound, unpacks
from dvk.composer.ir.affine import Affine, Index, Var, contiguous_strides, linearize, radix, refine
from dvk.composer.ir.nodes import IRNode, View, broadcast_index, gathered_index, reduced_dims
from dvk.composer.lowering.view_pushdown import SUMMED
from dvk.composer.lowering.whole_graph import PrimGraph

MAX_INLINE_OPS = 8
"""A value recomputed for every element it is broadcast to may cost at most this many operations."""

MAX_COUNTED_OPS = 48
"""The same of values that come from indices alone: apart, they would be a kernel each, and be read from memory."""
MAX_MEMBERS = 256
"""Maximum operations of one kernel, eight times the largest of everyday modules. Unrolled loops of a module grow without end, and compile
time grows superlinearly: 48 steps of a state-space model as one kernel were 0.5 MB of PTX and took 30 s."""


def partition(
    graph: PrimGraph,
    may_merge: Callable[[FusionGroup, FusionGroup, IRNode], bool] = lambda a, b, p: True,
) -> Partition:
    """Group fusable primitives; `may_merge(producer, consumer, value)` can veto a legal merge."""
    prims = live(graph)
    users: dict[IRNode, list[IRNode]] = {p: [] for p in prims}
    for prim in prims:
        for operand in prim.operands:
            if isinstance(operand, View):
                users[operand.base].append(prim)
    outputs = output_bases(graph)
    followers = _followers(prims, users)
    owner = {p: _readable(_single(p)) for p in prims if p.kind in ("pw", "reduce", "scan")}
    position = {p: i for i, p in enumerate(prims)}
    changed = True
    while changed:
        changed = False
        for consumer in prims:
            if consumer not in owner:
                continue
            for operand in consumer.operands:
                if not isinstance(operand, View) or operand.base not in owner:
                    continue
                first, second = owner[operand.base], owner[consumer]
                if (
                    first is second
                    or _too_large(first, second, operand.base)
                    or not may_merge(first, second, operand.base)
                ):
                    continue
                if _cross_grained(first, second) or _reaches_around(
                    first, second, owner, followers
                ):
                    continue
                merged = _merge(first, second, users, outputs, position)
                if merged is not None:
                    owner.update(dict.fromkeys(merged.members, merged))
                    changed = True
    groups = list(dict.fromkeys(owner[p] for p in prims if p in owner))
    escapes = frozenset(
        p for p in owner if p in outputs or any(owner.get(u) is not owner[p] for u in users[p])
    )
    return Partition(groups, _schedule(prims, owner), users, escapes)


def _followers(
    prims: list[IRNode], users: dict[IRNode, list[IRNode]]
) -> dict[IRNode, list[IRNode]]:
    """Map each primitive to its successors: its users, and for calls with an effect all later ones, which keep their order."""
    result = {p: list(after) for p, after in users.items()}
    effect: IRNode | None = None
    since: list[IRNode] = []
    for call in (p for p in prims if p.kind == "extern" and p.node is not None):
        if effect is not None:
            result[effect].append(call)
        since.append(call)
        if _has_effect(call):
            for earlier in since[:-1]:
                result[earlier].append(call)
            effect, since = call, []
    return result


def _too_large(first: FusionGroup, second: FusionGroup, value: IRNode) -> bool:
    """Only a multiplication joins its sum in a kernel of any size: apart, all products would go through memory."""
    summed = value.kind == "pw" and any(value.attrs.get(mark) for mark in SUMMED)
    return len(first.members) + len(second.members) > MAX_MEMBERS and not summed


def _cross_grained(first: FusionGroup, second: FusionGroup) -> bool:
    """Both reduce, but one along memory and the other across it: together one of them would read with long strides."""
    return bool(first.reduced and second.reduced) and {
        _reduces_fastest(first),
        _reduces_fastest(second),
    } == {True, False}


def _reduces_fastest(group: FusionGroup) -> bool | None:
    """The fastest variable in the inputs' memory is a reduced one; None if no input decides."""
    votes = 0
    for prim in group.members:
        for position, operand in enumerate(prim.operands):
            if isinstance(operand, View) and operand.base not in group.index:
                index = group.reads(prim, position)
                offset = (
                    linearize(index, contiguous_strides(operand.base.shape))
                    if index is not None
                    else Affine()
                )
                if offset.vars & group.reduced:
                    fastest = min(offset.terms, key=lambda t: abs(t[1]))[0]
                    votes += math.prod(v.size for v in offset.vars) * (
                        1 if fastest in group.reduced else -1
                    )
    return votes > 0 if votes else None


def _single(prim: IRNode) -> FusionGroup:
    if prim.kind == "reduce":
        view = prim.operands[0]
        assert isinstance(view, View)
        order = [Var(s) for s in view.shape]
        dims = reduced_dims(prim)
        inner = tuple(Affine.of(v) for v in order)
        kept = tuple(
            Affine() if d in dims else inner[d]
            for d in range(len(order))
            if prim.attrs["keepdim"] or d not in dims
        )
        reduced = frozenset(order[d] for d in dims if order[d].size > 1)
        return FusionGroup(
            [prim], {prim: kept}, {prim: inner}, reduced, [v for v in order if v.size > 1]
        )
    order = [Var(s) for s in prim.shape]
    along = frozenset({order[prim.attrs["dim"]]} if prim.kind == "scan" else ())
    return FusionGroup(
        [prim],
        {prim: tuple(Affine.of(v) for v in order)},
        {},
        along,
        [v for v in order if v.size > 1],
    )


def _readable(group: FusionGroup) -> FusionGroup:
    """The group of one primitive, its variables split where it reads through a reshape: it has an index there, and may be fused."""
    (prim,) = group.members
    for position, operand in enumerate(prim.operands):
        if isinstance(operand, View) and group.reads(prim, position) is None:
            split = _split_for(group, prim, position)
            if split is not None:
                group = split
    return group


def _reaches_around(
    first: FusionGroup,
    second: FusionGroup,
    owner: dict[IRNode, FusionGroup],
    followers: dict[IRNode, list[IRNode]],
) -> bool:
    """A path first → something else → second exists, so merging would make a cycle."""
    stack: list[IRNode] = [
        u for p in first.members for u in followers[p] if owner.get(u) not in (first, second)
    ]
    seen: set[IRNode] = set()
    while stack:
        prim = stack.pop()
        if prim in seen:
            continue
        seen.add(prim)
        group = owner.get(prim)
        if group is second:
            return True
        around = group.members if group is not None else [prim]
        for member in around:
            seen.add(member)
            stack.extend(u for u in followers[member] if u not in seen)
    return False


def _merge(
    first: FusionGroup,
    second: FusionGroup,
    users: dict[IRNode, list[IRNode]],
    outputs: set[IRNode],
    position: dict[IRNode, int],
) -> FusionGroup | None:
    """The merged group, or None if its values cannot each have one index."""
    edges = [
        (c, i)
        for c in second.members
        for i, o in enumerate(c.operands)
        if isinstance(o, View) and o.base in first.index
    ]
    if not _scan_together(first, second) or any(c.op == "gather" and not i for c, i in edges):
        return None  # a source of computed indices must be in memory
    if any(p.op == "scatter" for p in (*first.members, *second.members)) and (
        first.reduced or second.reduced
    ):
        return None  # each element is added once, and no form of a reduction visits each once
    consumer, at = edges[0]
    produced = consumer.operands[at]
    assert isinstance(produced, View)
    wanted = second.reads(consumer, at)
    if wanted is None:
        # A reshape that splits a loop variable: refine the consumer to the producer's factors first.
        second = _split_for(second, consumer, at) or second
        wanted = second.reads(consumer, at)
        if wanted is None:
            return None
    joined = _unify(first, produced.base, wanted, second, users, outputs)
    if joined is None:
        return None
    left, right, order, reduced = joined
    index = {
        **{p: _apply(i, left) for p, i in first.index.items()},
        **{p: _apply(i, right) for p, i in second.index.items()},
    }
    inner = {
        **{p: _apply(i, left) for p, i in first.inner.items()},
        **{p: _apply(i, right) for p, i in second.inner.items()},
    }
    members = sorted([*first.members, *second.members], key=position.__getitem__)
    group = FusionGroup(members, index, inner, reduced, order)
    return group if _consistent(group, users, outputs) else None


def _scan_together(first: FusionGroup, second: FusionGroup) -> bool:
    """Scans share a kernel only with scans along the same variables in the same direction, and never with reductions."""
    scans = [p for p in (*first.members, *second.members) if p.kind == "scan"]
    mixed = scans and any(p.kind == "reduce" for p in (*first.members, *second.members))
    return not mixed and len({p.attrs["backward"] for p in scans}) < 2


def _apply(index: Index, substitution: dict[Var, Affine]) -> Index:
    return tuple([part.substitute(substitution) for part in index]) if substitution else index


def _unify(
    first: FusionGroup,
    base: IRNode,
    wanted: Index,
    second: FusionGroup,
    users: dict[IRNode, list[IRNode]],
    outputs: set[IRNode],
) -> tuple[dict[Var, Affine], dict[Var, Affine], list[Var], frozenset[Var]] | None:
    """Substitutions for both groups' variables that make `base` computed where it is read."""
    strides = contiguous_strides(base.shape)
    have = radix(linearize(first.index[base], strides))
    want = radix(linearize(wanted, strides))
    if have is None or want is None:
        return None
    matched = refine(have, want)
    if matched is None:
        return None
    _, left, right = matched
    # Variables of the producer beyond its value (its reduction) meet those of the consumer beyond the value it reads.
    spare_left = [v for v in first.order if v not in have]
    spare_right = [v for v in second.order if v not in want]
    if spare_left and any(p.attrs.get("normed") for p in second.members):
        # A row's sum, in the kernel of its product: every column shares it.
        spare_right = [v for v in spare_right if v in second.reduced]
    if spare_left and spare_right:
        beyond = refine(spare_left, spare_right)
        if beyond is None:
            return None
        left, right = left | beyond[1], right | beyond[2]
    elif spare_right and not spare_left:
        # The consumer broadcasts the value: recomputing it for every element must be cheap and unshared.
        recompute = sum(p.kind == "pw" and p.op not in ("as", "cast") for p in first.members)
        most = MAX_INLINE_OPS if _reads_memory(first) else MAX_COUNTED_OPS
        shared = any(
            p in outputs or any(u not in first.index and u not in second.index for u in users[p])
            for p in first.members
        )
        once = second.is_windowed and set(spare_right) <= second.reduced
        once = once or (is_product(second) and unpacks(first, base))
        if first.reduced or (not once and (recompute > most or shared)):
            return None
    order = _expand(second.order, right)
    extra = [v for v in _expand(spare_left, left) if v not in order]
    order = [*order, *extra]
    reduced_left = _image(first.reduced, left)
    reduced_right = _image(second.reduced, right)
    if reduced_left and reduced_right and reduced_left != reduced_right:
        return None
    return left, right, order, reduced_left or reduced_right


def _reads_memory(group: FusionGroup) -> bool:
    return any(
        isinstance(o, View) and o.base not in group.index for p in group.members for o in p.operands
    )


def _expand(order: Iterable[Var], substitution: dict[Var, Affine]) -> list[Var]:
    out: list[Var] = []
    for var in order:
        pieces = substitution.get(var, Affine.of(var))
        out.extend(v for v, _ in sorted(pieces.terms, key=lambda t: -t[1]) if v not in out)
    return out


def _image(variables: frozenset[Var], substitution: dict[Var, Affine]) -> frozenset[Var]:
    return frozenset(v for var in variables for v in substitution.get(var, Affine.of(var)).vars)


def _split_for(group: FusionGroup, consumer: IRNode, at: int) -> FusionGroup | None:
    """Split the group's variables at the factors of the operand's base shape, so that a reshape becomes affine."""
    view = consumer.operands[at]
    assert isinstance(view, View)
    index: Index | None
    if consumer.op == "gather" and not at:
        index = gathered_index(consumer, group.index[consumer])
    else:
        index = group.inner.get(consumer) or broadcast_index(group.index[consumer], view.shape)
    for step in reversed(view.steps):
        if index is None or len(index) != len(step.after):
            return None
        before = step.index_before(index)
        if before is None and step.method == "reshape":
            break
        index = before
    else:
        return None
    # A dimension of one element has one valid place, whatever its index is.
    valid = tuple(Affine() if n == 1 else part for part, n in zip(index, step.after, strict=True))
    own = radix(linearize(valid, contiguous_strides(step.after)))
    matched = refine(own, [Var(s) for s in step.before if s > 1]) if own is not None else None
    if matched is None:
        return None
    split = matched[1]
    return FusionGroup(
        group.members,
        {p: _apply(i, split) for p, i in group.index.items()},
        {p: _apply(i, split) for p, i in group.inner.items()},
        _image(group.reduced, split),
        _expand(group.order, split),
    )


def _consistent(
    group: FusionGroup, users: dict[IRNode, list[IRNode]], outputs: set[IRNode]
) -> bool:
    """Every inner edge reads a value exactly where it is computed, and every escaping value is stored once per element."""
    if not is_sound(
        group,
        [p for p in group.members if p in outputs or any(u not in group.index for u in users[p])],
    ):
        return False
    places: list[Var] = []
    for prim in group.members:
        for position, operand in enumerate(prim.operands):
            if isinstance(operand, View):
                read = group.reads(prim, position)
                if (
                    read is None
                    and prim.op == "gather"
                    and not position
                    and operand.base not in group.index
                ):
                    continue  # the host applies the views of sources read at computed indices
                if read is None or (
                    operand.base in group.index and read != group.index[operand.base]
                ):
                    return False
        if (
            prim.op == "bounded"
            and View(prim, prim.attrs["steps"]).base_index(group.index[prim]) is None
        ):
            return False
        if (
            prim.kind == "reduce"
            and frozenset().union(*(i.vars for i in group.inner[prim])) & group.reduced
            != group.reduced
        ):
            return False
        if prim.kind == "reduce" and any(part.vars & group.reduced for part in group.index[prim]):
            return False
        if prim.kind == "scan":
            place = radix(group.index[prim][prim.attrs["dim"]])
            if (
                place is None
                or frozenset(place) != group.reduced
                or (places := places or place) != place
            ):
                return False
        if prim in outputs or any(u not in group.index for u in users[prim]):
            covered = frozenset().union(*(part.vars for part in group.index[prim]))
            wanted = frozenset(group.order) - (
                group.reduced if group.is_row_level(prim) else frozenset()
            )
            if (
                covered != wanted
                or radix(linearize(group.index[prim], contiguous_strides(prim.shape))) is None
            ):
                return False
    return True


def _schedule(prims: list[IRNode], owner: dict[IRNode, FusionGroup]) -> list[FusionGroup | IRNode]:
    """Topological order of groups and extern calls; extern calls keep their program order."""
    steps: list[FusionGroup | IRNode] = []
    done: set[int] = set()

    def visit(step: FusionGroup | IRNode) -> None:
        if id(step) in done:
            return
        done.add(id(step))
        if isinstance(step, FusionGroup):
            for value in step.added_up:
                visit(owner[value])
        for member in step.members if isinstance(step, FusionGroup) else [step]:
            for operand in member.operands:
                if isinstance(operand, View):
                    source = owner.get(operand.base, operand.base)
                    if source is not step:
                        visit(source)
        if isinstance(step, FusionGroup) or step.kind == "extern":
            steps.append(step)

    for prim in prims:
        if prim.kind == "extern":
            visit(prim)
    for prim in prims:
        visit(owner.get(prim, prim))
    return steps
