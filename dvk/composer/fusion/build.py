"""The loop form of a group of primitives: one kernel, from its members and the layouts of its inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dvk.composer.fusion.groups import FusionGroup, Partition
from dvk.composer.fusion.searches import SEARCHES
from dvk.composer.ir.affine import ZERO, Affine, Index, Var, linearize
from dvk.composer.ir.loops import READS, Argument, Bound, Buffer, Instr, Kernel, Ref, Store
from dvk.composer.ir.matmul_form import form_of
from dvk.composer.ir.nodes import (
    IRNode,
    View,
    broadcast_index,
    contiguous_strides,
    gathered_index,
    memory_shape,
    register_type,
)

MAX_WINDOW = 256
"""Elements of the longest window that a single lane may loop over."""

MAX_CONVOLVED = 1024
"""The same limit for a convolution, whose overlapping windows would cost more than other fusion gains."""


def build(
    group: FusionGroup, part: Partition, name: str, strides: Mapping[IRNode, tuple[int, ...]]
) -> Kernel:
    """Build the loop form of a group.

    Args:
        strides: layout in elements of non-contiguous values; others are contiguous.
    """
    builder = _Builder(group, part, dict(strides))
    for prim in group.members:
        builder.add(prim)
    stores = builder.stores()
    rows, reduced, mapping = _order_and_coalesce(group, builder.instrs, stores)
    instrs = [_rewrite(i, mapping) for i in builder.instrs]
    stores = [replace(s, offset=s.offset.substitute(mapping)) for s in stores]
    family = "window" if is_window(group, instrs, stores, reduced) else _family(reduced, instrs)
    if any(i.op.startswith("scan_") for i in instrs):
        family = "scan" if family == "row" else "scan_column"
    summary = " → ".join(dict.fromkeys(p.op for p in group.members if p.op not in ("as", "iota")))
    made = Kernel(
        name,
        rows,
        reduced,
        tuple(builder.inputs),
        tuple(builder.outputs),
        tuple(instrs),
        tuple(stores),
        family,
        summary,
    )
    if group.folds:
        return replace(made, family="row_sums")
    return replace(made, family="product") if form_of(made) is not None else made


class _Builder:
    def __init__(self, group: FusionGroup, part: Partition, strides: dict[IRNode, tuple[int, ...]]):
        self.group, self.part, self.strides = group, part, strides
        self.instrs: list[Instr] = []
        self.value: dict[IRNode, int] = {}
        self.places: dict[IRNode, tuple[Argument, ...]] = {}
        """The computed indices of values that are added to other elements."""
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self._loads: dict[tuple[int, Affine, tuple[Bound, ...], bool | int | float], int] = {}

    def _emit(
        self,
        op: str,
        args: tuple[Argument, ...],
        type_: str,
        compute: str,
        vars_: frozenset[Var],
        stage: int,
        **extra: Any,
    ) -> int:
        self.instrs.append(Instr(len(self.instrs), op, args, type_, compute, vars_, stage, **extra))
        return len(self.instrs) - 1

    def _buffer(self, prim: IRNode) -> Buffer:
        shape = memory_shape(prim)
        return Buffer(prim, shape, self.strides.get(prim, contiguous_strides(shape)), prim.dtype)

    def _operand(
        self,
        prim: IRNode,
        position: int,
        within: tuple[Bound, ...] = (),
        fill: bool | int | float = 0,
    ) -> Argument:
        """The operand of a value; a load guarded by exactly the bounds `within` is `fill` outside of them."""
        operand = prim.operands[position]
        if not isinstance(operand, View):
            return operand
        if operand.base in self.value:
            return Ref(self.value[operand.base])
        index = self.group.reads(prim, position)
        buffer = self._buffer(operand.base)
        if index is None:
            own = self.group.inner[prim] if prim.kind == "reduce" else self.group.index[prim]
            index = broadcast_index(own, operand.shape)
            buffer = Buffer(
                operand.base,
                operand.shape,
                contiguous_strides(operand.shape),
                operand.dtype,
                operand.steps,
            )
        if buffer not in self.inputs:
            self.inputs.append(buffer)
        at = self.inputs.index(buffer)
        offset = linearize(index, buffer.strides)
        bounds = outside(index, buffer.shape)
        fill = fill if bounds and bounds == within else 0
        if (at, offset, bounds, fill) not in self._loads:
            kind = register_type(buffer.dtype)
            self._loads[at, offset, bounds, fill] = self._emit(
                "load",
                (),
                kind,
                kind,
                offset.vars.union(*(part.vars for part, _ in bounds)),
                0,
                buffer=at,
                offset=offset,
                bounds=bounds,
                fill=fill,
                prim=operand.base,
                view=operand,
            )
        return Ref(self._loads[at, offset, bounds, fill])

    def _bounded(self, prim: IRNode) -> None:
        """A value inside the bounds of a padded view, its `fill` outside."""
        steps = prim.attrs["steps"]
        index = View(prim, steps).base_index(self.group.index[prim])
        assert index is not None
        bounds = outside(index, steps[0].before)
        fill, kind = prim.attrs["fill"], register_type(prim.dtype)
        value = self._operand(prim, 0, bounds, fill)
        source = self.instrs[value.id] if isinstance(value, Ref) else None
        if source is not None and (
            not bounds or (source.op == "load" and source.bounds == bounds and source.fill == fill)
        ):
            self.value[prim] = source.id
            return
        vars_ = frozenset().union(
            *(part.vars for part, _ in bounds), source.vars if source is not None else ()
        )
        self.value[prim] = self._emit(
            "bounded",
            (value,),
            kind,
            kind,
            vars_,
            source.stage if source is not None else 0,
            bounds=bounds,
            fill=fill,
            prim=prim,
        )

    def _gather(self, prim: IRNode) -> None:
        """A load at a computed index; its source is an input, never a value of this kernel."""
        source = prim.operands[0]
        assert isinstance(source, View)
        index, buffer = self.group.reads(prim, 0), self._buffer(source.base)
        if index is None:
            index = gathered_index(prim, self.group.index[prim])
            buffer = Buffer(
                source.base,
                source.shape,
                contiguous_strides(source.shape),
                source.dtype,
                source.steps,
            )
        if buffer not in self.inputs:
            self.inputs.append(buffer)
        places = tuple(self._operand(prim, position) for position in range(1, len(prim.operands)))
        known = [self.instrs[place.id] for place in places if isinstance(place, Ref)]
        whole = linearize(index, buffer.strides)
        stands = [way for way in prim.attrs["at"] if isinstance(way, Var)]
        offset = whole.substitute(dict.fromkeys(stands, ZERO))
        self.value[prim] = self._emit(
            "gather",
            places,
            register_type(buffer.dtype),
            prim.attrs["compute"],
            offset.vars.union(*(i.vars for i in known)),
            max((i.stage for i in known), default=0),
            buffer=self.inputs.index(buffer),
            offset=offset,
            places=tuple(
                (whole.coef(way), 0 if prim.attrs["sure"] else way.size) for way in stands
            ),
            prim=prim,
        )

    def _scatter(self, prim: IRNode) -> None:
        """A value for each index, although the value itself may be the same at several."""
        args = tuple(self._operand(prim, i) for i in range(len(prim.operands)))
        stages = [self.instrs[a.id].stage for a in args if isinstance(a, Ref)]
        kind = register_type(prim.dtype)
        vars_ = frozenset().union(*(part.vars for part in self.group.index[prim]))
        self.value[prim] = self._emit("as", args[:1], kind, kind, vars_, max(stages), prim=prim)
        self.places[prim] = args[1:]

    def _partial(self, prim: IRNode) -> Ref:
        """The load of what another kernel has added up of a sum's operand."""
        partial, offset = self.group.partials[prim]
        self.inputs.append(self._buffer(partial))
        kind, at = register_type(partial.dtype), len(self.inputs) - 1
        return Ref(
            self._emit(
                "load", (), kind, kind, offset.vars, 0, buffer=at, offset=offset, prim=partial
            )
        )

    def add(self, prim: IRNode) -> None:
        if prim.op == "bounded":
            self._bounded(prim)
            return
        if prim.op == "gather":
            self._gather(prim)
            return
        if prim.op == "scatter":
            self._scatter(prim)
            return
        if prim in self.group.partials:
            args: tuple[Argument, ...] = (self._partial(prim),)
        else:
            args = tuple(self._operand(prim, i) for i in range(len(prim.operands)))
        sources = [self.instrs[a.id] for a in args if isinstance(a, Ref)]
        vars_: frozenset[Var] = frozenset().union(*(s.vars for s in sources))
        stage = max((s.stage for s in sources), default=0)
        if prim.op in SEARCHES:
            search = SEARCHES[prim.op](self._emit, prim, args, vars_, self.group.reduced, stage)
            self.value[prim] = search.value().id
        elif prim.kind == "reduce":
            # An operand constant along the row is summed as many times as the row is long.
            kind = register_type(prim.dtype)
            self.value[prim] = self._emit(
                f"reduce_{prim.op}",
                args,
                kind,
                kind,
                vars_ - self.group.reduced,
                stage + 1,
                prim=prim,
            )
        elif prim.kind == "scan":
            kind = register_type(prim.dtype)
            self.value[prim] = self._emit(
                f"scan_{prim.op}",
                args,
                kind,
                kind,
                vars_ | self.group.reduced,
                stage,
                prim=prim,
                backward=prim.attrs["backward"],
            )
        elif prim.op == "iota":
            index = self.group.index[prim]
            offset = (
                linearize(index, contiguous_strides(prim.shape))
                if prim.attrs["dim"] is None
                else index[prim.attrs["dim"]]
            )
            self.value[prim] = self._emit(
                "iota", (), "int64", "int64", offset.vars, 0, offset=offset, prim=prim
            )
        else:
            compute = prim.attrs["compute"]
            kind = register_type(prim.dtype)
            op = prim.op if prim.op != "cast" else f"cast_{prim.dtype}"
            self.value[prim] = self._emit(op, args, kind, compute, vars_, stage, prim=prim)

    def stores(self) -> list[Store]:
        result = []
        for prim in self.group.members:
            if prim in self.part.escapes:
                buffer = self._buffer(prim)
                self.outputs.append(buffer)
                result.append(self._store(prim, buffer))
        for fold in self.group.folds:
            self.outputs.append(self._buffer(fold.partial))
            result.append(
                Store(self.value[fold.value], len(self.outputs) - 1, fold.offset, folded=True)
            )
        return result

    def _store(self, prim: IRNode, buffer: Buffer) -> Store:
        """Write the last output."""
        own, number = self.group.index[prim], len(self.outputs) - 1
        if prim.op != "scatter":
            return Store(self.value[prim], number, linearize(own, buffer.strides))
        offset, computed, places = ZERO, iter(self.places[prim]), []
        for way, stride, size in zip(prim.attrs["at"], buffer.strides, buffer.shape, strict=True):
            if way is None:
                places.append((next(computed), stride, size))
            else:
                offset += own[way].scale(stride)
        return Store(self.value[prim], number, offset, places=tuple(places))


def _order_and_coalesce(
    group: FusionGroup, instrs: list[Instr], stores: list[Store]
) -> tuple[tuple[Var, ...], tuple[Var, ...], dict[Var, Affine]]:
    """Put the variable that is fastest in memory innermost and merge neighbours that are contiguous."""
    offsets = [i.offset for i in instrs if i.op in (*READS, "iota")] + [s.offset for s in stores]
    offsets += [part for i in instrs for part, _ in i.bounds]
    memory = [s.offset for s in stores] + [i.offset for i in instrs if i.op in READS]
    mapping: dict[Var, Affine] = {}
    ordered: list[list[Var]] = []
    channels = _channels(group)
    for keep in (False, True):
        variables = [v for v in group.order if (v in group.reduced) is keep]
        scan = next((p for p in group.members if keep and p.kind == "scan"), None)
        # A scan visits its dimension in order, in any layout.
        walks = (
            sorted(memory, key=lambda o: -len(o.vars))
            if scan is None
            else [group.index[scan][scan.attrs["dim"]]]
        )
        guide = next((o for o in walks if all(v in o.vars for v in variables)), None)
        if guide is not None:
            variables.sort(key=lambda v: -abs(guide.coef(v)))
        variables.sort(key=channels.__contains__)
        merged: list[Var] = []
        for var in variables:
            outer = merged[-1] if merged else None
            current = [o.substitute(mapping) for o in offsets]
            if outer is not None and all(o.coef(outer) == o.coef(var) * var.size for o in current):
                joint = Var(outer.size * var.size)
                # outer·(c·n) + inner·c equals joint·c: the whole term moves to the inner variable's coefficient.
                step = {outer: ZERO, var: Affine.of(joint)}
                mapping = {k: a.substitute(step) for k, a in mapping.items()} | step
                merged[-1] = joint
            else:
                merged.append(var)
        ordered.append(merged)
    return tuple(ordered[0]), tuple(ordered[1]), mapping


def _channels(group: FusionGroup) -> frozenset[Var]:
    """The channels that an implicit matmul sums over: for a block of them, the place in the window is one."""
    for prim in group.members:
        if prim.kind == "reduce" and prim.attrs.get("implicit"):
            inner = group.inner[prim]
            return inner[len(inner) - 1 - len(prim.attrs["contracted"])].vars
    return frozenset()


def _rewrite(instr: Instr, mapping: dict[Var, Affine]) -> Instr:
    vars_ = frozenset(
        v for var in instr.vars for v in (mapping[var].vars if var in mapping else {var})
    )
    bounds = tuple((part.substitute(mapping), count) for part, count in instr.bounds)
    return replace(instr, vars=vars_, offset=instr.offset.substitute(mapping), bounds=bounds)


def outside(index: Index, shape: tuple[int, ...]) -> tuple[Bound, ...]:
    """The parts of an index that may leave their dimension."""
    spans = [
        (part, count, *part.span())
        for part, count in zip(index, shape, strict=True)
        if part.terms or part.const
    ]
    return tuple((part, count) for part, count, lo, hi in spans if lo < 0 or hi >= count)


def is_window(
    group: FusionGroup, instrs: list[Instr], stores: list[Store], reduced: tuple[Var, ...]
) -> bool:
    """Short windows are reduced once, and only their results are stored."""
    windowed = any(p.kind == "reduce" and p.attrs.get("window") for p in group.members)
    longest = MAX_CONVOLVED if any(p.attrs.get("contracted") for p in group.members) else MAX_WINDOW
    short = math.prod(v.size for v in reduced) <= longest and all(i.stage <= 1 for i in instrs)
    return windowed and short and not any(s.offset.vars & frozenset(reduced) for s in stores)


def _family(reduced: tuple[Var, ...], instrs: list[Instr]) -> str:
    if not reduced:
        return "pointwise"
    votes = 0
    for instr in instrs:
        if instr.op in READS and instr.vars & frozenset(reduced) and instr.offset.terms:
            fastest = min(instr.offset.terms, key=lambda t: abs(t[1]))[0]
            # Memory traffic decides: a small gate must not turn the reads of a large tensor.
            votes += math.prod(v.size for v in instr.offset.vars) * (
                1 if fastest in reduced else -1
            )
    return "row" if votes >= 0 else "column"
