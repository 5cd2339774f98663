"""Write one kernel as a C++ function: loops over rows and lanes, one pass over a row a stage.

Row kernels reduce along memory: a task is a row, SIMD runs along it. Column kernels reduce across
memory: a task is a piece of the fastest row variable, accumulators are arrays over the piece.
Pointwise kernels are column kernels that reduce nothing. Costly values that a later pass needs again
are kept in a row-sized buffer on the stack. Sums over long rows accumulate in double.
"""

from __future__ import annotations

import math
from typing import Any

from dvk.composer.codegen.analysis.online import online_pair
from dvk.composer.codegen.cpp.centred import centres, declare_first, declare_mean
from dvk.composer.codegen.cpp.convolution import Direct
from dvk.composer.codegen.cpp.kept import plan_kept
from dvk.composer.codegen.cpp.lanes import ahead, flat_kernel, row_segments, segments
from dvk.composer.codegen.cpp.matmul import Product
from dvk.composer.codegen.cpp.pooling import inside, window_pass
from dvk.composer.codegen.cpp.rows import accumulate, clause, constant_reduce, identity, may_be_nan, one_pass, open_loop, simd_loop
from dvk.composer.codegen.cpp.scalar import REGISTER, STORAGE, gathered, literal, loaded, scalar_expression, stored
from dvk.composer.codegen.cpp.scan import scan_kernel
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.loops import Argument, Bound, Instr, Kernel, Ref

LONG_SUM = 1 << 16
"""Elements above which a float sum accumulates in double: 65,536 additions in one float lane cost about four digits."""
LONG_COLUMN = LONG_SUM // 16
"""The same down a column, which has one accumulator where a row's vector has sixteen: a mean of 16,384 equal terms was 1.5e-4 off."""
SERIAL_BELOW = 1 << 13
"""Elements below which starting threads costs more than it saves (a parallel region takes about 5 µs)."""


class Writer:
    """The text of one kernel under a schedule."""

    buffer = "s"
    """Letter of the buffers that hold values between passes."""
    half = ("h2f({})", "f2h({})")
    """How an element of float16 is read and written."""
    centres = True
    """Means are made around the row's first element."""
    costly_halves = True
    """Reading one takes some ten operations: worth keeping for the next pass over a row."""

    def __init__(self, kernel: Kernel, schedule: dict[str, Any], inplace: dict[int, int]):
        self.k, self.schedule, self.inplace = kernel, schedule, inplace
        self.lines: list[str] = []
        self.names = {v: f"i{n}" for n, v in enumerate((*kernel.rows, *kernel.reduced))}
        self.depth = 0
        # The variable that SIMD runs over: the fastest reduced one, or the fastest row variable.
        self.rows = kernel.family == "row" or schedule.get("walk") == "strided"
        pool = kernel.reduced if self.rows else kernel.rows
        self.lane: Var | None = pool[-1] if pool else None
        self.arrays = not self.rows and kernel.family in ("column", "window") and schedule.get("form") != "direct"
        self.safe: frozenset[Bound] = frozenset()
        """Bounds that the loops around keep by themselves."""
        self.pair = online_pair(kernel) if schedule.get("online") and self.rows and schedule["parallel"] != "inner" else None
        self.means = centres(kernel) if self.centres and (self.rows or self.k.family == "column") else {}
        """Means that are made around the row's first element, and their sums, by number."""
        self.done: set[int] = set()
        self.segment = (0, kernel.reduced[-1].size if kernel.reduced else 1)
        """What of the lane the loop being written walks."""
        self.kept: set[int] = set()
        self.kept = plan_kept(self)

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        self.put(f"{text} {{".lstrip())
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.put("}")

    # -------------------------------------------------------------- the function

    def function(self) -> str:
        if self.schedule.get("form") == "direct" or self.k.family == "product":
            return (Direct if self.schedule.get("form") == "direct" else Product)(self).text()
        self.signature()
        if self.k.family in ("scan", "scan_column"):
            scan_kernel(self)
        elif self.rows:
            self._row_kernel()
        elif self.schedule.get("form") == "flat":
            flat_kernel(self, self._total() >= SERIAL_BELOW and self.schedule["parallel"] != "serial")
        else:
            self._lane_kernel()
        self.close()
        return "\n".join(self.lines)

    def params(self) -> str:
        """Parameters; those that share memory with another are not restricted."""
        k = self.k
        aliased = set(self.inplace.values())
        params = [f"const {STORAGE[b.dtype]}* {'' if n in aliased else '__restrict '}a{n}" for n, b in enumerate(k.inputs)]
        params += [f"{STORAGE[b.dtype]}* {'' if n in self.inplace else '__restrict '}o{n}" for n, b in enumerate(k.outputs)]
        return ", ".join(params)

    def signature(self) -> None:
        """Open the function."""
        self.put(f"// {self.k.summary}")
        if self.schedule["width"] == 256:
            self.put('__attribute__((target("prefer-vector-width=256")))')
        self.open(f'extern "C" void {self.k.name}({self.params()})')

    def _total(self) -> int:
        return self.k.num_rows * self.k.row_length

    def _lane_kernel(self) -> None:
        """Pointwise and column kernels: tasks are pieces of the fastest row variable, SIMD runs inside a piece."""
        k = self.k
        lane = self.lane or Var(1)
        self.names.setdefault(lane, "i0")
        if self.lane is not None and self.whole_lane(lane):
            return
        chunk = min(int(self.schedule["chunk"]), max(lane.size, 1))
        pieces = -(-lane.size // chunk)
        outer = [v for v in k.rows if v is not lane]
        tasks = pieces * math.prod(v.size for v in outer)
        self.parallel_for("t", tasks)
        self.decompose("t", [*outer, ("p", pieces)] if pieces > 1 else outer)
        self.lane_piece(lane, chunk)
        if not k.reduced:
            self.lane_loop([i for i in k.instrs], [], stores=list(k.stores))
        else:
            self._passes(chunk)
        self.close()

    def whole_lane(self, lane: Var) -> bool:
        """Write the kernel without pieces of the lane, where a dialect does so; True if that was done."""
        del lane
        return False

    def lane_piece(self, lane: Var, chunk: int) -> None:
        """Declare where piece `p` of the lane starts and how long it is."""
        if chunk >= lane.size:
            self.put(f"const long lo = 0, len = {lane.size!r};")
            return
        self.put(f"const long lo = p * {chunk};")
        self.put(f"const long len = {lane.size} - lo < {chunk} ? {lane.size} - lo : {chunk};")

    def parallel_for(self, name: str, tasks: int, clauses: str = "") -> None:
        """Open a loop whose turns go to threads, unless there is too little to do."""
        if tasks > 1 and self._total() >= SERIAL_BELOW and self.schedule["parallel"] != "serial":
            self.put(f"#pragma omp parallel for schedule(static) {clauses}".rstrip())
        self.open(f"for (long {name} = 0; {name} < {tasks!r}; ++{name})")

    def open_row(self, lane: Var, clauses: str) -> int:
        """Open a vector loop over the whole lane; how many of the blocks to close after it are not there."""
        start, stop = self.segment
        self.open("")
        self.put(f"const long lo = {start}, hi = {stop!r};")
        simd_loop(self, lane, clauses, "lo", "hi")
        return 0

    def decompose(self, flat: str, variables: list[Any]) -> None:
        """Declare each variable as its digit of the flat index, the last one fastest."""
        named = [(self.names[v], v.size) if isinstance(v, Var) else v for v in variables]
        rest = flat
        for position, (name, size) in enumerate(reversed(named)):
            last = position == len(named) - 1
            self.put(f"const long {name} = {rest if last else f'{rest} % {size}'};")
            if not last:
                self.put(f"const long {flat}{position} = {rest} / {size};")
                rest = f"{flat}{position}"

    def _row_kernel(self) -> None:
        """Row kernels: a task is a row, or with `inner` parallelism a piece of each pass over it."""
        k = self.k
        if self.schedule["parallel"] == "inner":
            self.open(f"for (long t = 0; t < {k.num_rows!r}; ++t)")
        else:
            self.parallel_for("t", k.num_rows)
        self.decompose("t", list(k.rows))
        for value in sorted(self.kept):
            self.put(f"{REGISTER[k.instrs[value].type]} {self.buffer}{value}[{k.row_length!r}];")
        self._passes(0)
        self.close()

    # -------------------------------------------------------------- passes

    def _passes(self, chunk: int) -> None:
        k = self.k
        for stage in range(k.num_stages):
            self._row_values([i for i in k.instrs if k.is_row_value(i) and i.stage == stage and not i.op.startswith("reduce_")], chunk)
            reduces = [i for i in k.instrs if i.op.startswith("reduce_") and i.stage == stage + 1]
            constant = [r for r in reduces if k.is_row_value(k.instrs[_ref(r.args[0])])]
            for r in constant:
                constant_reduce(self, r, chunk)
            looped = [r for r in reduces if r not in constant and not self._in_pair(r)]
            if self.pair is not None and self.pair.first in reduces:
                one_pass(self, self.pair)
            stores = self._element_stores(stage)
            if looped or stores:
                self._pass(self.closure(self.targets(stage)), looped, stores, chunk)
                self.done.update(i.id for i in self.closure(self.targets(stage)))
        self._row_stores([s for s in k.stores if k.is_row_store(s)])

    def _in_pair(self, reduce: Instr) -> bool:
        return self.pair is not None and reduce in (self.pair.first, self.pair.second)

    def _element_stores(self, stage: int) -> list[Any]:
        return [s for s in self.k.stores if not self.k.is_row_store(s) and self.k.instrs[s.value].stage == stage]

    def targets(self, stage: int) -> list[int]:
        """Element-level values that the pass of a stage is made for."""
        k = self.k
        reduces = [i for i in k.instrs if i.op.startswith("reduce_") and i.stage == stage + 1 and not self._in_pair(i)]
        reduced = [_ref(i.args[0]) for i in reduces]
        return [t for t in [*reduced, *(s.value for s in self._element_stores(stage))] if not k.is_row_value(k.instrs[t])]

    def closure(self, targets: list[int]) -> list[Instr]:
        """Element-level instructions that the targets need, not going behind values kept from an earlier pass."""
        needed: set[int] = set()
        pending = list(targets)
        while pending:
            instr = self.k.instrs[pending.pop()]
            if instr.id in needed or self.k.is_row_value(instr):
                continue
            needed.add(instr.id)
            if instr.id not in self.kept or instr.id not in self.done:
                pending.extend(a.id for a in instr.args if isinstance(a, Ref))
        return [i for i in self.k.instrs if i.id in needed]

    def start(self, r: Instr, chunk: int) -> None:
        """Declare a reduction's results over a piece of the lane."""
        if self.is_centre(r):
            declare_first(self, r, chunk)
        self.put(f"{self.accumulator(r)} v{r.id}[{chunk}]; for (long l = 0; l < len; ++l) v{r.id}[l] = {identity(r)};")

    def _pass(self, needed: list[Instr], reduces: list[Instr], stores: list[Any], chunk: int) -> None:
        if self.arrays and self.k.family == "window":
            window_pass(self, needed, reduces, chunk)
            return
        if self.arrays:
            for r in reduces:
                self.start(r, chunk)
            for var in self.k.reduced:
                self.open(f"for (long {self.names[var]} = 0; {self.names[var]} < {var.size!r}; ++{self.names[var]})")
            self.lane_loop(needed, reduces, stores)
            for _ in self.k.reduced:
                self.close()
            self._finish(reduces, chunk)
            return
        for r in reduces:
            if self.is_centre(r):
                declare_first(self, r, chunk)
            self.put(f"{self.accumulator(r)} v{r.id} = {identity(r)};")
            if may_be_nan(r):
                self.put(f"int nan{r.id} = 0;")
        for segment in row_segments(self):
            self.segment = segment
            depth = open_loop(self, self.k.reduced[-1], self.k.reduced[:-1], " ".join(clause(r) for r in reduces))
            for instr in needed:
                self.scalar(instr)
            for r in reduces:
                accumulate(self, r, f"v{r.id}")
            for s in stores:
                self.store(s)
            self.close()
            for _ in range(depth):
                self.close()
        self.segment = (0, self.k.reduced[-1].size)
        self._finish(reduces, chunk)

    def is_centre(self, r: Instr) -> bool:
        """The reduction is summed around the row's first element."""
        return r.id in self.means.values()

    def _finish(self, reduces: list[Instr], chunk: int) -> None:
        """What is left to do with results once all elements are taken in."""
        for r in reduces:
            if self.is_centre(r):
                declare_mean(self, r, chunk)
            if may_be_nan(r) and not self.arrays:
                self.put(f"if (nan{r.id}) v{r.id} = __builtin_nan(\"\");")

    def lane_loop(self, needed: list[Instr], reduces: list[Instr], stores: list[Any]) -> None:
        """One vector loop over a piece of the lane, or one over each segment of all of it."""
        lane, first = self.lane, ahead(self, needed)
        for instr in first:
            self.scalar(instr)
        whole = lane is not None and not self.arrays and int(self.schedule["chunk"]) >= lane.size
        for start, stop in segments(self.k, lane) if whole and lane is not None else [("0", "len")]:
            self.put("#pragma omp simd")
            self.open(f"for (long l = {start}; l < {stop}; ++l)")
            if lane is not None:
                self.put(f"const long {self.names[lane]} = lo + l;")
            for instr in needed:
                if instr not in first:
                    self.scalar(instr)
            for r in reduces:
                accumulate(self, r, f"v{r.id}[l]")
            for s in stores:
                self.store(s)
            self.close()

    def _row_values(self, instrs: list[Instr], chunk: int) -> None:
        if not self.arrays:
            for instr in instrs:
                self.scalar(instr)
            return
        if not instrs:
            return
        for instr in instrs:
            self.put(f"{REGISTER[instr.type]} v{instr.id}[{chunk}];")
        self.put("#pragma omp simd")
        self.open("for (long l = 0; l < len; ++l)")
        if self.lane is not None:
            self.put(f"const long {self.names[self.lane]} = lo + l;")
        for instr in instrs:
            self.put(f"v{instr.id}[l] = {self._expression(instr)};")
        self.close()

    def _row_stores(self, stores: list[Any]) -> None:
        if self.arrays and stores:
            self.lane_loop([], [], stores)
            return
        for s in stores:
            self.store(s)

    # -------------------------------------------------------------- reductions

    def accumulator(self, r: Instr) -> str:
        """The type that a reduction's result is collected in."""
        most = LONG_COLUMN if self.arrays else LONG_SUM
        if r.op == "reduce_prod" and r.type == "float32":
            return "double"  # the product of a lane overflows or underflows where that of the row does not
        long_sum = r.op == "reduce_sum" and r.type == "float32" and self.k.row_length > most
        return "double" if long_sum else REGISTER[r.type]

    # -------------------------------------------------------------- expressions

    def scalar(self, instr: Instr) -> None:
        """Declare an instruction's value."""
        kept = instr.id in self.kept
        place = f"{self.buffer}{instr.id}[{self.offset(self._row_position)}]" if kept else ""
        value = place if instr.id in self.done and kept else self._expression(instr)
        self.put(f"{self.declaration(instr)} v{instr.id} = {self.bare(value)};")
        if kept and instr.id not in self.done:
            self.put(f"{place} = v{instr.id};")

    def declaration(self, instr: Instr) -> str:
        """The words before a value's name."""
        return f"const {REGISTER[instr.type]}"

    def bare(self, text: str) -> str:
        """What of an expression is written on the right of an assignment."""
        return text

    @property
    def _row_position(self) -> Affine:
        """Which element of the row, counted along the reduced variables."""
        position, step = Affine(), 1
        for var in reversed(self.k.reduced):
            position = position + Affine.build({var: step})
            step *= var.size
        return position

    def offset(self, offset: Affine) -> str:
        """An index as source text."""
        parts = [f"{self.names[v]} * {c}" if c != 1 else self.names[v] for v, c in offset.terms]
        return " + ".join(parts + ([str(offset.const)] if offset.const else [])) or "0"

    def arg(self, arg: Argument, want: str) -> str:
        """An operand converted to the compute type."""
        if not isinstance(arg, Ref):
            return literal(arg, want)
        instr = self.k.instrs[arg.id]
        in_array = self.arrays and self.k.is_row_value(instr)
        name = f"v{arg.id}[l]" if in_array else f"v{arg.id}"
        if instr.type == want and not (instr.op.startswith("reduce_") and self.accumulator(instr) != REGISTER[want]):
            return name
        return f"(({REGISTER[want]}){name})" if want != "bool" else f"({name} != 0)"

    def _expression(self, instr: Instr) -> str:
        if instr.op == "load":
            cell = f"a{instr.buffer}[{self.offset(instr.offset)}]"
            return self._within(instr, loaded(cell, self.k.inputs[instr.buffer].dtype, self.half))
        if instr.op == "gather":
            return gathered(self, instr)
        if instr.op == "bounded":
            return self._within(instr, self.arg(instr.args[0], instr.type))
        if instr.op == "iota":
            return self.offset(instr.offset)
        if instr.id in self.means:
            return f"c{self.means[instr.id]}" + ("[l]" if self.arrays else "")
        a = [self.arg(x, instr.compute) for x in instr.args]
        return scalar_expression(instr, a, [self.arg(x, "bool") for x in instr.args[:1]], self.half)

    def _within(self, instr: Instr, text: str) -> str:
        """A value where its bounds hold, its fill elsewhere."""
        kept = [inside(f"({self.offset(b[0])})", b) for b in instr.bounds if b not in self.safe]
        return f"({' & '.join(kept)} ? {text} : {literal(instr.fill, instr.type)})" if kept else text

    def store(self, store: Any) -> None:
        """Write an output."""
        instr = self.k.instrs[store.value]
        buffer = self.k.outputs[store.buffer]
        value = self.arg(Ref(instr.id), instr.type)
        self.put(f"o{store.buffer}[{self.offset(store.offset)}] = {stored(value, buffer.dtype, self.half)};")


def _ref(arg: Argument) -> int:
    assert isinstance(arg, Ref), "a reduction's operand is a value"
    return arg.id
