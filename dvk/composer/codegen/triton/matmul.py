"""Matmuls in Triton: tiles of the result, with prologue and epilogue in the same function.

A tile is [rows, columns] with axes y and x; its operands are [rows, k] and [k, columns] tiles, whose k axes are `ra` and `rb`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dvk.composer.codegen.analysis.digits import packed_form
from dvk.composer.codegen.analysis.tiles import INT32, TileAxis
from dvk.composer.codegen.triton import unpacked
from dvk.composer.codegen.triton.block_scales import BlockScales
from dvk.composer.codegen.triton.matmul_schedule import (
    CODES,
    channels_of,
    least_depth,
    padded_channels,
)
from dvk.composer.codegen.triton.matmul_sums import MatmulPartials, behind, finish, open_loop
from dvk.composer.codegen.triton.operand_tile import OperandTile
from dvk.composer.codegen.triton.scalar import FLOAT, TYPES, cast
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.affine import Var
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import READS, Instr, Kernel, Ref
from dvk.composer.ir.matmul_form import MatmulForm, MatmulTerm, form_of
from dvk.composer.ir.schedules.triton import TritonProduct, TritonSkinny, TritonUnpacked
from dvk.composer.ir.symint import leaves_rest, power

MatmulSchedule = TritonProduct | TritonSkinny | TritonUnpacked


def functions(
    kernel: Kernel, schedule: MatmulSchedule
) -> tuple[list[TritonFunction], dict[str, int]]:
    """The functions of a matmul in launch order, and the partial buffers (type → elements)."""
    packed = packed_form(kernel) if isinstance(schedule, TritonUnpacked) else None
    kernel = packed.kernel if packed is not None else kernel
    form = form_of(kernel)
    assert form is not None
    partials = None
    if schedule.splits > 1:
        slots = {t.reduce.id: n for n, t in enumerate(form.terms)}
        kind = form.terms[0].reduce.type
        partials = MatmulPartials(kernel, schedule.splits, slots, kind, form.beside)
        if max(partials.buffers.values()) >= INT32:
            raise CannotCompose("the slices of a matrix product have too many elements")
    if form.block and not isinstance(schedule, TritonProduct):
        raise CannotCompose("scales of blocks need the form of tiles")
    if form.beside and not isinstance(schedule, TritonSkinny):
        raise CannotCompose(
            "sums of rows in the kernel of a matrix product need the form for few rows"
        )
    if isinstance(schedule, TritonProduct):
        first = _tiled(kernel, form, schedule, partials)
    elif isinstance(schedule, TritonUnpacked):
        if packed is None:
            raise CannotCompose("the operands are not packed in words")
        first = unpacked.function(packed, schedule, partials)
    else:
        first = _skinny(kernel, form, schedule, partials)
    if partials is None:
        return [first], {}
    return [first, finish(kernel, partials)], partials.buffers


# ------------------------------------------------------------------ tiles


def _tiled(
    kernel: Kernel, form: MatmulForm, schedule: TritonProduct, partials: MatmulPartials | None
) -> TritonFunction:
    y, x = _side("y", form.rows, schedule.rows), _side("x", form.columns, schedule.columns)
    z = [TileAxis("z", form.batch)] if form.batch else []
    writer = TritonWriter(kernel, [*z, y, x])
    tile = writer.tile
    counts = (*form.sizes[:1], y.blocks, x.blocks)
    splits = schedule.splits
    total = math.prod(counts) * splits
    programs = min(schedule.programs or total, total)
    tile.put("pid = tl.program_id(0)" + (".to(tl.int64)" if tile.wide else ""))
    if programs < total:
        tile.enter(f"for at in tl.range(pid, {total!r}, {programs!r}, flatten=True):")
    piece = _place(writer, counts, splits, "at" if programs < total else "pid", schedule.group)
    tile.define(y, "0" if y.blocks == 1 else f"yid * {y.block}")
    tile.define(x, "0" if x.blocks == 1 else f"xid * {x.block}")
    sums = _Sums(
        writer,
        form,
        y,
        x,
        depth_of(kernel, schedule, form),
        "tf32" if form.tf32 else schedule.dot or "ieee",
    )
    sums.run(piece, splits, schedule.stages)
    if partials is not None:
        for term in form.terms:
            partials.store(writer, term.reduce.id, piece, sums.scales.total(term))
    else:
        for term in form.terms:
            tile.put(f"v{term.reduce.id} = {sums.scales.total(term)}")
        behind(writer, sums.given)
    if programs < total:
        tile.leave()
    source = writer.source(_name(kernel, partials), [partials.name] if partials else [])
    return TritonFunction(_name(kernel, partials), *source, programs, schedule.warps)


def _name(kernel: Kernel, partials: MatmulPartials | None) -> str:
    return f"{kernel.name}_0" if partials is not None else kernel.name


def _side(name: str, variables: tuple[Var, ...], block: int) -> TileAxis:
    size = math.prod(v.size for v in variables)
    return TileAxis(name, variables, block, leaves_rest(size, block))


def depth_of(kernel: Kernel, schedule: MatmulSchedule, form: MatmulForm) -> int:
    """Elements (words, where they are packed) of k at a time: the schedule's, limited to the next power of two."""
    least = least_depth(form) if isinstance(schedule, TritonProduct) else 2
    depth = max(min(schedule.depth, power(kernel.row_length)), least)
    return min(depth, form.block) if form.block else depth


def _place(writer: TritonWriter, counts: tuple[int, ...], splits: int, at: str, group: int) -> str:
    """Declare the program's tile and batch, in strips of `group` rows of tiles; returns the index of its slice of k, as text."""
    tile = writer.tile
    batch, ups, sides = counts
    rest = at
    piece = "0"
    if splits > 1:
        tile.put(f"piece = {at} // {batch * ups * sides}")
        tile.put(f"place = {at} % {batch * ups * sides}")
        piece, rest = "piece", "place"
    # Blocks of rows that read one expert's weights come one after the other, and share them in L2.
    across = batch > 1 and ups == 1 and any(i.op == "gather" for i in writer.k.instrs)
    row = "z" if across else "yid"
    if across:
        batch, ups = 1, batch
    if batch > 1:
        tile.put(f"z = {rest} // {ups * sides}")
        tile.put(f"flat = {rest} % {ups * sides}")
        rest = "flat"
    if ups == 1 or sides == 1 or group <= 1:
        if ups > 1:
            tile.put(f"{row} = {rest}" + (f" // {sides}" if sides > 1 else ""))
        if sides > 1:
            tile.put(f"xid = {rest}" + (f" % {sides}" if ups > 1 else ""))
        return piece
    tile.put(f"first = {rest} // {group * sides} * {group}")
    tile.put(f"within = {rest} % {group * sides}")
    high = str(group)
    if ups % group:
        tile.put(f"high = tl.minimum({ups} - first, {group})")
        high = "high"
    tile.put(f"{row} = first + within % {high}")
    tile.put(f"xid = within // {high}")
    return piece


@dataclass
class _Sums:
    """The loop over k."""

    writer: TritonWriter
    form: MatmulForm
    y: TileAxis
    x: TileAxis
    depth: int
    precision: str
    """Precision of float32 products."""
    given: set[int] = field(default_factory=set)
    """Row-level values that are already declared."""
    clamped: dict[int, list[str]] = field(default_factory=dict)
    """Operand → its limited indices, of gathers whose indices are the same along k."""

    @property
    def scales(self) -> BlockScales:
        return BlockScales(self.writer, self.form, (self.y, self.x))

    @property
    def channels(self) -> int:
        """Elements of k per place of a window, padded to whole blocks, if blocks keep to a place; 0 if k is one flat index.

        For a block at one place, the place is a scalar, and the edges of the input are compared once per row of the tile.
        """
        channels = channels_of(self.writer.k, self.form)
        return padded_channels(channels, self.depth) if channels else 0

    def run(self, piece: str, splits: int, stages: int) -> None:
        """Declare `acc…`, the sums of a tile over a slice of k."""
        tile, length = self.writer.tile, self.writer.k.row_length
        if self.channels:
            length = length // self._reduced()[-1].size * self.channels
        shape = f"[{self.y.block}, {self.x.block}]"
        for term in self.form.terms:
            tile.put(f"acc{term.reduce.id} = tl.zeros({shape}, {TYPES[term.reduce.type]})")
        for ids, up in self._operands():
            self._before(ids, up)
        self.scales.before()
        base = open_loop(tile, length, self.depth, piece, splits, stages)
        self._step(base)
        if base != "0":
            tile.leave()
        for term in self.form.terms:
            for operand in (term.left, term.right):
                for number in range(len(self.clamped.get(operand.id, ()))):
                    outside = f"tl.where(inside{operand.id}_{number}, 0.0, float('nan'))"
                    tile.put(f"acc{term.reduce.id} += {outside}")

    def clamp(self, side: OperandTile, instr: Instr) -> None:
        """Limit the indices of an operand to what can be read, once before the loop.

        What is not read is NaN, and so is each sum with it: it is added in the end. Loads without another value than 0 go straight to
        shared memory, where matrix units read them.
        """
        fixed = frozenset(self.writer.k.reduced).isdisjoint
        places = [a for a in instr.args if isinstance(a, Ref)]
        if instr.op != "gather" or instr.type != "float32" or len(places) < len(instr.args):
            return
        if not all(
            size and fixed(side.k.instrs[a.id].vars)
            for a, (_, size) in zip(places, instr.places, strict=True)
        ):
            return
        names = []
        for number, (place, (_, size)) in enumerate(zip(places, instr.places, strict=True)):
            index = side.arg(place, "int64" if side.tile.wide else instr.compute, True)
            side.tile.put(f"inside{instr.id}_{number} = ({index} >= 0) & ({index} < {size!r})")
            side.tile.put(
                f"i{instr.id}_{number} = tl.minimum(tl.maximum({index}, 0), {size - 1!r})"
            )
            names.append(f"i{instr.id}_{number}")
        self.clamped[instr.id] = names

    def _operands(self) -> list[tuple[list[Instr], bool]]:
        """The factors: values on the side of the rows, and on the side of the columns."""
        return [
            ([t.left for t in self.form.terms], True),
            ([t.right for t in self.form.terms], False),
        ]

    def _reduced(self) -> tuple[Var, ...]:
        return tuple(v for v in self.writer.k.reduced if v.size > 1)

    def _axes(self, up: bool) -> list[TileAxis]:
        """Axes of an operand's tile."""
        reduced, z = self._reduced(), [a for a in self.writer.tile.axes if a.name == "z"]
        if self.channels:
            z, reduced = [*z, TileAxis("place", reduced[:-1])], reduced[-1:]
        rest = leaves_rest(math.prod(v.size for v in reduced), self.depth)
        row = TileAxis("ra" if up else "rb", reduced, self.depth, rest)
        return [*z, self.y, row] if up else [*z, row, self.x]

    def _before(self, operands: list[Instr], up: bool) -> None:
        """The part of an operand that is invariant in k."""
        side = OperandTile(self.writer, self._axes(up))
        for instr in side.closure([i.id for i in operands], row_level=True):
            if instr.id not in self.given:
                side.emit(instr)
                self.given.add(instr.id)
        for instr in {i.id: i for i in operands}.values():
            self.clamp(side, instr)

    def _step(self, base: str) -> None:
        names: dict[tuple[int, bool], str] = {}
        if self.channels:
            self.writer.tile.put(f"place = {base} // {self.channels}")
            if not (whole := self.form.block == self.depth):
                self.writer.tile.put(f"channel = {base} % {self.channels}")
            base = "0" if whole else "channel"
        for operands, up in self._operands():
            axes = self._axes(up)
            defined = False
            for instr, dtype in {
                i.id: (i, t.dtypes[0 if up else 1])
                for i, t in zip(operands, self.form.terms, strict=True)
            }.values():
                side = OperandTile(self.writer, axes, raw=instr.id if instr.op in READS else -1)
                side.clamped = self.clamped
                if not defined:
                    side.tile.define(next(a for a in axes if a.name in ("ra", "rb")), base)
                    defined = True
                names[instr.id, up] = self._operand(side, instr, dtype, up)
        if self.form.block:
            self.scales.emit(self._axes(True), self.given)
        for term in self.form.terms:
            self._add(term, names[term.left.id, True], names[term.right.id, False])

    def _operand(self, side: OperandTile, instr: Instr, dtype: str, up: bool) -> str:
        """Declare an operand's tile; returns its name."""
        for needed in side.closure([instr.id], row_level=False):
            side.emit(needed)
        name, tile = f"{'p' if up else 'q'}{instr.id}", side.tile
        row = next(a for a in tile.axes if a.name in ("ra", "rb"))
        raw = side.raw == instr.id and not instr.fill
        value = f"v{instr.id}"
        full = {a.name for a in side.axes_of(instr.id)} == {a.name for a in tile.vectors}
        zeroed = (raw and instr.op == "load") or instr.id in self.clamped
        if row.masked and not (zeroed and instr.vars & set(row.vars)):
            value = f"tl.where({row.name}mask, {value}, 0.0)"
        have = self.writer.k.inputs[instr.buffer].dtype if raw else instr.type
        if have != dtype:
            value = cast(value, have, dtype)
        if not full:
            shape = tile.shape(tile.vectors)
            value = (
                f"tl.broadcast_to({value}, {shape})"
                if dtype in CODES
                else f"{value} + tl.zeros({shape}, {TYPES[dtype]})"
            )
        tile.put(f"{name} = {value}")
        return name

    def _add(self, term: MatmulTerm, left: str, right: str) -> None:
        acc = f"acc{term.reduce.id}"
        if term.dtypes[0] == "float64":
            self.writer.tile.put(f"{acc} += tl.sum({left}[:, :, None] * {right}[None, :, :], 1)")
            return
        if term.scales:
            added = self.scales.added(term, f"tl.dot({left}, {right})")
            self.writer.tile.put(f"{acc} += {added}")
            return
        exact = f', input_precision="{self.precision}"' if term.dtypes[0] == "float32" else ""
        if term.dtypes[0] in CODES:
            rounds = min(self.form.rounds, self.depth)
            exact = f", max_num_imprecise_acc={rounds}" if rounds else ""
            exact += ", out_dtype=tl.int32" if term.dtypes[0] == "int8" else ""
        self.writer.tile.put(f"{acc} = tl.dot({left}, {right}, {acc}{exact})")


# ------------------------------------------------------------------ few rows or columns


def _skinny(
    kernel: Kernel, form: MatmulForm, schedule: TritonSkinny, partials: MatmulPartials | None
) -> TritonFunction:
    _, num_rows, num_columns = form.sizes
    wide = num_columns >= num_rows
    long = _side("x" if wide else "y", form.columns if wide else form.rows, schedule.block)
    short = TileAxis("y" if wide else "x", form.rows if wide else form.columns)
    depth = depth_of(kernel, schedule, form)
    k = TileAxis(
        "r",
        tuple(v for v in kernel.reduced if v.size > 1),
        depth,
        leaves_rest(kernel.row_length, depth),
    )
    z = [TileAxis("z", form.batch)] if form.batch else []
    writer = TritonWriter(kernel, [*z, long, short, k])
    tile = writer.tile
    digits = tile.programs(
        [("piece", schedule.splits), ("z", form.sizes[0]), (long.program, long.blocks)], named=True
    )
    tile.define(long, "0" if long.blocks == 1 else f"{digits[long.program]} * {long.block}")
    sides = [
        (t.reduce.id, t.right if wide else t.left, t.left if wide else t.right) for t in form.terms
    ]
    _begin_lines(writer, form, long, short, k)
    given = [i.id for i in writer.closure([one.id for _, one, _ in sides], row_level=True)]
    for id_ in given:
        writer.emit(kernel.instrs[id_])
    base = open_loop(
        tile, kernel.row_length, depth, digits["piece"], schedule.splits, schedule.stages
    )
    tile.define(k, base)
    _add_lines(writer, sides, short, k, form.beside, wide)
    if base != "0":
        tile.leave()
    for place in range(short.size):
        tile.again(short, str(place))
        for own in form.beside:
            total = f"tl.sum(acc{own.id}_n{place if wide else 0}, 1, keep_dims=True)"
            if partials is not None:
                partials.store(writer, own.id, digits["piece"], total)
            else:
                tile.put(f"v{own.id} = {total}")
        for reduce, _, _ in sides:
            total = f"tl.sum(acc{reduce}_n{place}, 1, keep_dims=True)"
            if partials is not None:
                partials.store(writer, reduce, digits["piece"], total)
            else:
                tile.put(f"v{reduce} = {total}")
        if partials is None:
            behind(writer, set())
    source = writer.source(_name(kernel, partials), [partials.name] if partials else [])
    return TritonFunction(
        _name(kernel, partials),
        *source,
        schedule.splits * form.sizes[0] * long.blocks,
        schedule.warps,
    )


def _begin_lines(
    writer: TritonWriter, form: MatmulForm, long: TileAxis, short: TileAxis, k: TileAxis
) -> None:
    """Declare the sums of each line of the short side."""
    tile, wide = writer.tile, short.name == "y"
    for reduce in (*(t.reduce for t in form.terms), *form.beside):
        apart = reduce in form.beside
        along = tile.shape([k] if apart and wide else [long, k])
        for place in range(1 if apart and not wide else short.size):
            tile.put(f"acc{reduce.id}_n{place} = tl.zeros({along}, {TYPES[reduce.type]})")


def _add_lines(
    writer: TritonWriter,
    sides: list[tuple[int, Instr, Instr]],
    short: TileAxis,
    k: TileAxis,
    beside: tuple[Instr, ...],
    wide: bool,
) -> None:
    """Add a block of k to the sums of each line of the short side.

    Args:
        sides: of each sum its reduction, its factor on the long side, and its factor on the short side.
        beside: sums of the rows alone.
        wide: the rows are the short side.
    """
    own = [a.id for i in beside for a in i.args if isinstance(a, Ref)]
    first, each = ([], own) if wide else (own, [])
    for instr in writer.closure([*(one.id for _, one, _ in sides), *first], row_level=False):
        writer.emit(instr)
    for place in range(short.size):
        writer.tile.again(short, str(place))
        others = [*(other.id for _, _, other in sides), *each]
        for level in (True, False):
            for instr in writer.closure(others, row_level=level):
                writer.emit(instr)
        for added in beside if wide or place == 0 else ():
            value = writer.masked_operand(added, "rmask" if k.masked else "")
            writer.tile.put(f"acc{added.id}_n{place} += {value}")
        for reduce, one, other in sides:
            kind = writer.k.instrs[reduce].type
            acc = f"acc{reduce}_n{place}"
            left, right = (cast(f"v{i.id}", i.type, kind) for i in (one, other))
            if k.masked:
                writer.tile.put(f"{acc} += tl.where(rmask, {left} * {right}, 0.0)")
            elif kind in FLOAT:
                writer.tile.put(f"{acc} = tl.fma({left}, {right}, {acc})")
            else:
                writer.tile.put(f"{acc} += {left} * {right}")
