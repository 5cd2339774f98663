"""Products of few rows with weights of four bits on matrix units, each thread with its own words.

A warp multiplies 16 results by 8 rows, 16 places of k at a time (`mma.m16n8k16`). Which place of k a thread holds is free as long as both
operands agree. So a thread reads 16 bytes of one line of the weight, which are the places that it multiplies, and words pass through no
shared memory. Warps of a program take turns along k; their sums are added in the end.

Half a word has two elements in its low byte, and as bf16 such bits are n · 2⁻¹³³ and 16 n · 2⁻¹³³. One fused multiplication and addition
makes (n - zero) · 2⁻⁶ of two elements, rounded to bf16 as eager code rounds n - zero. Products and sums are in float32, and scales of a
group multiply its sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dvk.composer.codegen.analysis.digits import PackedForm, needed, packed_form
from dvk.composer.codegen.analysis.tiles import TileAxis
from dvk.composer.codegen.triton.matmul_sums import behind
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Argument, Instr, Kernel, Ref
from dvk.composer.ir.matmul_form import MatmulTerm
from dvk.composer.ir.nodes import BYTES, INTS
from dvk.composer.ir.schedules.triton import TritonLanes

RESULTS = 16
"""Results of a program."""
MAX_SHORT = 8
"""Rows that a product of matrix units holds."""
MAX_TERMS = 2
"""Sums that the registers of a thread hold beside what it unpacks."""
STEP = 128
"""Places of k that a warp reads at once: 16 bytes a thread of four bits, four threads a line."""

_MMA = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
_SCALED = " ".join(
    f"fma.rn.bf16x2 {r}, {r}, {by}, ${zero};"
    for r, by, zero in (("a", "t", 14), ("b", "t", 15), ("c", "u", 14), ("d", "u", 15))
)
_LOW, _HIGH = "0x000f000f", "0x00f000f0"
_PRODUCTS = f'''\
@triton.jit
def {{name}}_products(c0, c1, c2, c3, low, high, x0, x1, x2, x3, z0, z1):
    # Adds 16 places of k of lines `low` and `high`: elements 0, 4, 1, 5 of a word, then 2, 6, 3, 7; x0 to x3 are their factors in order.
    return tl.inline_asm_elementwise(
        """{{{{
        .reg .b32 p, q, r, s, a, b, c, d, t, u; .reg .f32 e, f, g, h;
        mov.b32 t, 0x7f007f00; mov.b32 u, 0x7d007d00;
        prmt.b32 p, $10, $12, 0x5410; prmt.b32 q, $10, $12, 0x7632; prmt.b32 r, $11, $13, 0x5410; prmt.b32 s, $11, $13, 0x7632;
        and.b32 a, $8, {_LOW}; and.b32 b, $9, {_LOW}; and.b32 c, $8, {_HIGH}; and.b32 d, $9, {_HIGH};
        {_SCALED}
        {_MMA} {{{{e, f, g, h}}}}, {{{{a, b, c, d}}}}, {{{{p, q}}}}, {{{{$4, $5, $6, $7}}}};
        shr.u32 a, $8, 8; shr.u32 b, $9, 8;
        and.b32 c, a, {_HIGH}; and.b32 d, b, {_HIGH}; and.b32 a, a, {_LOW}; and.b32 b, b, {_LOW};
        {_SCALED}
        {_MMA} {{{{$0, $1, $2, $3}}}}, {{{{a, b, c, d}}}}, {{{{r, s}}}}, {{{{e, f, g, h}}}};
        }}}}""",
        "=f,=f,=f,=f,f,f,f,f,r,r,r,r,r,r,r,r",
        [c0, c1, c2, c3, low, high, x0, x1, x2, x3, z0, z1],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=False,
        pack=1,
    )


@triton.jit
def {{name}}_four(pointer):
    value = tl.load(pointer[:, None] + tl.arange(0, 4)[None, :])
    even, odd = tl.split(tl.reshape(value, [{{threads}}, 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def {{name}}_twice(zero):
    half = (zero * -0.015625).to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    return half | (half << 16)


'''
UNIT = 64.0
"""What differences from zero points are counted in, inverted."""


@dataclass(frozen=True)
class LaneTerm:
    """One sum of a product on lanes: of (elements of words - zero) * scales, times the factor."""

    reduce: int
    words: Instr
    scales: tuple[Instr, ...]
    zero: Instr | float


@dataclass(frozen=True)
class LaneForm:
    """A product that can run on lanes."""

    packed: PackedForm
    terms: tuple[LaneTerm, ...]
    factor: Instr
    """The short operand of all terms, bf16 in memory."""
    long: Var
    k: int


def lane_form(kernel: Kernel) -> LaneForm | None:
    """The form of a product with words of four bits along k, in order; None for other kernels."""
    packed = packed_form(kernel)
    if packed is None or not packed.is_summed or packed.across or packed.form.beside:
        return None
    terms, wide = packed.form.terms, packed.wide
    longs = [v for v in (packed.form.columns if wide else packed.form.rows) if v.size > 1]
    shorts = packed.form.rows if wide else packed.form.columns
    factors = {(t.left if wide else t.right).id for t in terms}
    one = len(longs) == 1 and len(factors) == 1 and len(terms) <= MAX_TERMS
    if not one or math.prod(v.size for v in shorts) > MAX_SHORT:
        return None
    reduced = [v for v in packed.kernel.reduced if v.size > 1 and v is not packed.digit]
    k = math.prod(v.size for v in reduced) * packed.digit.size
    factor = factors.pop()
    if longs[0].size % RESULTS or k % STEP or not _follows(packed, factor, reduced, shorts):
        return None
    found = [_term(packed, t, longs[0], reduced, k) for t in terms]
    made = tuple(t for t in found if t is not None)
    if len(made) < len(terms):
        return None
    return LaneForm(packed, made, packed.places[0].instrs[factor], longs[0], k)


def _follows(packed: PackedForm, factor: int, reduced: list[Var], shorts: tuple[Var, ...]) -> bool:
    """The short operand is bf16 in memory, and its places of k follow each other."""
    for n, place in enumerate(packed.places):
        load = place.instrs[factor]
        if load.op != "load" or load.bounds or place.inputs[load.buffer].dtype != "bfloat16":
            return False
        shape = {v: load.offset.coef(v) for v in shorts if load.offset.coef(v)}
        if len(shape) > 1 or any(step % 8 for step in shape.values()):
            return False
        if load.offset != _line(shape, reduced, packed.digit.size).shift(n):
            return False
    return True


def _term(
    packed: PackedForm, term: MatmulTerm, long: Var, reduced: list[Var], k: int
) -> LaneTerm | None:
    side = (term.right if packed.wide else term.left).id
    inside = needed(packed.places[0], [side])
    words = [w for w in packed.words if w.id in inside]
    if len(words) != 1 or words[0].bounds:
        return None
    bits = 8 * BYTES[packed.kernel.inputs[words[0].buffer].dtype]
    ordered = words[0].offset == _line({long: k * 4 // bits}, reduced, 1)
    if bits != 4 * packed.digit.size or not ordered:
        return None
    found = {
        _element(place, place.instrs[side], words[0], n) for n, place in enumerate(packed.places)
    }
    element = found.pop()
    if element is None or found:
        return None
    scales, zero = element
    loads = [*scales, *([zero] if isinstance(zero, Instr) else [])]
    fits = all(_fits(load, long, reduced, packed) for load in loads)
    return LaneTerm(term.reduce.id, words[0], scales, zero) if fits else None


def _line(outer: dict[Var, int], reduced: list[Var], step: int) -> Affine:
    """The offset of an operand whose places of k follow each other."""
    coefs = dict(outer)
    for var in reversed(reduced):
        coefs[var] = step
        step *= var.size
    return Affine.build(coefs)


def _fits(load: Instr, long: Var, reduced: list[Var], packed: PackedForm) -> bool:
    """A scale or zero point differs between results and groups of whole steps alone."""
    allowed, size = {long}, packed.digit.size
    for var in reversed(reduced):
        if size % STEP == 0:
            allowed.add(var)
        size *= var.size
    used = [v for v in reduced if v in load.offset.vars]
    one = len(used) <= 1 and all(v is reduced[0] for v in used)
    return not load.bounds and load.offset.vars <= allowed and one


def _same(place: Kernel, instr: Instr) -> Instr:
    """A value without the roundings that are left out between fused operations."""
    while (
        instr.op in ("as", "cast_bfloat16", "cast_float32", "cast_int32")
        and instr.args
        and isinstance(instr.args[0], Ref)
        and (place.instrs[instr.args[0].id].type in INTS) == (instr.type in INTS)
    ):
        instr = place.instrs[instr.args[0].id]
    return instr


def _element(
    place: Kernel, instr: Instr, words: Instr, digit: int
) -> tuple[tuple[Instr, ...], Instr | float] | None:
    """Scales and the zero point of (element - zero) * scales; None for other values."""
    scales: list[Instr] = []
    zero: Instr | float = 0.0
    inside = False
    while True:
        instr = _same(place, instr)
        if instr.op in ("mul", "sub") and instr.type == "float32" and not inside:
            with_words = [
                isinstance(a, Ref) and words.id in needed(place, [a.id]) for a in instr.args
            ]
            if with_words.count(True) != 1 or (instr.op == "sub" and not with_words[0]):
                return None
            other = instr.args[with_words.index(False)]
            value = _same(place, place.instrs[other.id]) if isinstance(other, Ref) else other
            loaded = isinstance(value, Instr) and value.op == "load"
            if instr.op == "mul":
                if not loaded:
                    return None
                scales.append(value)  # type: ignore[arg-type]
            else:
                narrow = loaded and place.inputs[value.buffer].dtype == "bfloat16"  # type: ignore[union-attr]
                if not narrow and not isinstance(value, int | float):
                    return None
                zero, inside = value if isinstance(value, Instr) else float(value), True
            instr = place.instrs[instr.args[with_words.index(True)].id]  # type: ignore[union-attr]
            continue
        break
    if not instr.op.startswith("cast_") or not isinstance(instr.args[0], Ref):
        return None
    return (tuple(scales), zero) if _is_nibble(place, instr.args[0], words, digit) else None


def _number(place: Kernel, value: Argument) -> int | None:
    """An integer that is known here, such as the shift of a digit."""
    while isinstance(value, Ref):
        instr = place.instrs[value.id]
        if instr.op != "as" or instr.type not in INTS:
            return None
        value = instr.args[0]
    return int(value)


def _is_nibble(place: Kernel, value: Ref, words: Instr, digit: int) -> bool:
    instr, shift, masked = _same(place, place.instrs[value.id]), 0, False
    while instr.op in ("band", "shr") and isinstance(instr.args[0], Ref):
        number = _number(place, instr.args[1])
        if number is None or (instr.op == "band" and (masked or number != 15)):
            return False
        masked = masked or instr.op == "band"
        shift += number if instr.op == "shr" else 0
        instr = _same(place, place.instrs[instr.args[0].id])
    last = words.type == "uint8" and shift == 4
    return instr.id == words.id and shift == 4 * digit and (masked or last)


# ------------------------------------------------------------------ text


def functions(kernel: Kernel, schedule: TritonLanes) -> tuple[list[TritonFunction], dict[str, int]]:
    """The one function, after its helpers.

    Raises:
        CannotCompose: the kernel has another form.
    """
    form = lane_form(kernel)
    if form is None:
        raise CannotCompose(
            "the product is not one of few rows in bf16 with words of four bits along k"
        )
    if form.k // STEP % (schedule.warps * schedule.steps):
        raise CannotCompose(f"{schedule.warps} warps do not share k evenly")
    packed = form.packed
    shorts = packed.form.rows if packed.wide else packed.form.columns
    name, other = ("x", "y") if packed.wide else ("y", "x")
    long, short = TileAxis(name, (form.long,), RESULTS), TileAxis(other, shorts)
    writer = TritonWriter(packed.places[0], [long, short])
    tile = writer.tile
    at = tile.programs([(long.program, long.blocks)], named=True)
    base = "0" if long.blocks == 1 else f"{at[long.program]} * {RESULTS}"
    _loop(writer, form, schedule, base, short.size)
    tile.define(long, base)
    for place in range(short.size):
        tile.again(short, str(place))
        for number, term in enumerate(form.terms):
            low = 4 * number + place % 2
            tile.put(f"both = tl.join(c{low}, c{low + 2})")
            tile.put(f"both = tl.where((lane % 4 == {place // 2})[:, None], both, 0.0)")
            tile.put(f"both = tl.sum(tl.sum(tl.reshape(both, [{schedule.warps}, 8, 4, 2]), 2), 0)")
            tile.put(f"v{term.reduce} = tl.reshape(tl.trans(both), [{RESULTS}])")
        behind(writer, set())
    text, params = writer.source(kernel.name)
    helpers = _PRODUCTS.format(name=kernel.name, threads=32 * schedule.warps)
    made = TritonFunction(kernel.name, helpers + text, params, long.blocks, schedule.warps)
    return [made], {}


def _loop(
    writer: TritonWriter, form: LaneForm, schedule: TritonLanes, base: str, rows: int
) -> None:
    """Declare `c0` to `c3`, and four more for each further term: sums of a thread's two lines and two rows."""
    tile, factor, warps = writer.tile, form.factor, schedule.warps
    inner = [v for v in form.packed.kernel.reduced if v in factor.offset.vars]
    reach = next((factor.offset.coef(v) for v in factor.offset.vars if v not in inner), 0)
    int32 = ".to(tl.pointer_type(tl.int32))"
    tile.put(f"lane = tl.arange(0, {32 * warps})")
    line = f"{base} + lane % 32 // 4"
    tile.put(f"line = ({line}).to(tl.int64)" if tile.wide else f"line = {line}")
    tile.put(f"turn = lane // 32 * {schedule.steps}")
    for number, term in enumerate(form.terms):
        writer.params.add(f"a{term.words.buffer}")
        start = f"a{term.words.buffer}{int32} + line * {form.k // 8}"
        tile.put(f"words{number} = {start} + turn * 16 + lane % 4 * 4")
    writer.params.add(f"a{factor.buffer}")
    row = f" + tl.minimum(lane % 32 // 4, {rows - 1}) * {reach // 2}" if reach else ""
    tile.put(f"factors = a{factor.buffer}{int32}{row} + turn * 64 + lane % 4 * 16")
    for n in range(4 * len(form.terms)):
        tile.put(f"c{n} = tl.zeros([{32 * warps}], tl.float32)")
    tile.enter(f"for step in tl.range(0, {form.k // STEP}, {warps * schedule.steps}):")
    for number in range(schedule.steps):
        tile.put(f"at = step + {number}" if number else "at = step")
        _step(writer, form)
    tile.leave()


def _step(writer: TritonWriter, form: LaneForm) -> None:
    """Add 128 places of k."""
    tile, name = writer.tile, writer.k.name
    for number, term in enumerate(form.terms):
        where = f"words{number} + at * 16"
        for side, shift in (("l", ""), ("h", f" + {form.k}")):
            parts = ", ".join(f"{side}{4 * number + n}" for n in range(4))
            tile.put(f"{parts} = {name}_four({where}{shift})")
        for half, shift in ((0, ""), (1, " + 8")):
            zero = f"tl.zeros_like(c0) + {term.zero!r}"
            if isinstance(term.zero, Instr):
                zero = _read(writer, form, term.zero, shift)
            scales = [_read(writer, form, load, shift) for load in term.scales]
            tile.put(f"z{2 * number + half} = {name}_twice({zero})")
            tile.put(f"s{2 * number + half} = {' * '.join([*scales, repr(UNIT)])}")
    for part in range(4):
        shift = f" + {4 * part}" if part else ""
        tile.put(f"x0, x1, x2, x3 = {name}_four(factors + at * 64{shift})")
        for number in range(len(form.terms)):
            sums = ", ".join(f"d{4 * number + n}" for n in range(4))
            start = sums if part else ", ".join(["tl.zeros_like(c0)"] * 4)
            both = f"l{4 * number + part}, h{4 * number + part}"
            zeros = f"z{2 * number}, z{2 * number + 1}"
            tile.put(f"{sums} = {name}_products({start}, {both}, x0, x1, x2, x3, {zeros})")
    for n in range(4 * len(form.terms)):
        tile.put(f"c{n} = tl.fma(d{n}, s{n // 2}, c{n})")


def _read(writer: TritonWriter, form: LaneForm, load: Instr, shift: str) -> str:
    """A scale or zero point of each thread's line, in float32."""
    writer.params.add(f"a{load.buffer}")
    parts = [f"a{load.buffer}"]
    if step := load.offset.coef(form.long):
        parts.append(f"(line{shift}) * {step}" if shift else f"line * {step}")
    groups = [v for v in load.offset.vars if v is not form.long]
    if groups:
        size = form.k // groups[0].size // STEP
        where = "(turn + at)" + (f" // {size}" if size > 1 else "")
        step = load.offset.coef(groups[0])
        parts.append(where if step == 1 else f"{where} * {step}")
    if load.offset.const:
        parts.append(str(load.offset.const))
    return f"tl.load({' + '.join(parts)}).to(tl.float32)"
