"""The writer of one C++ function: its lines, names, loops over tasks, values and accesses.

`render` decides the order of passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from dvk.composer.codegen.analysis.c_source import CSource
from dvk.composer.codegen.analysis.online import online_pair
from dvk.composer.codegen.cpp.half_blocks import BLOCK, HalfBlocks
from dvk.composer.codegen.cpp.scalar import (
    REGISTER,
    STORAGE,
    identity,
    inside,
    literal,
    loaded,
    may_be_nan,
    scalar_expression,
    stored,
)
from dvk.composer.ir import symint
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.loops import Argument, Bound, Instr, Kernel, Ref, Store, nowhere
from dvk.composer.ir.nodes import FLOATS
from dvk.composer.ir.schedules.base import expect
from dvk.composer.ir.schedules.cpp import CppDirect, CppForm, CppLoops

LONG_SUM = 1 << 16
"""Elements above which a float sum accumulates in double: 65,536 additions in one float lane cost about four digits."""
LONG_COLUMN = LONG_SUM // 16
"""The same limit along a column, which has one accumulator where a row's vector has sixteen: a mean of 16,384 equal terms was 1.5e-4 off.
"""
SERIAL_BELOW = 1 << 13
"""Elements below which starting threads costs more than it saves (a parallel region takes about 5 µs)."""


class CppWriter(CSource):
    """The source of one kernel under a schedule."""

    buffer = "s"
    """Prefix letter of the buffers that hold values between passes."""
    half = ("h2f({})", "f2h({})", "dvk_rounded_half({})")
    """Expressions that read and write a float16 element, and that round a float to one's value."""
    costly_halves = True
    """Reading one takes some ten operations: worth keeping for the next pass over a row."""

    def __init__(self, kernel: Kernel, schedule: CppForm, inplace: dict[int, int]):
        super().__init__(kernel)
        self.schedule, self.inplace = schedule, inplace
        # The variable that SIMD runs over: the fastest reduced one, or the fastest row variable.
        self.rows = kernel.family in ("row", "row_sums") or schedule.strided
        pool = kernel.reduced if self.rows else kernel.rows
        self.lane: Var | None = pool[-1] if pool else None
        self.arrays = (
            not self.rows
            and kernel.family in ("column", "window")
            and not isinstance(schedule, CppDirect)
        )
        self.safe: frozenset[Bound] = frozenset()
        """Bounds that the outer loops already guarantee."""
        self.pair = (
            online_pair(kernel)
            if self.rows and self.loops.online and self.loops.parallel != "inner"
            else None
        )
        self.loop: HalfBlocks | None = None
        """The vector loop that is being written, if it may take fp16 elements in blocks, and the lane's value at the start of a block."""
        self.segment = (0, kernel.reduced[-1].size if kernel.reduced else 1)
        """The range of the lane in the current loop."""

    @property
    def loops(self) -> CppLoops:
        """The schedule of a kernel that is neither a matmul nor a direct convolution."""
        return expect(self.schedule, CppLoops)

    def params(self) -> str:
        """Parameters; `restrict` is omitted for those that share memory with another."""
        k = self.k
        aliased = set(self.inplace.values())
        params = [
            f"const {STORAGE[b.dtype]}* {'' if n in aliased else '__restrict '}a{n}"
            for n, b in enumerate(k.inputs)
        ]
        params += [
            f"{STORAGE[b.dtype]}* {'' if n in self.inplace else '__restrict '}o{n}"
            for n, b in enumerate(k.outputs)
        ]
        params += [f"long {name}" for name in k.size_arguments]
        return ", ".join(params)

    def open_vector_loop(
        self, variable: str, start: str, stop: str, clauses: str = "", *, lane: Var | None = None
    ) -> None:
        """Open a loop whose iterations are lanes of vectors; `lane` is the variable of the kernel that advances with it."""
        loop = HalfBlocks(len(self.lines), self.depth, variable, clauses, start, stop)
        self.lines += loop.head()
        self.depth += 1
        short = lane is None or isinstance(lane.size, int) and lane.size < BLOCK
        if self.costly_halves and not short:
            self.loop = loop

    def close(self) -> None:
        loop = self.loop
        if loop is None or self.depth != loop.depth + 1:
            super().close()
            return
        self.loop = None
        self.depth -= 1
        self.lines[loop.place :] = loop.rewritten(self.lines[loop.place + 2 :])

    def _block_address(self, array: str, dtype: str, offset: Affine) -> str | None:
        """The address at the start of a block, of an fp16 element that is adjacent to the next iteration's; None for others."""
        lane, loop = self.lane, self.loop
        if loop is None or lane is None or dtype != "float16" or offset.coef(lane) != 1:
            return None
        name = self.names[lane]
        self.names[lane] = "first" if name == loop.variable else "(lo + first)"
        try:
            return f"{array} + {self.offset(offset)}"
        finally:
            self.names[lane] = name

    def signature(self) -> None:
        """Open the function."""
        self.put(f"// {self.k.summary}")
        if self.schedule.width == 256:
            self.put('__attribute__((target("prefer-vector-width=256")))')
        self.open(f'extern "C" void {self.k.name}({self.params()})')

    def threads(self) -> str | None:
        """The clause under which threads share a loop: empty if always, None if never, by the number of elements."""
        total = self.k.num_rows * self.k.row_length
        if self.schedule.parallel == "serial":
            return None
        if symint.arguments([total]):
            return f"if({total!r} >= {SERIAL_BELOW})"
        return "" if total >= SERIAL_BELOW else None

    def whole_lane(self, lane: Var) -> bool:
        """Write the kernel without slices of the lane, if the dialect does so; returns whether it did."""
        del lane
        return False

    def lane_piece(self, lane: Var, chunk: int) -> None:
        """Declare the start and the length of slice `p` of the lane."""
        if chunk >= lane.size:
            self.put(f"const long lo = 0, len = {lane.size!r};")
            return
        self.put(f"const long lo = p * {chunk};")
        self.put(f"const long len = {lane.size} - lo < {chunk} ? {lane.size} - lo : {chunk};")

    def parallel_for(self, name: str, tasks: int, clauses: str = "") -> None:
        """Open a loop with iterations shared by threads, unless there is too little work."""
        threads = self.threads()
        if tasks > 1 and threads is not None:
            self.put(f"#pragma omp parallel for schedule(static) {threads} {clauses}".rstrip())
        self.open(f"for (long {name} = 0; {name} < {tasks!r}; ++{name})")

    def open_row(self, lane: Var, clauses: str) -> int:
        """Open a vector loop over the whole lane; returns how many of the blocks to close after it are absent."""
        start, stop = self.segment
        self.open("")
        self.put(f"const long lo = {start}, hi = {stop!r};")
        simd_loop(self, lane, clauses, "lo", "hi")
        return 0

    def decompose(self, flat: str, variables: Sequence[Var | tuple[str, int]]) -> None:
        """Declare each variable as its digit of the flat index, the last one fastest."""
        named = [(self.names[v], v.size) if isinstance(v, Var) else v for v in variables]
        rest = flat
        for position, (name, size) in enumerate(reversed(named)):
            last = position == len(named) - 1
            self.put(f"const long {name} = {rest if last else f'{rest} % {size}'};")
            if not last:
                self.put(f"const long {flat}{position} = {rest} / {size};")
                rest = f"{flat}{position}"

    def _in_pair(self, reduce: Instr) -> bool:
        return self.pair is not None and reduce in (self.pair.first, self.pair.second)

    def targets(self, stage: int) -> list[int]:
        """Element-level values that the pass of a stage computes."""
        k = self.k
        reduces = [
            i
            for i in k.instrs
            if i.op.startswith("reduce_") and i.stage == stage + 1 and not self._in_pair(i)
        ]
        reduced = [ref_of(i.args[0]) for i in reduces]
        return [
            t
            for t in [*reduced, *(s.value for s in self.element_stores(stage))]
            if not k.is_row_value(k.instrs[t])
        ]

    def start(self, r: Instr, chunk: int) -> None:
        """Declare a reduction's results over a slice of the lane."""
        self.put(
            f"{self.accumulator(r)} v{r.id}[{chunk}]; for (long l = 0; l < len; ++l) v{r.id}[l] = {identity(r)};"
        )

    def _finish(self, reduces: list[Instr]) -> None:
        """Finish the results after all elements are accumulated."""
        for r in reduces:
            if may_be_nan(r) and not self.arrays:
                self.put(f'if (nan{r.id}) v{r.id} = __builtin_nan("");')

    def accumulator(self, r: Instr) -> str:
        """The accumulator type of a reduction."""
        most = LONG_COLUMN if self.arrays else LONG_SUM
        if r.op == "reduce_prod" and r.type == "float32":
            return "double"  # a lane's product overflows or underflows where the row's does not
        long_sum = r.op == "reduce_sum" and r.type == "float32" and self.k.row_length > most
        return "double" if long_sum else REGISTER[r.type]

    def scalar(self, instr: Instr) -> None:
        """Declare an instruction's value."""
        kept = instr.id in self.kept
        place = f"{self.buffer}{instr.id}[{self.offset(self._row_position)}]" if kept else ""
        value = place if instr.id in self.done and kept else self._expression(instr)
        self.put(f"{self.declaration(instr)} v{instr.id} = {self.bare(value)};")
        if kept and instr.id not in self.done:
            self.put(f"{place} = v{instr.id};")

    def declaration(self, instr: Instr) -> str:
        """The declaration specifiers of a value."""
        return f"const {REGISTER[instr.type]}"

    def bare(self, text: str) -> str:
        """The right-hand side of an assignment."""
        return text

    @property
    def _row_position(self) -> Affine:
        """Index of the element in its row, counted along the reduced variables."""
        position, step = Affine(), 1
        for var in reversed(self.k.reduced):
            position = position + Affine.build({var: step})
            step *= var.size
        return position

    def arg(self, arg: Argument, want: str) -> str:
        """An operand converted to the compute type."""
        if not isinstance(arg, Ref):
            return literal(arg, want)
        instr = self.k.instrs[arg.id]
        in_array = self.arrays and self.k.is_row_value(instr)
        name = f"v{arg.id}[l]" if in_array else f"v{arg.id}"
        if instr.type == want and not (
            instr.op.startswith("reduce_") and self.accumulator(instr) != REGISTER[want]
        ):
            return name
        return f"(({REGISTER[want]}){name})" if want != "bool" else f"({name} != 0)"

    def _expression(self, instr: Instr) -> str:
        if instr.op == "load":
            kind = self.k.inputs[instr.buffer].dtype
            if self.loop is not None and all(b in self.safe for b in instr.bounds):
                address = self._block_address(f"a{instr.buffer}", kind, instr.offset)
                if address is not None:
                    return self.loop.read(address)
            cell = f"a{instr.buffer}[{self.offset(instr.offset)}]"
            return self._within(instr, loaded(cell, kind, self.half))
        if instr.op == "gather":
            return gathered(self, instr)
        if instr.op == "bounded":
            return self._within(instr, self.arg(instr.args[0], instr.type))
        if instr.op == "iota":
            return self.offset(instr.offset)
        a = [self.arg(x, instr.compute) for x in instr.args]
        return scalar_expression(instr, a, [self.arg(x, "bool") for x in instr.args[:1]], self.half)

    def _within(self, instr: Instr, text: str) -> str:
        """A value inside its bounds, its fill outside."""
        kept = [inside(f"({self.offset(b[0])})", b) for b in instr.bounds if b not in self.safe]
        return (
            f"({' & '.join(kept)} ? {text} : {literal(instr.fill, instr.type)})" if kept else text
        )

    def store(self, store: Store) -> None:
        """Write an output."""
        instr = self.k.instrs[store.value]
        buffer = self.k.outputs[store.buffer]
        value = self.arg(Ref(instr.id), instr.type)
        if store.folded:
            self.put(
                f"o{store.buffer}[b * {buffer.shape[1]} + {self.offset(store.offset)}] += {value};"
            )
            return
        address = self._block_address(f"o{store.buffer}", buffer.dtype, store.offset)
        if self.loop is not None and address is not None:
            self.put(f"{self.loop.written(address)} = {value};")
            return
        self.put(
            f"o{store.buffer}[{self.offset(store.offset)}] = {stored(value, buffer.dtype, self.half)};"
        )


def ref_of(arg: Argument) -> int:
    assert isinstance(arg, Ref), "a reduction's operand is a value"
    return arg.id


def simd_loop(writer: CppWriter, lane: Var, clauses: str, start: str, stop: str) -> None:
    """Open a vector loop over part of the lane."""
    writer.open_vector_loop(writer.names[lane], start, stop, clauses, lane=lane)


def gathered(writer: CppWriter, instr: Instr) -> str:
    """An element at a computed index, or its substitute if the index is invalid."""
    buffer = writer.k.inputs[instr.buffer]
    # A vector gathers at 32-bit indices at once, and half as many at longer ones.
    kind = "int" if buffer.last < 1 << 31 else "long"
    places = [
        (writer.arg(place, instr.compute), *of)
        for place, of in zip(instr.args, instr.places, strict=True)
    ]
    steps = [
        f"({kind})" + (f"dvk_at({place}, {size!r})" if size else place) + f" * {step}"
        for place, step, size in places
        if step
    ]
    there = " & ".join(f"dvk_in({place}, {size!r})" for place, _, size in places if size)
    value = loaded(
        f"a{instr.buffer}[({kind})({writer.offset(instr.offset)}) + {' + '.join(steps) or '0'}]",
        buffer.dtype,
        writer.half,
    )
    if not there:
        return value
    other = nowhere(instr.type) if instr.type in FLOATS else instr.fill
    return f"dvk_pick<{REGISTER[instr.type]}>({there}, {value}, {literal(other, instr.type)})"
