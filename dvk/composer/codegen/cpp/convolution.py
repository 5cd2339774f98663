"""Convolutions in C++: the input is computed once into a buffer, from which tiles of sums are computed in registers.

A task is a band of output rows of one image and group. It reads the input of the band's windows into a buffer in the L1 or L2 cache: the
prologue of the convolution runs here, once per element, padding becomes zeros, and with a stride the columns are sorted by their remainder,
so that every position of a window reads contiguous elements. The loops over the window compare and divide nothing. Then `outputs` channels
× `lines` rows × `vectors` vectors at a time are summed in registers; the epilogue runs on each band of sums while it is in the cache. The
multiplications may be contracted to fused multiply-adds, which only saves a rounding; arithmetic around them may not (see `cpp.FLAGS`).
"""

from __future__ import annotations

import math

from dvk.composer.codegen.cpp.scalar import REGISTER, inside
from dvk.composer.codegen.cpp.writer import CppWriter
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.conv_form import ConvForm, WindowDim, direct_form, needed, staged
from dvk.composer.ir.loops import Bound, Instr, Kernel
from dvk.composer.ir.nodes import BYTES
from dvk.composer.ir.schedules.cpp import CppDirect, Width
from dvk.target import DEFAULT, Cpu

STAGED = (6144, 24576)
"""Elements of a buffer that fits in the L1 cache of 32 KiB next to the results (24 KiB of floats), and in the L2 cache of 256 KiB. Larger
caches are no reason for larger buffers: the work of a band grows with them."""
MOST_STAGED = 1 << 16
"""Elements beyond which a buffer exceeds a thread's stack (256 KiB of floats)."""
MOST_SUMMED = 1024
"""Terms per sum: a single float accumulator loses about two digits over so many."""
PANEL = 512
"""Columns of a band per task."""
TILES = {
    1: ((1, 2, 4), (1, 4, 2), (1, 7, 1), (1, 8, 1), (1, 1, 4)),
    2: ((2, 2, 2), (2, 4, 1), (2, 1, 4)),
    3: ((3, 2, 2), (3, 4, 1), (3, 1, 2)),
    4: ((6, 1, 2), (4, 1, 2), (4, 2, 1)),
}
"""Outputs that share the input's values, at most four → tiles: outputs, lines and vectors of at most twelve sums."""
SHORT_PANEL = 64
"""Columns below which packing a tile's weights is a large part of the work."""
WRITTEN_OUT = 16
"""Unroll limit: positions in a row of the window."""
HELD = (
    "#undef DVK_HELD",
    "#ifdef {}",
    '#define DVK_HELD(x) __asm__("" : "+x"(x));',
    "#else",
    "#define DVK_HELD(x)",
    "#endif",
)
"""Source text that keeps a vector in its register, if the machine has such vectors: GCC would otherwise reload it for every multiplication.
"""
TASKS_A_CORE = 2
"""Number of tasks that keeps a core busy to the end."""
MANY_TASKS = 8
"""Least number of tasks worth making."""


def schedules(kernel: Kernel, cpu: Cpu) -> list[CppDirect]:
    """The alternatives worth measuring, the best guess first; empty for a kernel of another form."""
    form = direct_form(kernel)
    if form is None or kernel.row_length > MOST_SUMMED:
        return []
    result: list[CppDirect] = []
    for (outputs, lines, vectors), width, size in _tiles(form, cpu):
        unit = vectors * _lanes(form, width)
        panel = min(PANEL, _up(form.lane.var.size, unit))
        while panel > SHORT_PANEL and _elements(form, lines, panel) > size:
            panel = _up(panel // 2, unit)
        band = _band(form, lines, panel, size, max(TASKS_A_CORE * cpu.cores, MANY_TASKS))
        option = CppDirect(
            parallel="rows",
            outputs=outputs,
            lines=lines,
            vectors=vectors,
            panel=panel,
            band=band,
            width=width,
        )
        if _elements(form, band, panel) <= MOST_STAGED and option not in result:
            result.append(option)
    return result


Tile = tuple[int, int, int]
"""Outputs, lines and vectors."""


def _lanes(form: ConvForm, width: int) -> int:
    """Sums per vector of `width` bits, whatever type the epilogue uses."""
    return width // 8 // BYTES[form.reduce.type]


def _tiles(form: ConvForm, cpu: Cpu) -> list[tuple[Tile, Width, int]]:
    """Tiles of about eight sums, which hide the latency of a multiply-add: ((outputs, lines, vectors), width, size of the buffer)."""
    lanes = _lanes(form, 256)
    tall, many = (
        form.band.var.size if form.band is not None else 1,
        form.outputs.size if form.outputs is not None else 1,
    )
    shapes = [
        (min(outputs, many), min(lines, tall), vectors)
        for outputs, lines, vectors in TILES[min(many, 4)]
    ]

    def cost(shape: Tile) -> float:
        """Cost of the computed elements, including those beyond the edges; fewer than eight sums stall on each other, more share their
        loads."""
        computed = (
            _up(many, shape[0]) * _up(tall, shape[1]) * _up(form.lane.var.size, shape[2] * lanes)
        )
        sums = math.prod(shape)
        return computed * max(1.0, 8 / sums) * (1 + 1 / sums)

    shapes = sorted(dict.fromkeys(shapes), key=cost)
    small, large = (
        STAGED[0] * min(cpu.l1_bytes, DEFAULT.cpu.l1_bytes) // DEFAULT.cpu.l1_bytes,
        STAGED[1],
    )
    large = large * min(cpu.l2_bytes, DEFAULT.cpu.l2_bytes) // DEFAULT.cpu.l2_bytes
    # The more outputs share the buffer's contents, the less its location matters.
    first, second = (small, large) if form.outputs is None else (large, small)
    tiles: list[tuple[Tile, Width, int]] = [
        (shapes[0], 256, first),
        *((shape, 256, first) for shape in shapes[1:3]),
        (shapes[0], 256, second),
    ]
    halved = [(outputs, lines, vectors // 2) for outputs, lines, vectors in shapes if vectors > 1]
    if cpu.vector_bits < 512:
        return tiles
    return [*tiles, *((shape, 512, first) for shape in halved[:1])]


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _elements(form: ConvForm, band: int, panel: int) -> int:
    """Elements of the buffer."""
    return (
        form.num_free
        * (form.band.reach(band) if form.band is not None else 1)
        * form.lane.stride
        * _pitch(form.lane, panel)
    )


def _pitch(lane: WindowDim, panel: int) -> int:
    """Columns of one remainder in the buffer."""
    return panel + (lane.places - 1) * lane.dilation // lane.stride


def _band(form: ConvForm, lines: int, panel: int, size: int, wanted: int) -> int:
    """Output rows of a task: as many as the buffer holds, few enough that all cores get tasks."""
    if form.band is None:
        return 1
    tasks = math.prod(v.size for v in form.outer) * -(-form.lane.var.size // panel)
    most = max(form.band.var.size * tasks // wanted, lines)
    band = _up(form.band.var.size, lines)
    while band > lines and (_elements(form, band, panel) > size or band > most):
        band -= lines
    # Bands of even height leave no short one at the end.
    return _up(-(-form.band.var.size // -(-form.band.var.size // band)), lines)


class CppConvolution:
    """The source of one convolution under a schedule."""

    def __init__(self, writer: CppWriter, schedule: CppDirect):
        form = direct_form(writer.k)
        assert form is not None
        self.w, self.form, self.k = writer, form, writer.k
        self.outputs, self.lines, self.vectors = schedule.outputs, schedule.lines, schedule.vectors
        self.panel, self.high, self.width = schedule.panel, schedule.band, schedule.width
        self.type = REGISTER[form.reduce.type]
        self.lanes = _lanes(form, self.width)
        self.lane, self.band = form.lane, form.band or WindowDim(Var(1), None, 1, 0)
        self.rows = self.band.reach(self.high)
        self.pitch = _pitch(self.lane, self.panel)
        self.across = self.lane.stride * self.pitch
        """Elements from one row of the buffer to the next."""
        self.order = [v for v in (*form.free, self.band.place, self.lane.place) if v is not None]
        self.sums = self.outputs * self.lines * self.panel

    def text(self) -> str:
        """The tile's function, then the kernel's."""
        w, form = self.w, self.form
        self._tile()
        w.signature()
        panels, bands = -(-self.lane.var.size // self.panel), -(-self.band.var.size // self.high)
        w.parallel_for("t", math.prod(v.size for v in form.outer) * bands * panels)
        w.decompose("t", [*form.outer, ("band", bands), ("p", panels)])
        w.lane_piece(self.lane.var, self.panel)
        tall = self.band.var.size
        w.put(
            f"const long y0 = band * {self.high}, high = {tall!r} - y0 < {self.high} ? {tall!r} - y0 : {self.high};"
        )
        self._stage()
        if form.outputs is not None:
            w.open(f"for (long u0 = 0; u0 < {form.outputs.size!r}; u0 += {self.outputs})")
        self._weights()
        w.open(f"for (long y = 0; y < high; y += {self.lines})")
        w.put(f"{self.type} c[{self.sums}];")
        w.put(f"{self.k.name}_tile(s + y * {self.band.stride * self.across}, f, c, len);")
        self._behind()
        for _ in range(3 if form.outputs is not None else 2):
            w.close()
        w.close()
        return "\n".join(w.lines)

    # -------------------------------------------------------------- the buffer

    def _stage(self) -> None:
        """Compute the input values that the task's windows cover, with zeros around them."""
        w = self.w
        column, row = (
            Var(self.lane.reach(self.lane.var.size) + 1),
            Var(self.band.reach(self.band.var.size) + 1),
        )
        w.names.update({column: "column", row: "row"})
        made = staged(self.k, self.form, column, row)
        ahead = made[-1].bounds if made[-1].fill == 0 else ()
        edges = [b for b in ahead if column in b[0].vars]
        w.put(
            f"{self.type} s[{self.form.num_free * self.rows * self.across}] __attribute__((aligned(64)));"
        )
        w.put(
            f"const long wide = {self._reach(self.lane, 'len')}, tall = {self._reach(self.band, 'high')};"
        )
        w.put(f"{self.type}* to = s;")
        for var in self.form.free:
            self._loop(var)
        w.open(f"for (long j = 0; j < {self.rows}; ++j, to += {self.across})")
        w.put(f"const long row = y0 * {self.band.stride} + j;")
        conditions = [inside(f"({w.offset(b[0])})", b) for b in ahead if b not in edges]
        w.open(f"if (!({' & '.join(['(j < tall)', *conditions])}))")
        w.put(f"for (long q = 0; q < {self.across}; ++q) to[q] = 0;")
        w.put("continue;")
        w.close()
        w.put("long first = 0, last = wide;")
        for bound in edges:
            self._edge(bound, column)
        w.safe = frozenset(ahead)
        for rest in range(self.lane.stride):
            self._row(made, rest)
        w.safe = frozenset()
        for _ in range(len(self.form.free) + 1):
            w.close()

    def _reach(self, walk: WindowDim, count: str) -> str:
        beyond = (walk.places - 1) * walk.dilation
        return (
            f"({count} - 1) * {walk.stride} + {beyond + 1}" if walk.stride > 1 or beyond else count
        )

    def _loop(self, var: Var) -> None:
        name = self.w.names[var]
        self.w.open(f"for (long {name} = 0; {name} < {var.size!r}; ++{name})")

    def _edge(self, bound: Bound, column: Var) -> None:
        """Narrow `first` and `last`, the row's valid columns, counted from the slice's first."""
        w, (part, count) = self.w, bound
        step = part.coef(column)
        w.open("")
        start = w.offset(part + Affine.build({column: -step}))
        w.put(f"const long at = {start} + lo * {step * self.lane.stride};")
        w.put(f"const long from = at < 0 ? (-at + {step - 1}) / {step} : 0;")
        w.put(f"const long to = at < {count!r} ? ({count!r} - at + {step - 1}) / {step} : 0;")
        w.put("first = from > first ? from : first;")
        w.put("last = to < last ? to : last;")
        w.close()

    def _row(self, made: list[Instr], rest: int) -> None:
        """The valid columns of a row whose index leaves remainder `rest`, divided by the stride."""
        w, stride = self.w, self.lane.stride
        w.open("")
        to = f"to[{rest * self.pitch} + q]" if rest else "to[q]"
        up = stride - 1 - rest
        for name, end in (("q0", "first"), ("q1", "last")):
            w.put(f"long {name} = {f'({end} + {up}) / {stride}' if stride > 1 else end};")
        w.put(f"q0 = q0 < {self.pitch} ? q0 : {self.pitch};")
        w.put("q1 = q1 > q0 ? q1 : q0;")
        w.put(f"for (long q = 0; q < q0; ++q) {to} = 0;")
        w.put("#pragma omp simd")
        w.open("for (long q = q0; q < q1; ++q)")
        w.put(f"const long column = {f'(lo + q) * {stride} + {rest}' if stride > 1 else 'lo + q'};")
        for instr in made:
            w.scalar(instr)
        w.put(f"{to} = v{made[-1].id};")
        w.close()
        w.put(f"for (long q = q1; q < {self.pitch}; ++q) {to} = 0;")
        w.close()

    def _weights(self) -> None:
        """Pack the weights of the tile's outputs contiguously; beyond the last output they are zeros."""
        w, form = self.w, self.form
        w.put(f"{self.type} f[{self.outputs * self.k.row_length}];")
        w.put("long at = 0;")
        for var in self.order:
            self._loop(var)
        w.open(
            f"for (long u = 0; u < {self.outputs}; ++u, ++at)" if form.outputs is not None else ""
        )
        if form.outputs is not None:
            w.put(f"const long {w.names[form.outputs]} = u0 + u;")
            if form.outputs.size % self.outputs:
                w.put(
                    f"if ({w.names[form.outputs]} >= {form.outputs.size!r}) {{ f[at] = 0; continue; }}"
                )
        for instr in needed(self.k, [form.weight.id]):
            w.scalar(instr)
        w.put(f"f[at{'' if form.outputs is not None else '++'}] = v{form.weight.id};")
        for _ in range(len(self.order) + 1):
            w.close()

    # -------------------------------------------------------------- sums

    def _tile(self) -> None:
        """A function that sums `outputs` × `lines` rows of `len` columns, a tile of registers at a time."""
        w, k = self.w, self.k
        w.lines += [
            line.format("__AVX512F__" if self.width == 512 else "__AVX2__") for line in HELD
        ]
        # Predictive commoning would carry rows from one iteration to the next, in more registers than there are.
        target = f"prefer-vector-width={self.width}"
        w.put(
            f'__attribute__((noinline, optimize("fp-contract=fast", "no-predictive-commoning"), target("{target}")))'
        )
        kind, size = self.type, BYTES[self.form.reduce.type]
        w.open(
            f"static void {k.name}_tile(const {kind}* __restrict s, const {kind}* __restrict f, {kind}* __restrict c, long len)"
        )
        w.put(
            f"typedef {kind} vec __attribute__((vector_size({self.lanes * size}), aligned({size}), may_alias));"
        )
        w.open(f"for (long l = 0; l < len; l += {self.vectors * self.lanes})")
        cells = [
            (o, i, n)
            for o in range(self.outputs)
            for i in range(self.lines)
            for n in range(self.vectors)
        ]
        w.put(f"vec {', '.join(f's{o}_{i}_{n} = {{}}' for o, i, n in cells)};")
        w.put(f"const {self.type} *g = f, *from = s + l;")
        w.open(
            f"for (long r = 0; r < {self.form.num_free}; ++r, from += {self.rows * self.across})"
        )
        w.open(f"for (long b = 0; b < {self.band.places}; ++b)")
        w.put(f"const {self.type}* line = from + b * {self.band.dilation * self.across};")
        if self.lane.places <= WRITTEN_OUT:
            for place in range(self.lane.places):
                at, rest = divmod(place * self.lane.dilation, self.lane.stride)
                self._add(str(rest * self.pitch + at), f"{place * self.outputs}")
        else:
            w.open(f"for (long a = 0; a < {self.lane.places}; ++a)")
            where, stride = f"a * {self.lane.dilation}", self.lane.stride
            self._add(
                where if stride == 1 else f"{where} % {stride} * {self.pitch} + {where} / {stride}",
                f"a * {self.outputs}",
            )
            w.close()
        w.put(f"g += {self.lane.places * self.outputs};")
        w.close()
        w.close()
        for o, i, n in cells:
            w.put(
                f"*(vec*)(c + {(o * self.lines + i) * self.panel + n * self.lanes} + l) = s{o}_{i}_{n};"
            )
        w.close()
        w.close()

    def _add(self, at: str, weight: str) -> None:
        """Accumulate one position of the window into all sums of the tile."""
        w = self.w
        w.open("")
        cells = {
            f"{i}_{n}": f"*(const vec*)(line + {i * self.band.stride * self.across + n * self.lanes} + {at})"
            for i in range(self.lines)
            for n in range(self.vectors)
        }
        if self.outputs > 1:
            for cell, text in cells.items():
                w.put(f"vec x{cell} = {text}; DVK_HELD(x{cell})")
        for o in range(self.outputs):
            w.put(f"const {self.type} g{o} = g[{weight} + {o}];")
            for cell, text in cells.items():
                # Each is used once: one more register for it would be one too many.
                w.put(f"s{o}_{cell} += {f'x{cell}' if self.outputs > 1 else text} * g{o};")
        w.close()

    def _behind(self) -> None:
        """Write the epilogue of the sums, row by row of the tile."""
        w, form = self.w, self.form
        if form.outputs is not None:
            w.open(f"for (long u = 0; u < {self.outputs} && u0 + u < {form.outputs.size!r}; ++u)")
            w.put(f"const long {w.names[form.outputs]} = u0 + u;")
        w.open(f"for (long i = 0; i < {self.lines} && y + i < high; ++i)")
        if form.band is not None:
            w.put(f"const long {w.names[self.band.var]} = y0 + y + i;")
        row = f"(u * {self.lines} + i)" if form.outputs is not None else "i"
        w.put("#pragma omp simd")
        w.open("for (long l = 0; l < len; ++l)")
        w.put(f"const long {w.names[self.lane.var]} = lo + l;")
        w.put(f"const {self.type} v{form.reduce.id} = c[{row} * {self.panel} + l];")
        for instr in needed(self.k, [s.value for s in self.k.stores], [form.reduce.id]):
            w.scalar(instr)
        for store in self.k.stores:
            w.store(store)
        for _ in range(3 if form.outputs is not None else 2):
            w.close()
