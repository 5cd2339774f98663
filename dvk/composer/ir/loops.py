"""The loop form of one kernel, which renderers turn into C++ or Triton.

A `Kernel` is a list of instructions over row variables and reduction variables. Each instruction belongs to a stage: stage 0 needs no
reduction, stage k needs the results of reductions whose operands are of stage k−1. A renderer may keep a whole row in registers and ignore
stages, or make one pass over the row per stage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dvk.composer.ir import symint
from dvk.composer.ir.affine import ZERO, Affine, Var
from dvk.composer.ir.nodes import BYTES, FLOATS, IRNode, View, ViewStep


@dataclass(frozen=True)
class Buffer:
    """A tensor a kernel reads or writes."""

    prim: IRNode
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
        """Offset of its last element, in elements from its first."""
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
"""An index and its bound: 0 ≤ index < count."""


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
    """For a load, the index of the input."""
    offset: Affine = ZERO
    """For a load, elements from the buffer's start; for iota, the value."""
    places: tuple[tuple[int, int], ...] = ()
    """For a gather, whose operands are computed indices: elements per index step, and the number of valid indices; 0 if all are valid."""
    bounds: tuple[Bound, ...] = ()
    """For a load or a `bounded` value, the condition under which it is read; otherwise it is `fill`."""
    fill: bool | int | float = 0
    backward: bool = False
    """For a scan, runs from the row's end to its start."""
    prim: IRNode | None = field(default=None, compare=False, repr=False)
    """The primitive that it computes."""
    view: View | None = field(default=None, compare=False, repr=False)
    """For a load, the name that its reader gave it."""
    call: NamedOperator | None = None
    """For a `call`, the function to call."""


@dataclass(frozen=True)
class NamedOperator:
    """A named operator in place of the scalar operations it consists of, in programs that use operator names."""

    form: str
    """Its text, with operands as `{0}`, `{1}`, …."""
    inside: frozenset[str]
    """The scalar operations it stands for."""


@dataclass(frozen=True)
class Store:
    """One output written: value, destination and element offset."""

    value: int
    buffer: int
    offset: Affine
    folded: bool = False
    """The rows of a block are added up: the buffer has a row for each block, and `offset` is a place in it."""
    places: tuple[tuple[Argument, int, int], ...] = ()
    """For a value that is added to what is at a computed index: for each such dimension the index, elements per step of it, and the number
    of valid indices. The buffer holds zeros before."""


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
    ones that may overlap), `row_sums` (walks rows and adds them up in blocks), `scan` or `scan_column` (a scan along
    or across memory), `product` (of matrices), `attention` (`ir.attention_kernel`)."""
    summary: str = ""
    """One line for people: the operators inside."""

    @property
    def parts(self) -> tuple[Kernel, ...]:
        """Kernels whose instructions it runs."""
        return (self,)

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

    @property
    def updated(self) -> dict[int, int]:
        """Output index → index of the input: memory of the module that it writes back, element by element."""
        given = {id(buffer.prim): number for number, buffer in enumerate(self.inputs)}
        return {
            number: given[id(buffer.prim)]
            for number, buffer in enumerate(self.outputs)
            if buffer.prim.kind == "source"
        }

    @property
    def size_arguments(self) -> list[str]:
        """Names of the sizes that its text reads at run time; empty where all are numbers."""
        offsets = [i.offset for i in self.instrs] + [s.offset for s in self.stores]
        offsets += [part for i in self.instrs for part, _ in i.bounds]
        return symint.arguments(
            [
                *(v.size for v in (*self.rows, *self.reduced)),
                *(n for b in (*self.inputs, *self.outputs) for n in (*b.shape, *b.strides)),
                *(n for o in offsets for n in (o.const, *(c for _, c in o.terms))),
                *(count for i in self.instrs for _, count in i.bounds),
                *(n for i in self.instrs for place in i.places for n in place),
                *(n for s in self.stores for _, *numbers in s.places for n in numbers),
                *(a for i in self.instrs for a in i.args if not isinstance(a, Ref)),
            ]
        )

    @property
    def rows_of_block(self) -> int:
        """Rows that folded stores add up; 0 without such stores."""
        blocks = next((self.outputs[s.buffer].shape[0] for s in self.stores if s.folded), 0)
        return -(-self.num_rows // blocks) if blocks else 0

    def is_row_value(self, instr: Instr) -> bool:
        """Computed once per row rather than once per element."""
        return not instr.vars & frozenset(self.reduced)

    def is_row_store(self, store: Store) -> bool:
        """Written once per row; a constant may still be written to every element."""
        return not store.offset.vars & frozenset(self.reduced)


def nowhere(kind: str) -> bool | int | float:
    """Result of a gather of a register type at an invalid index, for which PyTorch raises."""
    return math.nan if kind in FLOATS else kind != "bool" and 0
