"""Sums over the rows of a kernel, computed in its pass over the rows: gradients of a norm's weight and bias, of a bias, of a gate.

A kernel that walks rows would store every element that another kernel then sums over all rows. Instead it adds the rows of each block up
and stores one row a block; the other kernel sums these few rows. Blocks and their order are fixed: results do not vary between runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dvk.composer.fusion.groups import Fold, FusionGroup, Partition, live, output_bases
from dvk.composer.fusion.partition import _apply, _consistent, _expand, _image, _schedule, partition
from dvk.composer.ir.affine import Affine, Index, Var, contiguous_strides, linearize, radix, refine
from dvk.composer.ir.nodes import HALVES, IRNode, View, reduced_dims, register_type
from dvk.composer.ir.symint import arguments
from dvk.composer.lowering.whole_graph import PrimGraph

MayMerge = Callable[[FusionGroup, FusionGroup, IRNode], bool]
LANES = {"cuda": (64, 8192), "cpu": (16, 1 << 16)}
"""Shortest and longest row, in elements. On a GPU a row and its sums stay in registers."""
BLOCKS = {"cuda": 512, "cpu": 32}
"""Blocks of rows that keep the device busy."""
LONGEST = 1024
"""Rows of a block: a float32 sum of more would lose digits."""
FEWEST = 4
"""Rows of a block below which partial sums take more memory traffic than they save."""


def partitioned(graph: PrimGraph, may_merge: MayMerge, device: str) -> Partition:
    """As `partition`, with sums over rows in the kernels that compute or read what is summed.

    A sum would draw the computation of its operand into its own kernel, away from the rows. So sums are first kept apart, and those that
    found no row kernel are fused as ever in a second partition.
    """

    outputs = output_bases(graph)
    users: dict[IRNode, set[IRNode]] = {}
    for prim in graph.prims:
        for view in _views(prim):
            users.setdefault(view.base, set()).add(prim)

    def apart(totals: set[IRNode]) -> Partition:
        def is_private(first: FusionGroup, second: FusionGroup) -> bool:
            inside = first.index.keys() | second.index.keys()
            return all(p not in outputs and users.get(p, set()) <= inside for p in first.members)

        def merge(first: FusionGroup, second: FusionGroup, value: IRNode) -> bool:
            if not totals.isdisjoint(second.members) and not is_private(first, second):
                return False
            return may_merge(first, second, value)

        return fold(graph, partition(graph, merge), device)

    sums = {p for p in graph.prims if _across_memory(p)}
    made = apart(sums)
    nodes = {p for group in made.groups for p in group.partials}
    return made if nodes == sums else apart(nodes)


def _across_memory(prim: IRNode) -> bool:
    """A sum over dimensions that are not the fastest ones."""
    if prim.kind != "reduce" or prim.op != "sum":
        return False
    (operand,) = _views(prim)
    last = max((d for d, size in enumerate(operand.shape) if size > 1), default=-1)
    return last not in reduced_dims(prim)


def fold(graph: PrimGraph, part: Partition, device: str) -> Partition:
    """The partition, with sums over rows moved to the kernels that compute what is summed."""
    state = _Folding(graph, part, "cuda" if device == "cuda" else "cpu")
    for group in part.groups:
        state.try_group(group)
    return state.partition() if state.changed else part


@dataclass
class _Match:
    """How a sum's group fits the group of its operand."""

    host: FusionGroup
    left: dict[Var, Affine]
    right: dict[Var, Affine]
    lanes: frozenset[Var]


class _Folding:
    def __init__(self, graph: PrimGraph, part: Partition, device: str):
        self.part, self.device = part, device
        self.prims = live(graph)
        self.position = {p: n for n, p in enumerate(self.prims)}
        self.outputs = output_bases(graph)
        self.owner = {m: g for g in part.groups for m in g.members}
        self.changed = False

    def try_group(self, group: FusionGroup) -> None:
        """Move the sum of a group, if it is one over the rows of another group."""
        total = _sum_of(group)
        if total is None or group.folds:
            return
        behind = [m for m in group.members if m is total or _depends(m, total, group)]
        ahead = [m for m in group.members if m not in behind]
        for member in [total, *reversed(ahead)]:
            for place, operand in enumerate(member.operands):
                if not isinstance(operand, View) or operand.base in group.index:
                    continue
                for host, have in self._hosts(operand.base, group):
                    match = self._match(group, member, place, host, have)
                    if match is not None and self._apply(group, total, ahead, behind, match):
                        self.changed = True
                        return

    def _hosts(self, base: IRNode, group: FusionGroup) -> Iterable[tuple[FusionGroup, Index]]:
        """The group that computes a value, or those that read it, each with its index of the value."""
        if (owner := self.owner.get(base)) is not None:
            yield owner, owner.index[base]
            return
        for user in self.part.users[base]:
            host = self.owner.get(user)
            if host is None or host is group or self._reaches_group(host, group):
                continue
            for place, operand in enumerate(user.operands):
                if isinstance(operand, View) and operand.base is base:
                    if (index := host.reads(user, place)) is not None:
                        yield host, index

    def _match(
        self, group: FusionGroup, member: IRNode, place: int, host: FusionGroup, index: Index
    ) -> _Match | None:
        """Fit the loops of a group to those of the host, where `member` reads what the host has at `index`."""
        operand = member.operands[place]
        assert isinstance(operand, View)
        wanted = group.reads(member, place)
        if wanted is None or host.partials or not _walks_elements(host):
            return None
        strides = contiguous_strides(operand.base.shape)
        have = radix(linearize(index, strides))
        want = radix(linearize(wanted, strides))
        if have is None or want is None:
            return None
        if set(have) != set(host.order) or set(want) != set(group.order):
            return None
        matched = refine(have, want)
        if matched is None:
            return None
        _, left, right = matched
        lanes = _image(frozenset(group.order) - group.reduced, right)
        reduced = _image(host.reduced, left)
        if reduced and reduced != lanes:
            return None
        return _Match(host, left, right, lanes) if self._pays(host, left, lanes) else None

    def _pays(self, host: FusionGroup, left: dict[Var, Affine], lanes: frozenset[Var]) -> bool:
        sizes = [v.size for v in _expand(host.order, left)]
        shortest, longest = LANES[self.device]
        length = math.prod(v.size for v in lanes)
        if arguments([*sizes]) or not shortest <= length <= longest:
            return False
        return math.prod(sizes) // length >= FEWEST * BLOCKS[self.device]

    def _apply(
        self,
        group: FusionGroup,
        total: IRNode,
        ahead: list[IRNode],
        behind: list[IRNode],
        match: _Match,
    ) -> bool:
        """Rewrite both groups; False if the result would be no kernel."""
        host, lanes = match.host, match.lanes
        (operand,) = _views(total)
        if operand.base not in (*ahead, *host.members):
            ahead = [*ahead, self._copy(group, total)]
        order = _expand(host.order, match.left)
        made = FusionGroup(
            sorted([*host.members, *ahead], key=self.position.__getitem__),
            {p: _apply(i, match.left) for p, i in host.index.items()}
            | {p: _apply(self._index(group, total, p), match.right) for p in ahead},
            {p: _apply(i, match.left) for p, i in host.inner.items()},
            lanes,
            order,
            [Fold(f.partial, f.value, f.offset.substitute(match.left)) for f in host.folds],
        )
        read = group.reads(total, 0)
        assert read is not None
        where = linearize(read, contiguous_strides(operand.base.shape))
        there = where.substitute(match.right)
        length = math.prod(v.size for v in lanes)
        rows = math.prod(v.size for v in order) // length
        if (
            there.vars != frozenset(order)
            or any(coef < length for var, coef in there.terms if var not in lanes)
            or any(coef >= length for var, coef in there.terms if var in lanes)
            or any(self._reaches(o.base, host) for m in ahead for o in _views(m))
            or not _consistent(made, self._other_users(total), self.outputs)
        ):
            return False
        blocks = -(-rows // self._rows_of_block(rows))
        dtype = "float32" if total.dtype in HALVES else total.dtype
        value = next((p for p in ahead if p.attrs.get("copied") is total), operand.base)
        partial = IRNode("fold", "fold", (blocks, length), dtype, (View(value),))
        made.folds.append(Fold(partial, value, _only(there, lanes)))
        for name, value in vars(made).items():
            setattr(host, name, value)
        kept, block = frozenset(group.order) - group.reduced, Var(blocks)
        group.partials[total] = partial, _only(where, kept) + Affine.build({block: length})
        group.members, group.reduced = behind, frozenset({block})
        group.order = [*(v for v in group.order if v in kept), block]
        group.index = {m: group.index[m] for m in behind}
        group.inner = {}
        self.owner.update(dict.fromkeys(ahead, host))
        return True

    def _copy(self, group: FusionGroup, total: IRNode) -> IRNode:
        """What a sum reads from memory, as a value of a kernel."""
        view = total.operands[0]
        assert isinstance(view, View)
        kind = register_type(view.dtype)
        copy = IRNode(
            "pw", "as", view.shape, view.dtype, (view,), {"compute": kind, "copied": total}
        )
        self.position[copy], self.part.users[copy] = self.position[total], [total]
        return copy

    def _index(self, group: FusionGroup, total: IRNode, member: IRNode) -> Index:
        return group.inner[total] if member.attrs.get("copied") is total else group.index[member]

    def _rows_of_block(self, rows: int) -> int:
        size = FEWEST
        while 2 * size * BLOCKS[self.device] <= rows and size < LONGEST:
            size *= 2
        return size

    def _other_users(self, total: IRNode) -> dict[IRNode, list[IRNode]]:
        """Users that read a whole value."""
        folded = {total, *(p for g in self.part.groups for p in g.partials)}
        return {p: [u for u in users if u not in folded] for p, users in self.part.users.items()}

    def _reaches_group(self, group: FusionGroup, other: FusionGroup) -> bool:
        """A group reads what is computed from values of another one."""
        return any(
            self.owner.get(o.base) is not group and self._reaches(o.base, other, True)
            for m in group.members
            for o in _views(m)
        )

    def _reaches(self, value: IRNode, host: FusionGroup, itself: bool = False) -> bool:
        """A value outside of the host is computed from one of the host's."""
        if self.owner.get(value) is host:
            return itself
        pending, seen = [value], set[IRNode]()
        while pending:
            prim = pending.pop()
            if prim in seen:
                continue
            seen.add(prim)
            group = self.owner.get(prim)
            if group is host:
                return True
            pending += group.added_up if group is not None else []
            for member in group.members if group is not None else [prim]:
                pending += [o.base for o in _views(member)]
        return False

    def partition(self) -> Partition:
        folded = {p for g in self.part.groups for p in g.partials}
        owner, users = self.owner, self.part.users
        escapes = frozenset(
            p
            for p in owner
            if p in self.outputs
            or any(u not in folded and owner.get(u) is not owner[p] for u in users[p])
        )
        return Partition(self.part.groups, _schedule(self.prims, owner), users, escapes)


def _sum_of(group: FusionGroup) -> IRNode | None:
    """The only reduction of a group, if it is a sum of floating-point values and nothing along its rows is computed after it."""
    reduces = [m for m in group.members if m.kind == "reduce"]
    plain = (
        len(reduces) == 1 and reduces[0].op == "sum" and reduces[0].dtype.startswith(("fl", "bf"))
    )
    marked = any(
        m.attrs.get(mark) for m in group.members for mark in ("window", "own", "contracted")
    )
    if not plain or marked or not group.reduced or not _walks_elements(group):
        return None
    total = reduces[0]
    later = [m for m in group.members if _depends(m, total, group)]
    return total if all(group.is_row_level(m) for m in later) else None


def _walks_elements(group: FusionGroup) -> bool:
    return not group.is_windowed and all(
        m.kind in ("pw", "reduce") and m.op not in ("gather", "bounded") for m in group.members
    )


def _depends(member: IRNode, on: IRNode, group: FusionGroup) -> bool:
    pending = [member]
    while pending:
        for view in _views(pending.pop()):
            if view.base is on:
                return True
            if view.base in group.index:
                pending.append(view.base)
    return False


def _views(prim: IRNode) -> Iterable[View]:
    return (o for o in prim.operands if isinstance(o, View))


def _only(offset: Affine, variables: frozenset[Var]) -> Affine:
    return Affine.build({var: coef for var, coef in offset.terms if var in variables})
