"""The loop form of one kernel: what renderers turn into C++ or Triton.

A `Kernel` is a list of instructions over row variables and reduction variables. Each instruction
belongs to a stage: stage 0 needs no reduction, stage k needs the results of reductions whose
operands are of stage k−1. A renderer may keep a whole row in registers and ignore stages, or make
one pass over the row a stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dvk.composer.fusion.partition import Group, Partition
from dvk.composer.ir.affine import ZERO, Affine, Index, Var, linearize
from dvk.composer.ir.matmul_form import form_of
from dvk.composer.ir.nodes import BYTES, FLOATS, Prim, View, ViewStep, broadcast_index, contiguous_strides, gathered_index, register_type


@dataclass(frozen=True)
class Buffer:
    """A tensor a kernel reads or writes."""

    prim: Prim
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    steps: tuple[ViewStep, ...] = ()
    """Views that the host applies first, because no affine index reads through them; the result is row-major."""

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def last(self) -> int:
        """Where its last element is, in elements from its first."""
        return sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))

    @property
    def num_bytes(self) -> int:
        return self.numel * BYTES[self.dtype]


@dataclass(frozen=True)
class Ref:
    """Argument that names an earlier instruction."""

    id: int


READS = ("load", "gather")
"""Instructions that read memory."""
Argument = Ref | bool | int | float
Bound = tuple[Affine, int]
"""An index and how many elements there are: 0 ≤ index < count."""


@dataclass(frozen=True)
class Instr:
    """One instruction; `op` is `load`, `gather`, `iota`, `reduce_sum`… or a scalar operation."""

    id: int
    op: str
    args: tuple[Argument, ...]
    type: str
    """Register type of the result."""
    compute: str
    """Type the operands are converted to."""
    vars: frozenset[Var]
    """Loop variables the value depends on."""
    stage: int
    buffer: int = -1
    """For a load, which input."""
    offset: Affine = ZERO
    """For a load, elements from the buffer's start; for iota, the value."""
    places: tuple[tuple[int, int], ...] = ()
    """For a gather, whose operands are computed places: how many elements one place is, and how many there are; 0 where all of them are."""
    bounds: tuple[Bound, ...] = ()
    """For a load or a `bounded` value, where it is read at all; elsewhere it is `fill`."""
    fill: bool | int | float = 0
    backward: bool = False
    """For a scan, from the row's end to its start."""
    prim: Prim | None = field(default=None, compare=False, repr=False)
    """The primitive whose value it is."""
    view: View | None = field(default=None, compare=False, repr=False)
    """For a load, as what its reader named it."""
    call: Call | None = None
    """For a `call`, what is called."""


@dataclass(frozen=True)
class Call:
    """A named operator in place of the scalar operations it consists of, in texts that go by an operator's own name."""

    form: str
    """How it is written, operands as `{0}`, `{1}`, …."""
    inside: frozenset[str]
    """The scalar operations it stands for."""


@dataclass(frozen=True)
class Store:
    """One output written: value, destination and element offset."""

    value: int
    buffer: int
    offset: Affine


@dataclass(frozen=True)
class Kernel:
    """One fused kernel; `rows` and `reduced` list loop variables outermost first."""

    name: str
    rows: tuple[Var, ...]
    reduced: tuple[Var, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    instrs: tuple[Instr, ...]
    stores: tuple[Store, ...]
    family: str = field(default="pointwise")
    """`pointwise`, `row` (reduces the fastest dimension), `column` (reduces a slower one), `window` (many short
    ones that may overlap), `scan` or `scan_column` (a scan along or across memory), `product` (of matrices)."""
    summary: str = ""
    """One line for people: the operators inside."""

    @property
    def num_rows(self) -> int:
        return math.prod(v.size for v in self.rows)

    @property
    def row_length(self) -> int:
        return math.prod(v.size for v in self.reduced)

    @property
    def num_stages(self) -> int:
        return 1 + max((i.stage for i in self.instrs), default=0)

    @property
    def num_bytes(self) -> int:
        """Bytes read once and written once."""
        return sum(b.num_bytes for b in (*self.inputs, *self.outputs))

    def is_row_value(self, instr: Instr) -> bool:
        """Computed once a row rather than once an element."""
        return not instr.vars & frozenset(self.reduced)

    def is_row_store(self, store: Store) -> bool:
        """Written once a row; a constant may still be written to every element."""
        return not store.offset.vars & frozenset(self.reduced)


def build(group: Group, part: Partition, name: str, strides: Mapping[Prim, tuple[int, ...]]) -> Kernel:
    """Loop form of a group.

    Args:
        strides: layout in elements of values that are not contiguous; others are.
    """
    builder = _Builder(group, part, dict(strides))
    for prim in group.members:
        builder.add(prim)
    stores = builder.stores()
    rows, reduced, mapping = _order_and_coalesce(group, builder.instrs, stores)
    instrs = [_rewrite(i, mapping) for i in builder.instrs]
    stores = [Store(s.value, s.buffer, s.offset.substitute(mapping)) for s in stores]
    family = "window" if is_window(group, instrs, stores, reduced) else _family(reduced, instrs)
    if any(i.op.startswith("scan_") for i in instrs):
        family = "scan" if family == "row" else "scan_column"
    summary = " → ".join(dict.fromkeys(p.op for p in group.members if p.op not in ("as", "iota")))
    made = Kernel(name, rows, reduced, tuple(builder.inputs), tuple(builder.outputs), tuple(instrs), tuple(stores), family, summary)
    return replace(made, family="product") if form_of(made) is not None else made


class _Builder:
    def __init__(self, group: Group, part: Partition, strides: dict[Prim, tuple[int, ...]]):
        self.group, self.part, self.strides = group, part, strides
        self.instrs: list[Instr] = []
        self.value: dict[Prim, int] = {}
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self._loads: dict[tuple[int, Affine, tuple[Bound, ...], bool | int | float], int] = {}

    def _emit(self, op: str, args: tuple[Argument, ...], type_: str, compute: str, vars_: frozenset[Var], stage: int,
              **extra: Any) -> int:
        self.instrs.append(Instr(len(self.instrs), op, args, type_, compute, vars_, stage, **extra))
        return len(self.instrs) - 1

    def _buffer(self, prim: Prim) -> Buffer:
        return Buffer(prim, prim.shape, self.strides.get(prim, contiguous_strides(prim.shape)), prim.dtype)

    def _operand(self, prim: Prim, position: int, within: tuple[Bound, ...] = (), fill: bool | int | float = 0) -> Argument:
        """A value's operand; a load that is guarded by exactly the bounds `within` is `fill` outside of them."""
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
            buffer = Buffer(operand.base, operand.shape, contiguous_strides(operand.shape), operand.dtype, operand.steps)
        if buffer not in self.inputs:
            self.inputs.append(buffer)
        at = self.inputs.index(buffer)
        offset = linearize(index, buffer.strides)
        bounds = outside(index, buffer.shape)
        fill = fill if bounds and bounds == within else 0
        if (at, offset, bounds, fill) not in self._loads:
            kind = register_type(buffer.dtype)
            self._loads[at, offset, bounds, fill] = self._emit(
                "load", (), kind, kind, offset.vars.union(*(part.vars for part, _ in bounds)), 0, buffer=at, offset=offset,
                bounds=bounds, fill=fill, prim=operand.base, view=operand)
        return Ref(self._loads[at, offset, bounds, fill])

    def _bounded(self, prim: Prim) -> None:
        """A value inside the bounds of a padded view, its `fill` outside."""
        steps = prim.attrs["steps"]
        index = View(prim, steps).back(self.group.index[prim])
        assert index is not None
        bounds = outside(index, steps[0].before)
        fill, kind = prim.attrs["fill"], register_type(prim.dtype)
        value = self._operand(prim, 0, bounds, fill)
        source = self.instrs[value.id] if isinstance(value, Ref) else None
        if source is not None and (not bounds or (source.op == "load" and source.bounds == bounds and source.fill == fill)):
            self.value[prim] = source.id
            return
        vars_ = frozenset().union(*(part.vars for part, _ in bounds), source.vars if source is not None else ())
        self.value[prim] = self._emit("bounded", (value,), kind, kind, vars_, source.stage if source is not None else 0, bounds=bounds,
                                      fill=fill, prim=prim)

    def _gather(self, prim: Prim) -> None:
        """A load whose place is computed; what it reads is an input, never a value of this kernel."""
        source = prim.operands[0]
        assert isinstance(source, View)
        index, buffer = self.group.reads(prim, 0), self._buffer(source.base)
        if index is None:
            index = gathered_index(prim, self.group.index[prim])
            buffer = Buffer(source.base, source.shape, contiguous_strides(source.shape), source.dtype, source.steps)
        if buffer not in self.inputs:
            self.inputs.append(buffer)
        places = tuple(self._operand(prim, position) for position in range(1, len(prim.operands)))
        known = [self.instrs[place.id] for place in places if isinstance(place, Ref)]
        whole = linearize(index, buffer.strides)
        stands = [way for way in prim.attrs["at"] if isinstance(way, Var)]
        offset = whole.substitute(dict.fromkeys(stands, ZERO))
        self.value[prim] = self._emit(
            "gather", places, register_type(buffer.dtype), prim.attrs["compute"], offset.vars.union(*(i.vars for i in known)),
            max((i.stage for i in known), default=0), buffer=self.inputs.index(buffer), offset=offset,
            places=tuple((whole.coef(way), 0 if prim.attrs["sure"] else way.size) for way in stands), prim=prim)

    def add(self, prim: Prim) -> None:
        if prim.op == "bounded":
            self._bounded(prim)
            return
        if prim.op == "gather":
            self._gather(prim)
            return
        args = tuple(self._operand(prim, i) for i in range(len(prim.operands)))
        sources = [self.instrs[a.id] for a in args if isinstance(a, Ref)]
        vars_: frozenset[Var] = frozenset().union(*(s.vars for s in sources))
        stage = max((s.stage for s in sources), default=0)
        if prim.kind == "reduce":
            # An operand constant along the row is summed as often as the row is long.
            kind = register_type(prim.dtype)
            self.value[prim] = self._emit(f"reduce_{prim.op}", args, kind, kind, vars_ - self.group.reduced, stage + 1, prim=prim)
        elif prim.kind == "scan":
            kind = register_type(prim.dtype)
            self.value[prim] = self._emit(f"scan_{prim.op}", args, kind, kind, vars_ | self.group.reduced, stage, prim=prim,
                                          backward=prim.attrs["backward"])
        elif prim.op == "iota":
            index = self.group.index[prim]
            offset = linearize(index, contiguous_strides(prim.shape)) if prim.attrs["dim"] is None else index[prim.attrs["dim"]]
            self.value[prim] = self._emit("iota", (), "int64", "int64", offset.vars, 0, offset=offset, prim=prim)
        else:
            compute = prim.attrs["compute"]
            kind = register_type(prim.dtype)
            op = prim.op if prim.op != "cast" else f"cast_{prim.dtype}"
            self.value[prim] = self._emit(op, args, kind, compute, vars_, stage, prim=prim)

    def stores(self) -> list[Store]:
        found = []
        for prim in self.group.members:
            if prim in self.part.escapes:
                buffer = self._buffer(prim)
                self.outputs.append(buffer)
                found.append(Store(self.value[prim], len(self.outputs) - 1, linearize(self.group.index[prim], buffer.strides)))
        return found


def _order_and_coalesce(group: Group, instrs: list[Instr], stores: list[Store]
                        ) -> tuple[tuple[Var, ...], tuple[Var, ...], dict[Var, Affine]]:
    """Put the variable that walks memory fastest innermost and join neighbours that walk as one."""
    offsets = [i.offset for i in instrs if i.op in (*READS, "iota")] + [s.offset for s in stores]
    offsets += [part for i in instrs for part, _ in i.bounds]
    memory = [s.offset for s in stores] + [i.offset for i in instrs if i.op in READS]
    mapping: dict[Var, Affine] = {}
    ordered: list[list[Var]] = []
    for keep in (False, True):
        variables = [v for v in group.order if (v in group.reduced) is keep]
        scan = next((p for p in group.members if keep and p.kind == "scan"), None)
        # A scan walks its dimension in order, wherever that lies in memory.
        walks = sorted(memory, key=lambda o: -len(o.vars)) if scan is None else [group.index[scan][scan.attrs["dim"]]]
        guide = next((o for o in walks if all(v in o.vars for v in variables)), None)
        if guide is not None:
            variables.sort(key=lambda v: -abs(guide.coef(v)))
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


def _rewrite(instr: Instr, mapping: dict[Var, Affine]) -> Instr:
    vars_ = frozenset(v for var in instr.vars for v in (mapping[var].vars if var in mapping else {var}))
    bounds = tuple((part.substitute(mapping), count) for part, count in instr.bounds)
    return replace(instr, vars=vars_, offset=instr.offset.substitute(mapping), bounds=bounds)


def outside(index: Index, shape: tuple[int, ...]) -> tuple[Bound, ...]:
    """The parts of an index that may leave their dimension."""
    spans = [(part, count, *part.span()) for part, count in zip(index, shape, strict=True) if part.terms or part.const]
    return tuple((part, count) for part, count, lo, hi in spans if lo < 0 or hi >= count)


MAX_WINDOW = 256
"""Elements of the longest window that one lane walks alone."""
MAX_CONVOLVED = 1024
"""The same of a convolution, whose windows overlap more than anything else would gain from."""


def nowhere(kind: str) -> bool | int | float:
    """What a gather of a register type yields where its place does not exist, for which PyTorch raises."""
    return math.nan if kind in FLOATS else kind != "bool" and 0


def is_window(group: Group, instrs: list[Instr], stores: list[Store], reduced: tuple[Var, ...]) -> bool:
    """Short windows reduced once, and nothing stored but their results."""
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
            # Memory traffic decides: a small gate must not turn the reading of a large tensor.
            votes += math.prod(v.size for v in instr.offset.vars) * (1 if fastest in reduced else -1)
    return "row" if votes >= 0 else "column"
