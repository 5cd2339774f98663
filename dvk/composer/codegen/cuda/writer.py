"""The writer of one CUDA function: registers, accesses, and passes over a thread's share of a row.

A thread works on runs of `vector` neighbouring elements along one loop variable, the lane, so that an access is one
wide instruction. Registers are named after instructions (`v3`), packed loads `p3`, values that stay in registers
between two passes over a row `s3`, inputs `a0…`, outputs `o0…`. How threads divide the work is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dvk.composer.codegen.analysis.c_source import CSource
from dvk.composer.codegen.analysis.online import Pair, SoftmaxPair, pass_operands, pass_reduces
from dvk.composer.codegen.analysis.tiles import needs_int64
from dvk.composer.codegen.cuda.scalar import (
    FLOAT,
    REGISTER,
    STORAGE,
    cast,
    expression,
    literal,
    stored,
    unsigned,
)
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Argument, Instr, Kernel, Ref, Store
from dvk.composer.ir.primitives import reduction
from dvk.composer.ir.symint import divides


@dataclass(frozen=True)
class CudaFunction:
    """One CUDA function and how it is launched."""

    name: str
    text: str
    params: tuple[str, ...]
    """`a…` inputs, `o…` outputs, `part_…` buffers of partial results, `n_…` sizes."""
    grid: int
    threads: int


class CudaWriter(CSource):
    """State while one function is written.

    Args:
        kernel: what it computes.
        lane: the variable that vectors run along; None for one element at a time.
        vector: elements of a vector; divides the lane's extent.
        aliased: names of pointers whose memory another pointer shares.
        pair: two dependent reductions to make in one pass.

    Raises:
        CannotCompose: the lane's extent is known at run time, and not all of its values are divided by a vector.
    """

    def __init__(
        self,
        kernel: Kernel,
        lane: Var | None,
        vector: int,
        aliased: Iterable[str] = (),
        pair: Pair | None = None,
    ):
        super().__init__(kernel, depth=1)
        self.pair = pair
        self.lane, self.vector = lane, vector if lane is not None else 1
        if lane is not None and not divides(vector, lane.size):
            raise CannotCompose(f"vectors of {vector} elements do not divide a row at every size")
        self.aliased = frozenset(aliased)
        self.wide = needs_int64(kernel)
        self.index = "long long" if self.wide else "int"
        self.flat: tuple[str, tuple[Var, ...]] | None = None
        """A name for the row-major index over all elements of these variables."""
        self.params: set[str] = set()
        self.guard = ""
        """Condition of the stores, as source text."""
        self.at = ""
        """Index of the thread's current vector of the row, if values are kept."""

    # -------------------------------------------------------------- text

    def function(
        self, name: str, grid: int, threads: int, extra: Sequence[tuple[str, str]] = ()
    ) -> CudaFunction:
        """The finished function; `extra` are names and types of further pointers."""
        declared = []
        params = []
        for prefix, buffers, const in (("a", self.k.inputs, "const "), ("o", self.k.outputs, "")):
            for number, buffer in enumerate(buffers):
                if (pointer := f"{prefix}{number}") in self.params:
                    params.append(pointer)
                    restrict = "" if pointer in self.aliased else "__restrict__ "
                    declared.append(f"{const}{STORAGE[buffer.dtype]}* {restrict}{pointer}")
        for pointer, kind in extra:
            params.append(pointer)
            declared.append(f"{kind}* {pointer}")
        sizes = self.k.size_arguments
        declared += [f"long long {size}_" for size in sizes]
        numbers = [f"  const {self.index} {size} = ({self.index}){size}_;" for size in sizes]
        head = f'extern "C" __global__ void __launch_bounds__({threads}) {name}({", ".join(declared)}) {{'
        text = "\n".join([head, *numbers, *self.lines, "}"])
        return CudaFunction(name, text, (*params, *sizes), grid, threads)

    def digits(self, flat: str, variables: Sequence[Var]) -> None:
        """Declare each variable as its digit of the row-major index `flat`, the last one fastest."""
        if len(variables) == 1:
            if flat != self.names[variables[0]]:
                self.put(f"const {self.index} {self.names[variables[0]]} = {flat};")
            return
        kind = "unsigned long long" if self.wide else "unsigned"
        step = 1
        for position, var in enumerate(reversed(variables)):
            part = f"({kind}){flat}" + (f" / {unsigned(step, self.wide)}" if step > 1 else "")
            if position < len(variables) - 1:
                part += f" % {unsigned(var.size, self.wide)}"
            self.put(f"const {self.index} {self.names[var]} = {part};")
            step *= var.size

    # -------------------------------------------------------------- registers

    def varies(self, instr: Instr) -> bool:
        """The value differs between the elements of one vector."""
        return self.lane is not None and self.lane in instr.vars

    @property
    def _one(self) -> str:
        """The current element of a vector."""
        return "j" if self.vector > 1 else "0"

    def name(self, id_: int) -> str:
        instr = self.k.instrs[id_]
        if id_ in self.kept and instr.op != "load":
            return f"s{id_}[{self.at}][{self._one}]"
        return f"v{id_}"

    def arg(self, value: Argument, want: str) -> str:
        """An operand converted to the compute type."""
        if not isinstance(value, Ref):
            return literal(value, want)
        return cast(self.name(value.id), self.k.instrs[value.id].type, want)

    def value(self, instr: Instr) -> str:
        """The expression of an instruction that is neither a load nor a reduction."""
        if instr.op == "iota":
            text = self.offset(instr.offset)
            step = instr.offset.coef(self.lane) if self.lane is not None else 0
            return f"{text} + j * {step}" if step and self.vector > 1 else text
        args = [self.arg(a, instr.compute) for a in instr.args]
        return expression(instr, args, self.arg(instr.args[0], "bool") if instr.args else "")

    def scalar(self, instr: Instr) -> None:
        """Declare a value that is constant over a vector, or of which a vector has one element."""
        text = f"dvk_get({self.pointer(instr)})" if instr.op == "load" else self.value(instr)
        self.put(f"const {REGISTER[instr.type]} v{instr.id} = {text};")

    # -------------------------------------------------------------- memory

    def offset(self, offset: Affine) -> str:
        """Element offset as source text."""
        if self.flat is not None and _is_flat(offset, self.flat[1]):
            return f"{self.flat[0]} + {offset.const}" if offset.const else self.flat[0]
        return super().offset(offset)

    def pointer(self, instr: Instr, j: bool = False) -> str:
        """The cell that a load reads; `j`: index of the current element in a vector that is not contiguous in memory."""
        self.params.add(f"a{instr.buffer}")
        text = self.offset(instr.offset)
        if j and self.lane is not None and self.vector > 1:
            text += f" + j * {instr.offset.coef(self.lane)}"
        return f"a{instr.buffer}[{text}]"

    def packed(self, offset: Affine) -> bool:
        """A vector of this access is one aligned, contiguous block of memory."""
        if self.lane is None or self.vector == 1 or offset.coef(self.lane) != 1:
            return False
        return divides(self.vector, offset.const) and all(
            divides(self.vector, c) for v, c in offset.terms if v is not self.lane
        )

    def _load(self, instr: Instr) -> None:
        """Load a vector that varies along the lane; the loop over its elements reads them."""
        storage = STORAGE[self.k.inputs[instr.buffer].dtype]
        kept = instr.id in self.kept
        if kept and instr.id in self.done:
            return
        place = (
            f"s{instr.id}[{self.at}]"
            if kept
            else f"const dvk_pack<{storage}, {self.vector}> p{instr.id}"
        )
        if self.packed(instr.offset):
            self.params.add(f"a{instr.buffer}")
            self.put(
                f"{place} = dvk_load<{self.vector}>(a{instr.buffer} + {self.offset(instr.offset)});"
            )
        elif kept:
            loop = f"for (int j = 0; j < {self.vector}; ++j) " if self.vector > 1 else ""
            if loop:
                self.put("#pragma unroll")
            self.put(f"{loop}{place}.x[{self._one}] = {self.pointer(instr, j=True)};")

    def _element(self, instr: Instr) -> str:
        """The expression of a load in the loop over a vector's elements."""
        if instr.id in self.kept:
            return f"dvk_get(s{instr.id}[{self.at}].x[{self._one}])"
        if self.packed(instr.offset):
            return f"dvk_get(p{instr.id}.x[{self._one}])"
        return f"dvk_get({self.pointer(instr, j=True)})"

    def store(self, store: Store) -> None:
        """Write one element."""
        self.params.add(f"o{store.buffer}")
        value = stored(self._converted(store), self.k.outputs[store.buffer].dtype)
        j = (
            f" + j * {store.offset.coef(self.lane)}"
            if self.vector > 1 and self.lane is not None and self.lane in store.offset.vars
            else ""
        )
        self.put(f"{self.guard}o{store.buffer}[{self.offset(store.offset)}{j}] = {value};")

    def _converted(self, store: Store) -> str:
        instr = self.k.instrs[store.value]
        dtype = self.k.outputs[store.buffer].dtype
        return cast(
            self.name(instr.id),
            instr.type,
            "float32" if dtype in ("float16", "bfloat16") else dtype,
        )

    # -------------------------------------------------------------- one vector

    def elements(
        self, needed: Sequence[Instr], reduces: Sequence[Instr], stores: Sequence[Store]
    ) -> None:
        """Compute one vector: the values its elements share, its loads, each element, its stores."""
        shared = [i for i in needed if not self.varies(i)]
        loads = [i for i in needed if self.varies(i) and i.op == "load"]
        for instr in shared:
            self.scalar(instr)
        for instr in loads:
            self._load(instr)
        packs = [s for s in stores if self.packed(s.offset)]
        for store in packs:
            self.put(
                f"dvk_pack<{STORAGE[self.k.outputs[store.buffer].dtype]}, {self.vector}> w{store.buffer};"
            )
        if self.vector > 1:
            self.put("#pragma unroll")
            self.open(f"for (int j = 0; j < {self.vector}; ++j)")
        for instr in needed:
            if not self.varies(instr):
                continue
            if instr.op == "load":
                self.put(f"const {REGISTER[instr.type]} v{instr.id} = {self._element(instr)};")
            elif instr.id not in self.kept:
                self.put(f"const {REGISTER[instr.type]} v{instr.id} = {self.value(instr)};")
            elif instr.id not in self.done:
                self.put(f"{self.name(instr.id)} = {self.value(instr)};")
        for reduce in reduces:
            self._accumulate(reduce)
        for store in stores:
            if store in packs:
                text = stored(self._converted(store), self.k.outputs[store.buffer].dtype)
                self.put(f"w{store.buffer}.x[j] = {text};")
            else:
                self.store(store)
        if self.vector > 1:
            self.close()
        for store in packs:
            self.params.add(f"o{store.buffer}")
            self.put(
                f"{self.guard}dvk_store(o{store.buffer} + {self.offset(store.offset)}, w{store.buffer});"
            )

    def _accumulate(self, reduce: Instr) -> None:
        """Accumulate one more element into a thread's partial result."""
        if self.pair is not None and reduce is self.pair.second:
            return
        value = self.arg(reduce.args[0], reduce.type)
        if self.pair is None or reduce is not self.pair.first:
            self.put(f"r{reduce.id} = {combined(reduce, f'r{reduce.id}', value)};")
            return
        step = "dvk_softmax_step" if isinstance(self.pair, SoftmaxPair) else "dvk_variance_step"
        counted = "" if isinstance(self.pair, SoftmaxPair) else f"n{reduce.id}, "
        self.put(f"{step}({counted}r{reduce.id}, r{self.pair.second.id}, {value});")

    # -------------------------------------------------------------- passes over a row

    def targets(self, stage: int) -> list[int]:
        """Element-level values that the pass of a stage computes."""
        k = self.k
        operands = pass_operands(self.reduces(stage), self.pair)
        return [
            t
            for t in [*operands, *(s.value for s in self.element_stores(stage))]
            if not k.is_row_value(k.instrs[t])
        ]

    def reduces(self, stage: int) -> list[Instr]:
        """Reductions that the pass of a stage accumulates."""
        return pass_reduces(self.k, stage, self.pair, self.is_constant)

    def is_constant(self, reduce: Instr) -> bool:
        """The operand is constant along the row."""
        operand = reduce.args[0]
        return not isinstance(operand, Ref) or self.k.is_row_value(self.k.instrs[operand.id])

    def constant_reduce(self, reduce: Instr) -> None:
        """Declare the reduction of an operand that is constant along the row."""
        value, kind = self.arg(reduce.args[0], reduce.type), REGISTER[reduce.type]
        if reduce.op == "reduce_prod":
            self.put(f"{kind} v{reduce.id} = 1;")
            self.put(f"for (int n = 0; n < {self.k.row_length}; ++n) v{reduce.id} *= {value};")
            return
        times = f" * {literal(self.k.row_length, reduce.type)}" if reduce.op == "reduce_sum" else ""
        self.put(f"const {kind} v{reduce.id} = {value}{times};")


def identity(reduce: Instr) -> str:
    """The identity of a reduction."""
    row = reduction(reduce.op)
    assert not row.is_extreme or reduce.type in FLOAT, "only floats have a maximum among reductions"
    return literal(row.identity(reduce.type), reduce.type)


def combined(reduce: Instr, left: str, right: str) -> str:
    """Combine two partial results of a reduction."""
    return f"{operation(reduce)}::of({left}, {right})"


def operation(reduce: Instr) -> str:
    """The reduction's device type."""
    return f"dvk_{reduce.op.removeprefix('reduce_')}"


def _is_flat(offset: Affine, variables: Sequence[Var]) -> bool:
    """The offset counts all elements of the variables in order."""
    step = 1
    for var in reversed(variables):
        if var.size > 1 and offset.coef(var) != step:
            return False
        step *= var.size
    return len(offset.terms) == sum(v.size > 1 for v in variables)
