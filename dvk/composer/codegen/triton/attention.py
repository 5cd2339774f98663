"""Attention in Triton: blocks of queries against blocks of keys, with a running maximum and sum; the scores stay in registers.

What follows the scores before their softmax (a scale, a mask, a bias, a cap) is written where each block of them is made. A block of
queries walks over the keys that it sees (`attention_walks`). Exponents are powers of 2 of scores that are multiplied by log2(e) and their
scale at once. With few queries, as in decoding, the keys are split over programs, whose partial results a second function joins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dvk.composer.codegen.analysis.seen_keys import closure, seen_keys
from dvk.composer.codegen.analysis.tiles import INT32, TileAxis
from dvk.composer.codegen.triton.attention_scores import ScoreWriter
from dvk.composer.codegen.triton.attention_walks import MIN_DOT, Walks
from dvk.composer.codegen.triton.matmul_sums import behind
from dvk.composer.codegen.triton.operand_tile import OperandTile
from dvk.composer.codegen.triton.scalar import TYPES, cast
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.attention_kernel import AttentionKernel
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import READS, Instr, Ref
from dvk.composer.ir.schedules.triton import TritonAttention
from dvk.composer.ir.symint import leaves_rest, power

PARTIAL = "part_float32"
LOWEST = "-3.0e38"
"""Where the running maximum begins if scores are far from it: no difference to it is NaN."""


def functions(
    kernel: AttentionKernel, schedule: TritonAttention
) -> tuple[list[TritonFunction], dict[str, int]]:
    """The functions in launch order, and the partial buffers (type → elements)."""
    made = _Attention(kernel, schedule)
    if schedule.splits == 1:
        return [made.first()], {}
    elements = schedule.splits * made.num_queries * (made.width + 2)
    if elements >= INT32:
        raise CannotCompose("the slices of an attention have too many elements")
    return [made.first(), made.second()], {"float32": elements}


@dataclass
class _Attention:
    kernel: AttentionKernel
    schedule: TritonAttention

    def __post_init__(self) -> None:
        kernel, schedule = self.kernel, self.schedule
        self.scores, self.values = kernel.forms
        batch, rows, length = self.scores.sizes
        self.num_queries = batch * rows
        self.width = self.values.sizes[2]
        self.splits = schedule.splits
        block = schedule.rows
        z = [TileAxis("z", self.scores.batch)] if self.scores.batch else []
        self.y = TileAxis("y", self.scores.rows, block, leaves_rest(rows, block))
        self.x = TileAxis(
            "x", self.scores.columns, schedule.keys, leaves_rest(length, schedule.keys)
        )
        self.ups = ScoreWriter(kernel.scores, [*z, self.y, self.x])
        across = power(self.width)
        self.to = TileAxis(
            "c",
            self.values.columns,
            max(across, MIN_DOT),
            leaves_rest(self.width, max(across, MIN_DOT)),
        )
        z = [TileAxis("z", self.values.batch)] if self.values.batch else []
        self.over = TritonWriter(
            kernel.values, [*z, TileAxis("y", self.values.rows, block, self.y.masked), self.to]
        )
        tile = self.ups.tile
        tile.wide = self.over.tile.wide = _is_wide(kernel)
        self.over.tile.lines, self.over.params = tile.lines, self.ups.params
        sides = frozenset((*self.scores.rows, *self.scores.columns))
        product = self.scores.terms[0].reduce.id
        self.seen = seen_keys(kernel.scores, product, self.scores.columns, sides)
        self.is_full = product in closure(kernel.scores, self.seen.value)
        """The scores have both axes of their block."""
        self.exp = "tl.exp" if self.seen.factor is None else "tl.exp2"

    @property
    def name(self) -> str:
        return self.kernel.name + ("_0" if self.splits > 1 else "")

    def first(self) -> TritonFunction:
        """The function that walks over keys."""
        tile, schedule = self.ups.tile, self.schedule
        batch, blocks = self.scores.sizes[0], self.y.blocks
        digits = tile.programs([("piece", self.splits), ("z", batch), ("yid", blocks)], named=True)
        tile.define(self.y, "0" if blocks == 1 else f"{digits['yid']} * {self.y.block}")
        query = self._query()
        shape = f"[{self.y.block}, 1]"
        lowest = 'float("-inf")' if self.seen.factor is None else LOWEST
        tile.put(f"top = tl.full({shape}, {lowest}, tl.float32)")
        tile.put(f"total = tl.zeros({shape}, tl.float32)")
        tile.put(f"acc = tl.zeros([{self.y.block}, {self.to.block}], tl.float32)")
        rest = self.x.masked
        for start, end, conditions in Walks(self.ups, self.seen, self.y, self.x).written(
            digits["piece"], self.splits
        ):
            tile.enter(
                f"for x0 in tl.range({start}, {end}, {self.x.block}, num_stages={schedule.stages}):"
            )
            self.x.masked = rest and conditions
            tile.define(self.x, "x0")
            self._block(query, conditions)
            tile.leave()
        self._end(digits["piece"])
        source = self.ups.source(self.name, [PARTIAL] if self.splits > 1 else [])
        grid = self.splits * batch * blocks
        return TritonFunction(self.name, *source, grid, schedule.warps, schedule.registers)

    def _query(self) -> str:
        """Declare the queries, and what is the same for all keys."""
        term = self.scores.terms[0]
        return self._operand(
            self.ups, term.left, term.dtypes[0], [self.y, self._depth("ra")], "query"
        )

    def _depth(self, name: str) -> TileAxis:
        kernel = self.kernel.scores
        length = kernel.row_length
        depth = max(power(length), MIN_DOT)
        variables = tuple(v for v in kernel.reduced if v.size > 1)
        return TileAxis(name, variables, depth, leaves_rest(length, depth))

    def _operand(
        self, main: TritonWriter, instr: Instr, dtype: str, axes: list[TileAxis], name: str
    ) -> str:
        """Declare an operand's tile; what is outside of it is 0."""
        z = [a for a in main.tile.axes if a.name == "z"]
        instr = _loaded(main, instr, dtype)
        raw = instr.id if instr.op == "load" else -1
        side = OperandTile(main, [*z, *axes], raw=raw)
        for axis in axes:
            if axis.name in ("ra", "rb"):
                side.tile.define(axis, "0")
            elif axis.name in ("k", "c"):
                side.tile.define(axis, "x0" if axis.name == "k" else "0")
        for level in (True, False):
            for needed in side.closure([instr.id], row_level=level):
                side.emit(needed)
        value, have = f"v{instr.id}", instr.type
        if raw >= 0 and not instr.fill:
            have = main.k.inputs[instr.buffer].dtype
        masks = [f"{a.name}mask" for a in axes if a.masked]
        if masks and raw < 0:
            value = f"tl.where({' & '.join(masks)}, {value}, 0.0)"
        shape = ", ".join(str(a.block) for a in axes)
        value = cast(value, have, dtype) if have != dtype else value
        if {a.name for a in side.axes_of(instr.id)} != {a.name for a in axes}:
            value = f"{value} + tl.zeros([{shape}], {TYPES[dtype]})"
        main.tile.put(f"{name} = {value}")
        return name

    def _dot(self, left: str, right: str, acc: str, dtype: str) -> str:
        exact = ', input_precision="ieee"' if dtype == "float32" else ""
        return f"tl.dot({left}, {right}{acc}{exact})"

    def _scores(self, query: str, conditions: bool) -> None:
        """Declare `s`: one block of scores, under conditions or not."""
        ups, tile, seen = self.ups, self.ups.tile, self.seen
        term = self.scores.terms[0]
        key = self._operand(ups, term.right, term.dtypes[1], [self._depth("rb"), self.x], "key")
        tile.put(f"v{term.reduce.id} = {self._dot(query, key, '', term.dtypes[0])}")
        hiding = seen.conditions if conditions else []
        for instr in ups.closure([seen.value, *(c.value for c in hiding)], row_level=True):
            if not instr.op.startswith("reduce_"):
                ups.emit(instr)
        text = f"v{seen.value}"
        if not self.is_full:
            text += f" + tl.zeros([{self.y.block}, {self.x.block}], tl.float32)"
        for one in reversed(hiding):
            sides = ('float("-inf")', text) if one.hidden else (text, 'float("-inf")')
            text = f"tl.where(v{one.value}, {sides[0]}, {sides[1]})"
        if self.x.masked:
            text = f'tl.where(xmask, {text}, float("-inf"))'
        tile.put(f"s = {text}")

    def _block(self, query: str, conditions: bool) -> None:
        """One block of keys."""
        over, tile = self.over, self.ups.tile
        self._scores(query, conditions)
        if self.seen.factor is None:
            tile.put("high = tl.maximum(top, tl.max(s, 1, keep_dims=True))")
            # A row without a key so far has no maximum.
            tile.put('safe = tl.where(high == float("-inf"), 0.0, high)')
            tile.put("p = tl.exp(s - safe)")
            tile.put("again = tl.exp(top - safe)")
        else:
            scale = repr(self.seen.factor * math.log2(math.e))
            tile.put(f"high = tl.maximum(top, tl.max(s, 1, keep_dims=True) * {scale})")
            tile.put(f"p = tl.exp2(s * {scale} - high)")
            tile.put("again = tl.exp2(top - high)")
        tile.put("total = total * again + tl.sum(p, 1, keep_dims=True)")
        last = self.values.terms[0]
        keys = TileAxis(
            "k",
            tuple(v for v in self.kernel.values.reduced if v.size > 1),
            self.x.block,
            self.x.masked,
        )
        over.tile.depth = tile.depth
        v = self._operand(over, last.right, last.dtypes[1], [keys, self.to], "value")
        p = cast("p", "float32", last.dtypes[1])
        tile.put(f"acc = {self._dot(p, v, ', acc * again', last.dtypes[1])}")
        tile.put("top = high")

    def _share(self, acc: str) -> str:
        """The weighted sum of the values; a query without a key has a total of 0."""
        share = f"{acc} / total"
        return f"tl.where(total == 0.0, 0.0, {share})" if self.kernel.zero_if_none else share

    def _end(self, piece: str) -> None:
        """Store the result, or its parts."""
        over, tile = self.over, self.over.tile
        tile.depth = self.ups.tile.depth
        tile.define(self.to, "0")
        reduce = self.values.terms[0].reduce.id
        if self.splits == 1:
            tile.put(f"v{reduce} = {self._share('acc')}")
            if not self.y.vars:  # one query: the other rows of its block have no place
                tile.put(f"v{reduce} = tl.sum(tl.where(ymask, v{reduce}, 0.0), 0, keep_dims=True)")
            behind(over, set())
            return
        rows = self.scores.sizes[1]
        at = (
            f"{piece} * {self.num_queries}"
            + (f" + z * {rows}" if self.scores.batch else "")
            + " + y"
        )
        tile.put(f"at = {at}")
        ymask = "ymask" if self.y.masked else ""
        both = " & ".join(m for m in (ymask, "cmask" if self.to.masked else "") if m)
        after = self.splits * self.num_queries
        tile.put(f"tl.store({PARTIAL} + at * {self.width} + c, acc{', ' + both if both else ''})")
        for name, place in (("top", after * self.width), ("total", after * (self.width + 1))):
            tile.put(f"tl.store({PARTIAL} + {place} + at, {name}{', ' + ymask if ymask else ''})")

    def second(self) -> TritonFunction:
        """The function that joins the parts of one query."""
        z = [TileAxis("z", self.values.batch)] if self.values.batch else []
        block = 1
        axes = [
            *z,
            TileAxis("y", self.values.rows, block),
            TileAxis("c", self.values.columns, self.to.block, self.to.masked),
        ]
        writer = TritonWriter(self.kernel.values, axes)
        tile = writer.tile
        batch, rows, _ = self.scores.sizes
        tile.programs([("z", batch), ("y", rows)], named=True)
        for name, count in (("z", batch), ("y", rows)):
            if count == 1:
                tile.put(f"{name} = 0")
        tile.define(axes[-1], "0")
        after = self.splits * self.num_queries
        tile.put(f"at = tl.arange(0, {self.splits}) * {self.num_queries} + z * {rows} + y")
        tile.put(f"tops = tl.load({PARTIAL} + {after * self.width} + at)")
        tile.put("high = tl.max(tops, 0)")
        tile.put('high = tl.where(high == float("-inf"), 0.0, high)')
        tile.put(f"share = {self.exp}(tops - high)")
        tile.put(f"total = tl.sum(share * tl.load({PARTIAL} + {after * (self.width + 1)} + at), 0)")
        mask = ", cmask[None, :], 0.0" if self.to.masked else ""
        tile.put(f"parts = tl.load({PARTIAL} + at[:, None] * {self.width} + c[None, :]{mask})")
        reduce = self.values.terms[0].reduce.id
        tile.put("acc = tl.sum(parts * share[:, None], 0)")
        tile.put(f"v{reduce} = {self._share('acc')}")
        behind(writer, set())
        name = f"{self.kernel.name}_1"
        return TritonFunction(name, *writer.source(name, [PARTIAL]), batch * rows, 2)


def _is_wide(kernel: AttentionKernel) -> bool:
    """Some offset does not fit in 32 bits with room for a block: of what is in memory, which scores and weights are not."""
    spans = [
        (kernel.inputs[i.buffer].last,) if i.op == "gather" else i.offset.span()
        for part in kernel.parts
        for i in part.instrs
        if i.op in READS and i.buffer >= 0
    ]
    spans += [s.offset.span() for s in kernel.values.stores]
    return max((abs(n) for span in spans for n in span), default=0) >= INT32 - (1 << 16)


def _loaded(main: TritonWriter, instr: Instr, dtype: str) -> Instr:
    """The load of an operand behind copies of it: matrix units take it as it is in memory."""
    source = instr
    while source.op == "as" and isinstance(source.args[0], Ref):
        source = main.k.instrs[source.args[0].id]
    whole = source.op == "load" and main.k.inputs[source.buffer].dtype == dtype
    return source if whole and not source.bounds else instr
