"""Small groups side by side that have the same loops and do not wait for each other, as one kernel.

The backward of a training step ends in several short sums: gradients of a weight and of a bias, of partial sums over rows. Each would be a
launch of a few microseconds of the host's time, in which a GPU computes nothing.
"""

from __future__ import annotations

import math

from dvk.composer.fusion.groups import FusionGroup, Partition, live
from dvk.composer.fusion.partition import _apply, _expand, _image, _schedule
from dvk.composer.ir.affine import refine
from dvk.composer.ir.nodes import IRNode, View
from dvk.composer.ir.symint import arguments
from dvk.composer.lowering.whole_graph import PrimGraph

SMALL = 1 << 21
"""Elements that a group walks below which the launch, not memory, decides: 8 MB are 2 µs on a large GPU."""
MOST = 8
"""Groups of one kernel."""

Step = FusionGroup | IRNode


def joined(graph: PrimGraph, part: Partition) -> Partition:
    """The partition with small groups that are alike joined."""
    groups = [g for g in part.groups if _is_small(g)]
    if len(groups) < 2:
        return part
    prims = live(graph)
    position = {p: n for n, p in enumerate(prims)}
    owner = {m: g for g in part.groups for m in g.members}
    changed = False
    for number, first in enumerate(groups):
        count = 1
        for second in groups[number + 1 :]:
            if owner.get(second.members[0]) is not second or count == MOST:
                continue
            if owner.get(first.members[0]) is not first or _depend(part, owner, first, second):
                continue
            if _join(first, second, position):
                owner.update(dict.fromkeys(first.members, first))
                changed, count = True, count + 1
    if not changed:
        return part
    kept = list(dict.fromkeys(owner[g.members[0]] for g in part.groups))
    return Partition(kept, _schedule(prims, owner), part.users, part.escapes)


def _is_small(group: FusionGroup) -> bool:
    sizes = [v.size for v in group.order]
    plain = all(
        m.kind in ("pw", "reduce") and m.op not in ("gather", "bounded") for m in group.members
    )
    marked = any(m.attrs.get(k) for m in group.members for k in ("window", "own", "contracted"))
    reduces = any(m.kind == "reduce" for m in group.members)
    return (
        plain
        and not marked
        and reduces
        and not group.folds
        and not arguments(sizes)
        and math.prod(sizes) <= SMALL
    )


def _depend(
    part: Partition, owner: dict[IRNode, FusionGroup], first: FusionGroup, second: FusionGroup
) -> bool:
    """One of two groups waits for the other, or calls between them keep an order that one kernel would break."""
    earlier: dict[int, Step] = {}
    previous: Step | None = None
    for step in part.schedule:
        if isinstance(step, IRNode):
            if previous is not None:
                earlier[id(step)] = previous
            previous = step
    return _waits(first, second, owner, earlier) or _waits(second, first, owner, earlier)


def _waits(
    step: Step, other: FusionGroup, owner: dict[IRNode, FusionGroup], earlier: dict[int, Step]
) -> bool:
    """A step runs after another one."""
    pending, seen = [step], set[int]()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one is other:
            return True
        members = one.members if isinstance(one, FusionGroup) else [one]
        bases = [o.base for m in members for o in m.operands if isinstance(o, View)]
        if isinstance(one, FusionGroup):
            bases += one.added_up
        elif id(one) in earlier:
            pending.append(earlier[id(one)])
        pending += [owner.get(base, base) for base in bases]
    return False


def _join(first: FusionGroup, second: FusionGroup, position: dict[IRNode, int]) -> bool:
    """Put a group's members into another one, whose loops they fit."""
    rows = refine(*([v for v in g.order if v not in g.reduced] for g in (first, second)))
    sums = refine(*([v for v in g.order if v in g.reduced] for g in (first, second)))
    if rows is None or sums is None or bool(first.reduced) != bool(second.reduced):
        return False
    if _walks_along(first) != _walks_along(second):
        return False
    left, right = rows[1] | sums[1], rows[2] | sums[2]
    first.order = _expand(first.order, left)
    first.members = sorted([*first.members, *second.members], key=position.__getitem__)
    first.reduced = _image(first.reduced, left)
    first.index = {p: _apply(i, left) for p, i in first.index.items()} | {
        p: _apply(i, right) for p, i in second.index.items()
    }
    first.inner = {p: _apply(i, left) for p, i in first.inner.items()} | {
        p: _apply(i, right) for p, i in second.inner.items()
    }
    first.partials = {p: (f, o.substitute(left)) for p, (f, o) in first.partials.items()} | {
        p: (f, o.substitute(right)) for p, (f, o) in second.partials.items()
    }
    return True


def _walks_along(group: FusionGroup) -> list[bool]:
    """For each loop, whether it is reduced, outermost first; neighbours of one kind count once."""
    kinds = [v in group.reduced for v in group.order]
    return [k for n, k in enumerate(kinds) if n == 0 or kinds[n - 1] != k]
