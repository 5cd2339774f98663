"""Reads of a computed value at computed indices: the value is computed where it is read, and never written.

`gather(f(x, mean), place)` is `f(gather(x, place), gather(mean, place))`: a gather sinks through pointwise operations to what is in memory.
It sinks through a reduction, too, if the indices are those of whole rows and only this read needs the reduction: the kernel then reads its
row where the index says. Otherwise only the statistics of rows go through memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dvk.composer.ir.affine import Var
from dvk.composer.ir.loops import nowhere
from dvk.composer.ir.nodes import HALVES, IRNode, Operand, View, broadcast_shapes, register_type
from dvk.composer.lowering.dispatch import Lowering

MAX_CHAIN = 64
"""Operations recomputed at the index."""
Way = int | View
"""For a dimension of what is read, the dimension of the result, or the index, which broadcasts to the result."""


class _Stays(Exception):
    """The value has to be in memory."""


def read(
    low: Lowering, x: View, at: Sequence[Way], shape: tuple[int, ...], sure: bool = False
) -> View:
    """The elements of `x`, which is in memory, as a value of `shape`; `sure`: every index is valid."""
    stands = {n: Var(x.shape[n]) for n, place in enumerate(at) if isinstance(place, View)}
    ways = tuple(stands.get(n, place) for n, place in enumerate(at))
    places = [low.typed(p, "int32" if sure else "int64") for p in at if isinstance(p, View)]
    return low.pointwise(
        "gather",
        x,
        *places,
        shape=shape,
        dtype=x.dtype,
        compute=places[0].dtype,
        at=ways,
        sure=sure,
        own=True,
    )


def sunk(
    low: Lowering, x: View, at: Sequence[Way], shape: tuple[int, ...], sure: bool
) -> View | None:
    """The same value computed from reads of the operands of `x`; None if `x` had better be written."""
    base = x.base
    if base.kind != "pw" or base.op in ("gather", "iota", "bounded"):
        return None
    if math.prod(shape) > math.prod(base.shape) or base in low.read_later():
        return None
    places = [p for p in at if isinstance(p, View)]
    valid: View | None = None
    if not sure:
        sizes = [n for n, p in zip(x.shape, at, strict=True) if isinstance(p, View)]
        valid = _valid(low, places, sizes)
        at = [
            low.pointwise("where", valid, low.typed(p, "int64"), 0, compute="int64")
            if isinstance(p, View)
            else p
            for p in at
        ]
    made, before, low.coarse = len(low.order), low.coarse, False
    try:
        value = _Sink(low, base, shape).of(x, at)
    except _Stays:
        del low.order[made:]
        return None
    finally:
        low.coarse = before
    if base.dtype in HALVES and base.op != "cast":
        value = low.pointwise("cast", value, dtype=base.dtype, compute="float32")
    kind = register_type(base.dtype)
    if valid is None:
        return low.pointwise("as", value, shape=shape, dtype=base.dtype, compute=kind, own=True)
    return low.pointwise(
        "where", valid, value, nowhere(kind), shape=shape, dtype=base.dtype, compute=kind, own=True
    )


def _valid(low: Lowering, places: list[View], sizes: list[int]) -> View:
    """Every index is one of its dimension's."""
    tests = [
        low.pointwise(op, low.typed(place, "int64"), limit)
        for place, size in zip(places, sizes, strict=True)
        for op, limit in (("ge", 0), ("lt", size))
    ]
    valid = tests[0]
    for test in tests[1:]:
        valid = low.pointwise("and", valid, test, compute="bool")
    return valid


class _Sink:
    """One gather on its way down; all values have the rank of its result and broadcast to it."""

    def __init__(self, low: Lowering, top: IRNode, shape: tuple[int, ...]):
        self.low, self.shape = low, shape
        self.chain = _chain(top)
        later = low.read_later()
        users: dict[IRNode, set[IRNode]] = {}
        for prim in low.order:
            for operand in prim.operands:
                if isinstance(operand, View):
                    users.setdefault(operand.base, set()).add(prim)
        self.alone = {p for p in self.chain if p not in later and users.get(p, set()) <= self.chain}
        self.made: dict[tuple[View, tuple[Way, ...]], View] = {}

    def of(self, view: View, at: Sequence[Way]) -> View:
        """The value that is read, unless it is written for others."""
        if view.base not in self.alone:
            raise _Stays
        return self.value(view, at)

    def value(self, view: View, at: Sequence[Way]) -> View:
        key = view, tuple(at)
        if key not in self.made:
            self.made[key] = self._value(view, at)
        return self.made[key]

    def _value(self, view: View, at: Sequence[Way]) -> View:
        if all(isinstance(way, int) or n == 1 for n, way in zip(view.shape, at, strict=True)):
            return self._in_place(view, at)
        prim = view.base
        if prim not in self.chain or (prim.kind == "reduce" and not self._may_cross(prim, view)):
            return self._read(view, at)
        for step in reversed(view.steps):
            at = _before(step.method, step.args, step.before, step.after, at)
        if prim.kind == "reduce":
            return self._reduced(prim, at)
        if prim.op == "iota":
            return self._index(prim, at)
        operands: list[Operand] = [
            self.value(o, at[len(at) - len(o.shape) :]) if isinstance(o, View) else o
            for o in prim.operands
        ]
        attrs = {k: v for k, v in prim.attrs.items() if k != "compute"}
        if not any(isinstance(o, View) for o in operands):
            attrs["shape"] = (1,) * len(self.shape)
        return self.low.pointwise(
            prim.op, *operands, dtype=prim.dtype, compute=prim.attrs["compute"], **attrs
        )

    def _in_place(self, view: View, at: Sequence[Way]) -> View:
        """A view with no dimension at a computed index."""
        apart, last = [1] * len(self.shape), -1
        for d, (size, way) in enumerate(zip(view.shape, at, strict=True)):
            if size == 1:
                continue
            if not isinstance(way, int) or way <= last:
                raise _Stays
            if self.shape[way] != size:
                part = (*view.shape[:d], self.shape[way], *view.shape[d + 1 :])
                view = view.then("slice", (d, 0, 1), part)
            apart[way], last = self.shape[way], way
        return view.then("reshape", tuple(apart), tuple(apart))

    def _read(self, view: View, at: Sequence[Way]) -> View:
        """A gather of what is in memory."""
        kept = [d for d, size in enumerate(view.shape) if size != 1]
        narrow = tuple(view.shape[d] for d in kept)
        ways = [at[d] for d in kept]
        whole = [1] * len(self.shape)
        for way in ways:
            if isinstance(way, int):
                whole[way] = self.shape[way]
        shape = broadcast_shapes(tuple(whole), *(w.shape for w in ways if isinstance(w, View)))
        return read(self.low, view.then("reshape", narrow, narrow), ways, shape, sure=True)

    def _may_cross(self, prim: IRNode, view: View) -> bool:
        return prim in self.alone and prim.attrs["keepdim"] and not view.steps

    def _reduced(self, prim: IRNode, at: Sequence[Way]) -> View:
        """The reduction of the rows at the index."""
        operand, dims = prim.operands[0], prim.attrs["dims"]
        assert isinstance(operand, View)
        along = [at[d] for d in dims]
        if any(
            not isinstance(way, int) or self.shape[way] != operand.shape[d]
            for way, d in zip(along, dims, strict=True)
        ):
            return self._read(View(prim), at)
        inner = self.value(operand, at)
        full = [
            self.shape[n] if n in along else size
            for n, size in enumerate(broadcast_shapes(inner.shape, (1,) * len(self.shape)))
        ]
        inner = inner.then("expand", tuple(full), tuple(full))
        over = tuple(way for way in along if isinstance(way, int))
        return self.low.reduce(prim.op, inner, over, True, dtype=prim.dtype)

    def _index(self, prim: IRNode, at: Sequence[Way]) -> View:
        if prim.attrs["dim"] is None:
            raise _Stays
        way = at[prim.attrs["dim"]]
        if isinstance(way, View):
            return self.low.typed(way, "int64")
        line = tuple(n if d == way else 1 for d, n in enumerate(self.shape))
        return self.low.pointwise("iota", shape=line, dim=way, compute="int64")


def _chain(top: IRNode) -> set[IRNode]:
    """What is recomputed at the index: pointwise operations and plain reductions below the value."""
    seen: set[IRNode] = set()
    pending = [top]
    while pending:
        prim = pending.pop()
        if prim in seen or not _is_plain(prim):
            continue
        seen.add(prim)
        pending.extend(o.base for o in prim.operands if isinstance(o, View))
        if len(seen) > MAX_CHAIN:
            raise _Stays
    return seen


def _is_plain(prim: IRNode) -> bool:
    if prim.kind == "reduce":
        return set(prim.attrs) <= {"dims", "keepdim"}
    extra = set(prim.attrs) - {"compute", "dim", "coarse", "unit", "own"}
    return prim.kind == "pw" and prim.op not in ("gather", "bounded") and not extra


def _before(
    method: str,
    args: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
    at: Sequence[Way],
) -> list[Way]:
    """The ways of a view's operand."""
    if method == "permute":
        found: list[Way] = [0] * len(before)
        for position, dim in enumerate(args):
            found[dim] = at[position]
        return found
    if method == "expand":
        return list(at[len(after) - len(before) :])
    if method == "reshape" and [n for n in before if n > 1] == [n for n in after if n > 1]:
        rest = iter([way for way, n in zip(at, after, strict=True) if n > 1])
        return [next(rest) if n > 1 else 0 for n in before]
    raise _Stays
