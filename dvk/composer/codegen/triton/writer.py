"""The writer of one Triton function: registers, accesses, reductions, and the needs of a pass over the rows.

Registers are named after instructions (`v3`), inputs `a0…`, outputs `o0…`. A kernel with one row per program works on vectors; with
several, on tiles whose first axis is the rows. Masked-off lanes hold arbitrary values: reductions replace them by their identity. `forms`
decides the order of passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dvk.composer.codegen.analysis.online import (
    Pair,
    VariancePair,
    nan_shows_anyway,
    of_magnitudes,
    online_pair,
    pass_operands,
    pass_reduces,
)
from dvk.composer.codegen.analysis.tiles import Tile, TileAxis, needs_int64
from dvk.composer.codegen.triton.moments import MomentsPair
from dvk.composer.codegen.triton.one_hot import OneHot, one_hot
from dvk.composer.codegen.triton.scalar import (
    FLOAT,
    TYPES,
    cast,
    expression,
    full,
    helper,
    identity,
    literal,
    needs_full,
)
from dvk.composer.ir.affine import Affine
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Argument, Instr, Kernel, Ref, Store, nowhere
from dvk.composer.ir.nodes import EIGHTHS
from dvk.composer.ir.primitives import reduction

RUNTIME_CDIV = re.compile(r"\bcdiv\(")


@dataclass(frozen=True)
class TritonFunction:
    """One Triton function and its launch."""

    name: str
    text: str
    params: tuple[str, ...]
    """`a…` inputs, `o…` outputs, `part_…` buffers of partial results."""
    grid: int
    warps: int
    registers: int = 0
    """The most of a thread; 0 for the compiler's choice."""

    @property
    def launcher(self) -> str:
        """Arguments of a launcher: programs, warps and, where they are limited, registers."""
        return f"{self.grid}, {self.warps}" + (f", {self.registers}" if self.registers else "")


def with_powers(lines: list[str]) -> tuple[list[str], list[str]]:
    """Block sizes that are powers of two of sizes known at run time, as Python computes them, and the lines that name them.

    They become constants of the kernel, one compiled kernel a power: a row of any length stays in registers.

    Raises:
        CannotCompose: Python has no text for one of them.
    """
    found: list[str] = []

    def constant(line: str) -> str:
        start = line.find("pow2(")
        if start < 0:
            return line
        end, depth = start + len("pow2("), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        size = line[start + len("pow2(") : end - 1]
        if "cdiv(" in size:
            raise CannotCompose("a row's length is a number of blocks")
        if size not in found:
            found.append(size)
        return constant(f"{line[:start]}whole{found.index(size)}{line[end:]}")

    written = [constant(line) for line in lines]
    return [f"1 << ({size} - 1).bit_length()" for size in found], written


class TritonWriter:
    """State while one function is written."""

    def __init__(self, kernel: Kernel, axes: list[TileAxis], online: bool | str = False):
        self.k = kernel
        self.tile = Tile(axes, needs_int64(kernel))
        self.pair: Pair | MomentsPair | None = online_pair(kernel) if online else None
        if online == "moments" and isinstance(self.pair, VariancePair):
            self.pair = MomentsPair(self.pair.first, self.pair.second, not self.pair.shifted)
        self.in_pieces = False
        """The kernel computes slices of rows, which another kernel combines."""
        self.params: set[str] = set()
        self.names: dict[int, str] = {}
        """Registers that currently have a name other than `v…`."""
        self._one_hot: dict[int, OneHot | None] = {}
        self._axes: dict[int, list[TileAxis]] = {}

    def source(self, name: str, extra: Iterable[str] = ()) -> tuple[str, tuple[str, ...]]:
        """The finished function and its parameters; `extra` are further pointers."""
        params = [f"a{n}" for n in range(len(self.k.inputs)) if f"a{n}" in self.params]
        params += [f"o{n}" for n in range(len(self.k.outputs)) if f"o{n}" in self.params]
        params += extra
        sizes = self.k.size_arguments
        jit, wide = "@triton.jit", []
        if sizes:
            # Specialised for divisibility, a kernel would be compiled again at some sizes.
            jit = f"@triton.jit(do_not_specialize={sizes!r})"
            wide = [f"    {n} = {n}.to(tl.int64)" for n in sizes] if self.tile.wide else []
        body = (
            [RUNTIME_CDIV.sub("tl.cdiv(", line) for line in self.tile.lines]
            if sizes
            else self.tile.lines
        )
        powers, body = with_powers(body) if sizes else ([], body)
        shown = [*params, *sizes, *(f"whole{n}: tl.constexpr" for n in range(len(powers)))]
        given = (*params, *sizes, *powers)
        return "\n".join([jit, f"def {name}({', '.join(shown)}):", *wide, *body]), given

    # -------------------------------------------------------------- registers

    def axes_of(self, id_: int) -> list[TileAxis]:
        """Vector axes along which a register varies."""
        if id_ not in self._axes:
            instr = self.k.instrs[id_]
            self._axes[id_] = [a for a in self.tile.reaching(instr.vars) if a.block > 1]
        return self._axes[id_]

    def walk(self, row: TileAxis) -> None:
        """Replace the last axis from now on."""
        self.tile.axes[-1] = row
        self._axes.clear()

    def arg(self, value: Argument, want: str, as_full: bool = False) -> str:
        if isinstance(value, Ref):
            return cast(
                self.names.get(value.id, f"v{value.id}"), self.k.instrs[value.id].type, want
            )
        return full(value, want) if as_full else literal(value, want)

    def emit(self, instr: Instr, policy: str = "") -> None:
        """One instruction that is not a reduction."""
        self.tile.put(f"v{instr.id} = {self.value(instr, policy)}")

    def value(self, instr: Instr, policy: str = "") -> str:
        if instr.op == "load":
            return self.load(instr, policy)
        if instr.op == "gather":
            return self.gather(instr)
        if instr.op == "iota":
            text = self.tile.offset(instr.offset)
            return (
                f"({text}).to(tl.int64)" if instr.offset.vars else full(instr.offset.const, "int64")
            )
        if instr.op == "bounded":
            fill = (
                literal(instr.fill, instr.type)
                if instr.type == "float32"
                else full(instr.fill, instr.type)
            )
            return f"tl.where({self.inside(instr)}, {self.arg(instr.args[0], instr.type)}, {fill})"
        numbers = [not isinstance(a, Ref) for a in instr.args]
        if instr.op.startswith("cast_"):
            source = instr.args[0]
            have = self.k.instrs[source.id].type if isinstance(source, Ref) else instr.type
            target = instr.op.removeprefix("cast_")
            text = cast(self.arg(source, have, True), have, target)
            return cast(text, target, instr.type)
        wants = [instr.compute] * len(numbers)
        if instr.op in ("not", "where"):
            wants[0] = "bool"
        as_full = needs_full(instr, numbers)
        args = [self.arg(a, w, f) for a, w, f in zip(instr.args, wants, as_full, strict=True)]
        text, have = expression(instr, args)
        if have == instr.type and (have in FLOAT or have in ("bool", "int64")):
            return text
        return (
            cast(f"({text})", have, instr.type)
            if have != instr.type
            else f"({text}).to({TYPES[have]})"
        )

    def access(self, pointer: str, offset: Affine) -> tuple[str, str]:
        """Pointer text and mask text of an access."""
        self.params.add(pointer)
        where = pointer
        for text in self.tile.parts(offset):
            if text not in ("", "0"):
                where += f" + ({text})" if " " in text else f" + {text}"
        return where, self.tile.mask(self.tile.reaching(offset.vars))

    def guarded(self, instr: Instr) -> tuple[str, str]:
        """Pointer text and mask text of a load within its bounds."""
        where, mask = self.access(f"a{instr.buffer}", instr.offset)
        if instr.bounds:
            mask = " & ".join([*([mask] if mask else []), self.inside(instr)])
            # A mask is broadcast over the indices, never the other way round.
            where += "".join(
                f" + {a.name} * 0"
                for a in self.axes_of(instr.id)
                if a not in self.tile.reaching(instr.offset.vars)
            )
        return where, mask

    def load(self, instr: Instr, policy: str = "") -> str:
        where, mask = self.guarded(instr)
        text = f"tl.load({where}" + (f", {mask}" if mask else "")
        if instr.bounds:
            text += f", {literal(instr.fill, self.k.inputs[instr.buffer].dtype if instr.type not in FLOAT else instr.type)}"
        if policy:
            text += f', eviction_policy="{policy}"'
        text += ")"
        kind = self.k.inputs[instr.buffer].dtype
        return cast(text, kind, instr.type)

    def gather(self, instr: Instr) -> str:
        """A load at computed indices, in the register's type."""
        return cast(self.gathered(instr), self.k.inputs[instr.buffer].dtype, instr.type)

    def gathered(self, instr: Instr) -> str:
        """A load at computed indices, in the type of memory; invalid indices are not read."""
        where, _ = self.access(f"a{instr.buffer}", instr.offset)
        mask = [m for m in (self.tile.mask(self.tile.reaching(instr.vars)),) if m]
        vectors = self.axes_of(instr.id)
        for place, (step, size) in zip(instr.args, instr.places, strict=True):
            text = self.arg(place, instr.compute if not self.tile.wide else "int64", True)
            if vectors and not (isinstance(place, Ref) and self.axes_of(place.id)):
                # Triton's interpreter cannot join one flag with a vector of flags.
                text = f"({text} + {vectors[-1].name} * 0)"
            mask += [f"({text} >= 0) & ({text} < {size!r})"] if size else []
            where += f" + {text} * {step}"  # even if a step is none: a mask of a vector needs a vector of indices
        kind = self.k.inputs[instr.buffer].dtype
        other = literal(nowhere(instr.type), instr.type if instr.type in FLOAT else kind)
        return f"tl.load({where}, {' & '.join(mask)}, {other})" if mask else f"tl.load({where})"

    def inside(self, instr: Instr) -> str:
        """Source text of the check that a value's bounds hold."""
        found, vectors = [], self.axes_of(instr.id)
        for part, count in instr.bounds:
            text = self.tile.offset(part)
            if vectors and not any(a.block > 1 for a in self.tile.reaching(part.vars)):
                # Triton's interpreter cannot join one flag with a vector of flags.
                text += f" + {vectors[-1].name} * 0"
            lo, hi = part.span()
            found += [f"({text} >= 0)"] if lo < 0 else []
            found += [f"({text} < {count!r})"] if hi >= count else []
        return " & ".join(found)

    def store(self, store: Store, only: str = "") -> None:
        """Write an output; `only` is a further condition."""
        if store.places:
            self.add(store)
            return
        where, mask = self.access(f"o{store.buffer}", store.offset)
        have, want = self.k.instrs[store.value].type, self.k.outputs[store.buffer].dtype
        value = cast(f"v{store.value}", have, want)
        source = self.k.instrs[store.value]
        if want in EIGHTHS and source.op == f"cast_{want}" and isinstance(source.args[0], Ref):
            # The codes themselves, not the codes of what they stand for.
            rounded = source.args[0]
            if self.k.instrs[rounded.id].type == "float32":
                value = cast(self.arg(rounded, "float32"), "float32", want)
        condition = " & ".join(c for c in (mask, only) if c)
        self.tile.put(f"tl.store({where}, {value}" + (f", {condition})" if condition else ")"))

    def store_all(self, stores: Iterable[Store], only: str = "") -> None:
        """Write outputs at the end of a function, the values computed last first.

        Triton 3.6 computes a value again in the layout of the first store that needs it, and may use it before that place: with the values
        computed first in front, it does not compile kernels that store several values of two reductions per row.
        """
        for store in sorted(stores, key=lambda s: s.value, reverse=True):
            self.store(store, only)

    def add(self, store: Store) -> None:
        """Add a value to what is at computed indices, atomically: several elements may have one index."""
        where, _ = self.access(f"o{store.buffer}", store.offset)
        axes = self.axes_of(store.value)
        known = self.tile.reaching(store.offset.vars)
        valid: list[str] = []
        for place, step, size in store.places:
            known += self.axes_of(place.id) if isinstance(place, Ref) else []
            text = self.arg(place, "int64", True)
            valid.append(f"({text} >= 0) & ({text} < {size})")
            where += f" + tl.where({valid[-1]}, {text}, 0) * {step}"
        where += "".join(f" + {a.name} * 0" for a in axes if a not in known)
        mask = self.tile.mask(self.tile.reaching(self.k.instrs[store.value].vars))
        kind = self.k.instrs[store.value].type
        value = f"tl.where({' & '.join(valid)}, v{store.value}, {literal(nowhere(kind), kind)})"
        given = [where, value, *([mask] if mask else [])]
        self.tile.put(f'tl.atomic_add({", ".join(given)}, sem="relaxed")')

    # -------------------------------------------------------------- reductions

    def is_local(self, reduce: Instr) -> bool:
        """No loop over the row is needed: the operand is constant along the row, or a one-hot choice from it."""
        if reduce.id not in self._one_hot:
            self._one_hot[reduce.id] = one_hot(self.k, reduce)
        operand = reduce.args[0]
        constant = not isinstance(operand, Ref) or self.k.is_row_value(self.k.instrs[operand.id])
        # A product of equal factors is a power, which has no scalar operation: it is multiplied out.
        return (constant and reduce.op != "reduce_prod") or self._one_hot[reduce.id] is not None

    def local_reduce(self, reduce: Instr) -> None:
        """Emit a reduction that needs no loop."""
        hot = self._one_hot[reduce.id]
        if hot is not None:
            gather(self, reduce, hot)
            return
        value = self.arg(reduce.args[0], reduce.type, True)
        times = f" * {literal(self.k.row_length, reduce.type)}" if reduce.op == "reduce_sum" else ""
        self.tile.put(f"v{reduce.id} = {value}{times}")

    def masked_operand(self, reduce: Instr, mask: str) -> str:
        """The operand, with the identity in lanes outside the row."""
        value = self.arg(reduce.args[0], reduce.type, True)
        return f"tl.where({mask}, {value}, {identity(reduce)})" if mask else value

    def fold(self, reduce: Instr, value: str) -> str:
        """Reduce a value along the tile's last axis, keeping the tile's rank."""
        rank2 = len(self.tile.vectors) == 2
        axis, keep = (1, ", keep_dims=True") if rank2 else (0, "")
        if reduce.op == "reduce_sum":
            return f"tl.sum({value}, {axis}{keep})"
        if reduce.op == "reduce_prod":
            return f"tl.reduce({value}, {axis}, dvk_product{keep})"
        if reduce.type not in FLOAT or (
            reduce.op == "reduce_max" and nan_shows_anyway(self.k, reduce)
        ):
            return f"tl.{reduce.op.removeprefix('reduce_')}({value}, {axis}{keep})"
        if of_magnitudes(self.k, reduce):
            bits = f"({value}).to(tl.int32, bitcast=True)"
            return f"tl.max({bits}, {axis}{keep}).to(tl.float32, bitcast=True)"
        name = helper("dvk_max", reduce.type)
        sign = "-" if reduce.op == "reduce_min" else ""
        return f"{sign}{name}({sign}{value}, {axis}, {rank2})"

    def accumulate(self, reduces: list[Instr], mask: str, tiles: str) -> None:
        """Accumulate one more tile into the lane-wise accumulators; `tiles` counts them from 1."""
        for reduce in reduces:
            if self.pair is not None and reduce is self.pair.second:
                continue
            if self.pair is not None and reduce is self.pair.first:
                for line in self.pair.step(self.arg(reduce.args[0], reduce.type), mask, tiles):
                    self.tile.put(line)
                continue
            acc, value = f"acc{reduce.id}", self.masked_operand(reduce, mask)
            if not (row := reduction(reduce.op)).is_extreme:
                self.tile.put(f"{acc} {row.sign}= {value}")
            else:
                nan = ", propagate_nan=tl.PropagateNan.ALL" if reduce.type in FLOAT else ""
                self.tile.put(f"{acc} = tl.{row.name}imum({acc}, {value}{nan})")

    def finish(self, reduce: Instr, prefix: str = "acc", length: str = "") -> None:
        """The reduction's value from the values of lanes (`acc`) or of slices (`p`), which together cover `length` elements."""
        partial = f"{prefix}{reduce.id}"
        if self.pair is not None and reduce in (self.pair.first, self.pair.second):
            partial = self.pair.partial(
                reduce, prefix, "count", length, piece=self.in_pieces and prefix == "acc"
            )
            if isinstance(self.pair, MomentsPair):
                for line in self.pair.finish(
                    reduce, self.fold(reduce, partial), str(self.k.row_length)
                ):
                    self.tile.put(line)
                return
        self.tile.put(f"v{reduce.id} = {self.fold(reduce, partial)}")

    # -------------------------------------------------------------- what a pass needs

    def closure(self, targets: Iterable[int], row_level: bool) -> list[Instr]:
        """Instructions the targets need, in order: those computed once per element, or those once per row."""
        needed: set[int] = set()
        pending = list(targets)
        seen: set[int] = set()
        while pending:
            instr = self.k.instrs[pending.pop()]
            if instr.id in seen:
                continue
            seen.add(instr.id)
            if self.k.is_row_value(instr) is row_level:
                needed.add(instr.id)
            if row_level and self.pair is not None and instr is self.pair.second:
                pending.append(self.pair.first.id)
            given = not row_level or (instr.op.startswith("reduce_") and not self.is_local(instr))
            if self.k.is_row_value(instr) and given:
                continue
            pending.extend(a.id for a in instr.args if isinstance(a, Ref))
        return [i for i in self.k.instrs if i.id in needed]

    def looped_reduces(self, stage: int) -> list[Instr]:
        """Reductions that the pass of `stage` accumulates."""
        return pass_reduces(self.k, stage, self.pair, self.is_local)

    def operands(self, reduces: list[Instr]) -> list[int]:
        """Registers that accumulating the reductions reads."""
        return pass_operands(reduces, self.pair)

    def element_stores(self, stage: int) -> list[Store]:
        """Stores made in the pass of `stage`."""
        values = [(s, self.k.instrs[s.value]) for s in self.k.stores]
        return [s for s, value in values if not self.k.is_row_value(value) and value.stage == stage]

    def row_stores(self) -> list[Store]:
        return [s for s in self.k.stores if self.k.is_row_value(self.k.instrs[s.value])]


def gather(writer: TritonWriter, reduce: Instr, hot: OneHot) -> None:
    """Emit `f(t)`: the elements the value needs, with the row's index replaced by the one-hot index; 0 outside the row."""
    tile, name = writer.tile, f"t{reduce.id}"
    row = tile.axes[-1]
    at = writer.arg(Ref(hot.at), "int64")
    tile.put(f"{name}mask = ({at} >= 0) & ({at} < {writer.k.row_length})")
    tile.put(f"{name} = tl.where({name}mask, {at}, 0)")
    writer.walk(replace(row, name=name, vars=writer.k.reduced, block=1, masked=True, origin=""))
    for instr in writer.closure([hot.value], row_level=False):
        text = writer.value(instr)
        writer.names[instr.id] = f"{name}_{instr.id}"
        tile.put(f"{name}_{instr.id} = {text}")
    value = writer.arg(Ref(hot.value), reduce.type)
    writer.names.clear()
    writer.walk(row)
    tile.put(
        f"v{reduce.id} = tl.where({name}mask, {value}, {'0.0' if reduce.type.startswith('float') else 0})"
    )
