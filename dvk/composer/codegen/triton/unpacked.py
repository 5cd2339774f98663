"""Matmuls of few rows with a packed weight in Triton: each word is read once, and the elements in it are written out one after the other.

A tile holds [results, words]; the digit, which counts the elements of a word, is a number in each part of the text. Values that the
elements of a word share (the word, the scale and the zero point of its group) are computed once, and so is the product with the scale,
after the sum over a word. What lies side by side in memory for the digits, like the other operand, is one load that is then split.

Small integers become floats without a conversion, which a GPU does at half of its rate: 2²³ + n has the bits of 0x4B000000 | n,
and n itself has the bits of n · 2⁻¹⁴⁹, from which one fused multiplication and addition makes n - zero in units of 2²².
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from dvk.composer.codegen.analysis.digits import PackedForm
from dvk.composer.codegen.analysis.small_integers import exact_in, small_range
from dvk.composer.codegen.analysis.tiles import TileAxis
from dvk.composer.codegen.triton.matmul_sums import MatmulPartials, behind, open_loop
from dvk.composer.codegen.triton.scalar import cast
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.loops import Argument, Instr, Kernel, Ref
from dvk.composer.ir.nodes import FLOATS
from dvk.composer.ir.schedules.triton import TritonUnpacked
from dvk.composer.ir.symint import leaves_rest, power

MAGIC = 1 << 23
"""Floats from here on have no fraction."""
UNIT = 1 << 22
"""What a difference from a fractional zero point is counted in: the largest power of two by which 2⁻¹⁴⁹ is multiplied, and the rest."""


def function(
    form: PackedForm, schedule: TritonUnpacked, partials: MatmulPartials | None
) -> TritonFunction:
    """The function that computes the sums, or those of a slice of k."""
    name = f"{form.kernel.name}_0" if partials is not None else form.kernel.name
    sums = _Sums(form, schedule)
    sums.run(partials)
    source = sums.writer.source(name, [partials.name] if partials else [])
    return TritonFunction(name, *source, sums.programs, schedule.warps)


MIN_GROUP = 8
"""Places of k in a group to which blocks keep, in words where they lie along k."""


class DigitWriter(TritonWriter):
    """The writer of one digit after the other; what they share is declared once."""

    def __init__(self, form: PackedForm, axes: list[TileAxis]):
        super().__init__(form.kernel, axes)
        self.form = form
        self._given: list[dict[object, str]] = [{}]
        self.at(0)

    def at(self, digit: int) -> None:
        """Write this digit from now on."""
        self.digit, self.k = digit, self.form.places[digit]
        self.names = {
            i.id: f"v{i.id}" if i.id in self.form.same else f"v{i.id}_{digit}"
            for i in self.k.instrs
        }
        self._axes.clear()
        for scope in self._given:
            self.names |= {
                id_: name
                for id_ in self.names
                if (name := scope.get(self._key(self.k.instrs[id_]))) is not None
            }

    def enter(self) -> None:
        """What is declared from now on is gone after `leave`."""
        self._given.append({})

    def leave(self) -> None:
        self._given.pop()

    def _key(self, instr: Instr) -> object:
        """Values of equal keys are equal."""
        if instr.op == "load":
            return instr.buffer, instr.offset, instr.bounds, instr.fill
        return (instr.id, -1 if instr.id in self.form.same else self.digit)

    def declare(self, targets: Iterable[int], row_level: bool) -> None:
        """Declare what some values are computed from, themselves included, of what is not declared yet."""
        for instr in self.closure(list(targets), row_level):
            key = self._key(instr)
            known = next((s[key] for s in self._given if key in s), None)
            if known is None:
                known = self.names[instr.id]
                if not self._split(instr):
                    self.tile.put(f"{known} = {self.value(instr)}")
                self._given[-1][key] = known
            self.names[instr.id] = known

    def forget(self, axis: TileAxis) -> None:
        """Values that vary along a scalar axis have to be declared again."""
        gone = {i.id for place in self.form.places for i in place.instrs if i.vars & set(axis.vars)}
        loads = {
            self._key(i)
            for place in self.form.places
            for i in place.instrs
            if i.id in gone and i.op == "load"
        }
        for scope in self._given:
            for key in [k for k in scope if k in loads or (len(k) == 2 and k[0] in gone)]:  # type: ignore[arg-type, index]
                del scope[key]

    # -------------------------------------------------------------- one load for all digits

    def _split(self, instr: Instr) -> bool:
        """Declare a load for all digits, if its elements lie side by side; False if they do not."""
        others = [place.instrs[instr.id] for place in self.form.places]
        kind = self.k.inputs[instr.buffer].dtype if instr.op == "load" else ""
        size = len(others)
        if kind not in FLOATS or instr.bounds or size & (size - 1) or not self.axes_of(instr.id):
            return False
        base = others[0].offset
        if any(o.bounds or o.offset != base.shift(n) for n, o in enumerate(others)):
            return False
        where, mask = self.access(f"a{instr.buffer}", base)
        rank = len(self.tile.vectors)
        tail = "[" + ":, " * rank + "None]"
        lanes = f"tl.arange(0, {size})" + ("[None, None, :]" if rank == 2 else "[None, :]")
        if mask:
            mask = f", ({mask}){tail}, 0.0"
        shape = self.tile.shape(self.axes_of(instr.id))[:-1]
        halves = ", 2" * (size.bit_length() - 1)
        whole = f"w{instr.id}"
        self.tile.put(f"{whole} = tl.load(({where}){tail} + {lanes}{mask})")
        if size > 2:
            self.tile.put(f"{whole} = tl.reshape({whole}, {shape}{halves}])")
        self._halved(whole, [f"{whole}_{n}" for n in range(size)])
        for number, other in enumerate(others):
            name = f"v{instr.id}_{number}"
            self.tile.put(f"{name} = {cast(f'{whole}_{number}', kind, instr.type)}")
            self._given[-1][self._key(other)] = name
        return True

    def _halved(self, whole: str, names: list[str]) -> None:
        """Split a value along its last dimensions; `names` are of the parts, in order."""
        if len(names) == 2:
            self.tile.put(f"{names[0]}, {names[1]} = tl.split({whole})")
            return
        even, odd = f"{whole}e", f"{whole}o"
        self.tile.put(f"{even}, {odd} = tl.split({whole})")
        self._halved(even, names[::2])
        self._halved(odd, names[1::2])

    # -------------------------------------------------------------- small integers

    def value(self, instr: Instr, policy: str = "") -> str:
        if instr.type == "float32" and instr.op in ("sub", "add") and instr.compute == "float32":
            left, right = (self.integer(a) for a in instr.args)
            if left is not None and right is not None:
                return self._sum(instr.op, left, right)
        if instr.op.startswith("cast_") and instr.type == "float32":
            source = instr.args[0]
            if isinstance(source, Ref) and exact_in(self.k, source, instr.op[len("cast_") :]):
                return self._float(source)
        return super().value(instr, policy)

    def arg(self, value: Argument, want: str, as_full: bool = False) -> str:
        if want == "float32" and isinstance(value, Ref) and exact_in(self.k, value, want):
            return self._float(value)
        return super().arg(value, want, as_full)

    def integer(self, value: Argument) -> Argument | None:
        """The small integer that a float is; None for other floats."""
        if not isinstance(value, Ref):
            return int(value) if float(value).is_integer() and abs(value) < MAGIC / 4 else None
        instr = self.k.instrs[value.id]
        source = instr.args[0] if instr.args else None
        if not isinstance(source, Ref):
            return None
        if instr.op == "as" and instr.type == "float32":
            return self.integer(source)
        cast_to = instr.op.removeprefix("cast_")
        return source if cast_to != instr.op and exact_in(self.k, source, cast_to) else None

    def _float(self, value: Argument) -> str:
        """A small integer as a float."""
        if not isinstance(value, Ref):
            return repr(float(value))
        instr = self.k.instrs[value.id]
        if instr.op in ("add", "sub"):
            return self._sum(instr.op, *instr.args)
        if instr.op == "as" and isinstance(instr.args[0], Ref):
            return self._float(instr.args[0])
        bits = self._bits(value)
        return f"({bits} - {MAGIC}.0)" if bits else f"{self.arg(value, instr.type)}.to(tl.float32)"

    def _bits(self, value: Argument) -> str | None:
        """2²³ plus an integer that is not negative, as a float; None for other values."""
        if not isinstance(value, Ref):
            return None
        instr = self.k.instrs[value.id]
        low, high = small_range(self.k, value)
        if not 0 <= low <= high < MAGIC or instr.op in ("add", "sub"):
            return None
        return f"({self._word(value)} | 0x4B000000).to(tl.float32, bitcast=True)"

    def _word(self, value: Ref) -> str:
        kind = self.k.instrs[value.id].type
        text = self.arg(value, kind)
        return text if kind == "int32" else f"{text}.to(tl.int32)"

    def whole(self, value: Argument) -> str | None:
        """A float that is a small integer and not negative, as a word; None for other values."""
        source = self.integer(value)
        if not isinstance(source, Ref) or self._bits(source) is None:
            return None
        return self._word(source) if small_range(self.k, source)[1] < UNIT else None

    def _sum(self, op: str, left: Argument, right: Argument) -> str:
        """A sum or difference of small integers, as a float: all steps are exact."""
        sign, bits = "+" if op == "add" else "-", self._bits(left)
        if bits is None:
            return f"({self._float(left)} {sign} {self._float(right)})"
        if not isinstance(right, Ref):
            return f"({bits} - {MAGIC - right if op == 'add' else MAGIC + right}.0)"
        offset = f"{MAGIC}.0 {'-' if op == 'add' else '+'} {self._float(right)}"
        return f"({bits} - ({offset}))"


class _Sums:
    """The loop over k of one program."""

    def __init__(self, form: PackedForm, schedule: TritonUnpacked):
        self.form, self.schedule = form, schedule
        self.kernel = kernel = form.kernel
        rows, columns = (
            tuple(v for v in part if v is not form.digit)
            for part in (form.form.rows, form.form.columns)
        )
        name, other = ("x", "y") if form.wide else ("y", "x")
        long_vars, short_vars = (columns, rows) if form.wide else (rows, columns)
        size = math.prod(v.size for v in long_vars)
        block = max(min(schedule.block, power(size)), 2)
        self.long = TileAxis(name, long_vars, block, leaves_rest(size, block))
        self.short = TileAxis(other, short_vars)
        self._along_k(tuple(v for v in kernel.reduced if v.size > 1 and v is not form.digit))
        self.writer = DigitWriter(form, [self.long, self.short, *self.groups, self.row])
        self.sides = [
            (t.reduce.id, t.right if form.wide else t.left, t.left if form.wide else t.right)
            for t in form.form.terms
        ]
        self.digits = range(form.digit.size)
        self.programs = schedule.splits * self.long.blocks

    def _along_k(self, reduced: tuple[Var, ...]) -> None:
        """Axes along k. Where words of one place in k lie side by side, blocks keep to a group of k, which has one scale a result."""
        self.groups: list[TileAxis] = []
        if self.form.across and len(reduced) > 1 and reduced[-1].size >= MIN_GROUP:
            self.groups = [TileAxis("g", reduced[:-1])]
            reduced = reduced[-1:]
        length = math.prod(v.size for v in reduced)
        depth = max(min(self.schedule.depth, power(length)), 2)
        self.row = TileAxis("r", reduced, depth, leaves_rest(length, depth))

    def _name(self, reduce: int, place: int, digit: int) -> str:
        """The sums of a line of the short side; of one digit, if digits are results."""
        return f"acc{reduce}_n{place}" + ("" if self.form.is_summed else f"_{digit}")

    def run(self, partials: MatmulPartials | None) -> None:
        writer, tile, long = self.writer, self.writer.tile, self.long
        splits = self.schedule.splits
        at = tile.programs([("piece", splits), (long.program, long.blocks)], named=True)
        tile.define(long, "0" if long.blocks == 1 else f"{at[long.program]} * {long.block}")
        names = {
            self._name(reduce, place, digit)
            for reduce, _, _ in self.sides
            for place in range(self.short.size)
            for digit in self.digits
        }
        for name in sorted(names):
            tile.put(f"{name} = tl.zeros({tile.shape([long, self.row])}, tl.float32)")
        for digit in self.digits:
            writer.at(digit)
            writer.declare([one.id for _, one, _ in self.sides], row_level=True)
        self._loop(at["piece"])
        for place in range(self.short.size):
            tile.again(self.short, str(place))
            for digit in self.digits if not self.form.is_summed else (0,):
                self._end(place, digit, at["piece"], partials)

    def _loop(self, piece: str) -> None:
        """The loop over a slice of k; over groups, a loop within them."""
        writer, tile = self.writer, self.writer.tile
        splits, stages = self.schedule.splits, self.schedule.stages
        opened = 0
        for axis in (*self.groups, self.row):
            writer.enter()
            base = open_loop(tile, axis.size, axis.block, piece, splits, stages)
            if axis.block == 1 and base != "0":
                base, tile.lines[-1] = axis.name, tile.lines[-1].replace("for r0 in", "for g in")
            else:
                tile.define(axis, base)
            opened += base != "0"
            splits, piece = 1, "0"
            if axis is not self.row:
                self._shared_in_group()
        self._step()
        for _ in (*self.groups, self.row):
            writer.leave()
        for _ in range(opened):
            tile.leave()

    def _shared_in_group(self) -> None:
        """Declare what is the same for a whole group."""
        writer, inner = self.writer, frozenset(self.row.vars)
        for digit in self.digits:
            writer.at(digit)
            needs = writer.closure([one.id for _, one, _ in self.sides], row_level=False)
            writer.declare([i.id for i in needs if not i.vars & inner], row_level=False)

    def _step(self) -> None:
        """Add a block of words to the sums."""
        writer, tile = self.writer, self.writer.tile
        for digit in self.digits:
            writer.at(digit)
            writer.declare([one.id for _, one, _ in self.sides], row_level=False)
        for place in range(self.short.size):
            tile.again(self.short, str(place))
            writer.forget(self.short)
            sums: dict[int, str] = {}
            for digit in self.digits:
                writer.at(digit)
                others = [other.id for _, _, other in self.sides]
                writer.declare(others, row_level=True)
                writer.declare(others, row_level=False)
                for reduce, one, other in self.sides:
                    value, rest = self._factors(one)
                    times = writer.arg(Ref(other.id), "float32")
                    if not self.form.is_summed:
                        self._add(reduce, place, digit, f"{value} * {times}", rest)
                    elif reduce in sums:
                        tile.put(f"{sums[reduce]} = tl.fma({value}, {times}, {sums[reduce]})")
                    else:
                        sums[reduce] = f"sum{reduce}"
                        tile.put(f"{sums[reduce]} = {value} * {times}")
            for reduce, one, _ in self.sides if self.form.is_summed else ():
                self._add(reduce, place, 0, sums[reduce], self._factors(one)[1])

    def _add(self, reduce: int, place: int, digit: int, value: str, rest: list[str]) -> None:
        acc = self._name(reduce, place, digit)
        if self.row.masked:
            value = f"tl.where(rmask, {value}, 0.0)"
        if not rest:
            self.writer.tile.put(f"{acc} += {value}")
            return
        scale = " * ".join(rest)
        if self.row.masked:
            scale = f"tl.where(rmask, {scale}, 0.0)"
        self.writer.tile.put(f"{acc} = tl.fma({value}, {scale}, {acc})")

    def _factors(self, one: Instr) -> tuple[str, list[str]]:
        """The part of the packed factor that differs between digits, and the factors that all digits share.

        Both are of the same instructions for each digit.
        """
        shared: list[str] = []
        writer, value = self.writer, Ref(one.id)
        while True:
            instr = writer.k.instrs[value.id]
            scaling = instr.op == "mul" and instr.type == instr.compute == "float32"
            if not scaling and not rounds_nothing(writer.k, instr):
                break
            same, others = self._apart(instr)
            if len(others) != 1:
                break
            shared += [writer.arg(factor, "float32") for factor in same]
            if not all(place.instrs[instr.id].args == instr.args for place in self.form.places):
                return writer.arg(others[0], "float32"), shared
            value = others[0]
        if (scaled := self._from_zero(writer.k.instrs[value.id])) is not None:
            return scaled, [*shared, f"{UNIT}.0"]
        return writer.arg(value, "float32"), shared

    def _apart(self, instr: Instr) -> tuple[list[Argument], list[Ref]]:
        """Operands that all digits share, and the others."""
        shared: list[Argument] = []
        others: list[Ref] = []
        for position, value in enumerate(instr.args):
            alike = all(p.instrs[instr.id].args[position] == value for p in self.form.places)
            if isinstance(value, Ref) and not (alike and value.id in self.form.same):
                others.append(value)
            else:
                shared.append(value)
        return shared, others

    def _from_zero(self, instr: Instr) -> str | None:
        """The difference of an element and a zero point that all digits share, in units of 2²²; None for other values."""
        if instr.op not in ("sub", "add") or instr.type != "float32" or instr.compute != "float32":
            return None
        same, others = self._apart(instr)
        if len(others) != 1 or others[0] != instr.args[0]:
            return None
        if self.writer.integer(same[0]) is not None:
            return None  # a sum of integers is one operation
        now, words = self.writer.k, []
        for place in self.form.places:
            self.writer.k = place
            words.append(self.writer.whole(place.instrs[instr.id].args[0]))
        self.writer.k = now
        if None in words:
            return None
        word = self.writer.whole(others[0])
        zero = self.writer.arg(same[0], "float32")
        sign = "-" if instr.op == "sub" else ""
        bits = f"{word}.to(tl.float32, bitcast=True)"
        return f"tl.fma({bits}, {float(1 << 127)!r}, {zero} * {sign}{1 / UNIT!r})"

    def _end(self, place: int, digit: int, piece: str, partials: MatmulPartials | None) -> None:
        """Add up the lanes, and store the results."""
        writer = self.writer
        writer.at(digit)
        writer.names = {}
        for reduce, _, _ in self.sides:
            total = f"tl.sum({self._name(reduce, place, digit)}, 1, keep_dims=True)"
            if partials is None:
                writer.tile.put(f"v{reduce} = {total}")
                continue
            offset = partials.offset(reduce).substitute({self.form.digit: Affine((), digit)})
            mask = writer.tile.mask(writer.tile.reaching(offset.vars))
            where = f"{partials.name} + {piece} * {partials.kernel.num_rows} + {writer.tile.offset(offset)}"
            writer.tile.put(f"tl.store({where}, {total}{', ' + mask if mask else ''})")
        if partials is None:
            behind(writer, set())


def rounds_nothing(kernel: Kernel, instr: Instr) -> bool:
    """A value is its operand's: eager code's rounding to a type of float32's range is left out, as between fused operations."""
    if instr.type != "float32" or len(instr.args) != 1 or not isinstance(instr.args[0], Ref):
        return False
    source = kernel.instrs[instr.args[0].id]
    if source.type != "float32":
        return False
    again = source.prim is not None and instr.op == f"cast_{source.prim.dtype}"
    return again or instr.op in ("as", "cast_bfloat16", "cast_float32")
