"""The forms of a kernel in CUDA: flat over elements, whole rows in registers, loops over each row, rows cut in slices.

`lanes` threads work on a row; a block holds `rows` rows. If rows lie along memory (family `row`), the lanes of a row are neighbouring
threads: part of a warp or a whole block. If a reduction crosses memory (family `column`), neighbouring threads are neighbouring rows and
the lanes follow each other.
"""

from __future__ import annotations

import math

from dvk.composer.codegen.analysis.online import Pair, SoftmaxPair, VariancePair, online_pair
from dvk.composer.codegen.cuda import kept
from dvk.composer.codegen.cuda.scalar import REGISTER, real
from dvk.composer.codegen.cuda.writer import CudaFunction, CudaWriter, combined, identity, operation
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Instr, Kernel, Store
from dvk.composer.ir.schedules.cuda import CudaFlat, CudaLooped, CudaPersistent, CudaRows, CudaSplit
from dvk.composer.ir.symint import SymbolicSize, leaves_rest, power

WARP = 32
MOST_HELD, MOST_HELD_A_BLOCK = 64, 1 << 15
"""Elements of a row that a thread and a block may hold, where the length is known at run time: half of a multiprocessor's registers."""
Slots = dict[int, tuple[str, int]]
"""Reduction → type and first element of its partial results, [slice][row], in the buffer of that type."""


def pointwise(kernel: Kernel, schedule: CudaFlat, aliased: set[str]) -> CudaFunction:
    """`each` vectors per thread, one block of threads apart."""
    rows = [v for v in kernel.rows if v.size > 1]
    writer = CudaWriter(kernel, rows[-1] if rows else None, schedule.vector, aliased)
    vector, threads, each = writer.vector, schedule.threads, schedule.each
    vectors = math.prod(v.size for v in rows) // vector
    grid = max(-(-vectors // (threads * each)), 1)
    block = f"({writer.index})blockIdx.x" if writer.wide else "(int)blockIdx.x"
    if each > 1:
        writer.put("#pragma unroll")
        writer.open(f"for (int e = 0; e < {each}; ++e)")
        writer.put(
            f"const {writer.index} u = {block} * {threads * each} + e * {threads} + (int)threadIdx.x;"
        )
    else:
        writer.put(f"const {writer.index} u = {block} * {threads} + (int)threadIdx.x;")
    guarded = leaves_rest(vectors, threads * each)
    if guarded:
        writer.open(f"if (u < {vectors})")
    if rows:
        writer.put(f"const {writer.index} p = u{f' * {vector}' if vector > 1 else ''};")
        writer.flat = ("p", tuple(rows))
        writer.digits("p", rows)
    writer.elements(kernel.instrs, [], kernel.stores)
    for _ in range(guarded + (each > 1)):
        writer.close()
    return writer.function(kernel.name, grid, threads)


class RowFunction:
    """One function over rows: how threads divide the work, and how their partial results become a row's value."""

    def __init__(self, kernel: Kernel, schedule: CudaRows, aliased: set[str], pieces: int = 1):
        self.k, self.schedule, self.pieces = kernel, schedule, pieces
        self.lanes, self.columns = schedule.lanes, schedule.rows
        self.threads = self.lanes * self.columns
        self.across = kernel.family == "column"
        self.reduced = [v for v in kernel.reduced if v.size > 1]
        self.length = math.prod(v.size for v in self.reduced)
        pair = online_pair(kernel) if _is_online(schedule) else None
        self.writer = CudaWriter(
            kernel, self.reduced[-1] if self.reduced else None, schedule.vector, aliased, pair
        )
        self.vector = self.writer.vector
        self.partial = leaves_rest(kernel.num_rows, self.columns)
        """The last block has threads without a row; they recompute the last row and store nothing."""

    @property
    def blocks(self) -> int:
        return -(-self.k.num_rows // self.columns)

    def place(self) -> None:
        """Declare the row `x`, the lane `t`, and with slices the slice `piece`."""
        w, rows = self.writer, [v for v in self.k.rows if v.size > 1]
        block = f"({w.index})blockIdx.x" if w.wide else "(int)blockIdx.x"
        if self.pieces > 1:
            w.put(f"const int piece = (int)blockIdx.x % {self.pieces};")
            block = f"({w.index})(blockIdx.x / {self.pieces})"
        if self.columns == 1:
            w.put("const int t = threadIdx.x;")
        else:
            inner, outer = (
                f"(int)threadIdx.x % {self.columns}",
                f"(int)threadIdx.x / {self.columns}",
            )
            if not self.across:
                inner, outer = (
                    f"(int)threadIdx.x / {self.lanes}",
                    f"(int)threadIdx.x % {self.lanes}",
                )
            w.put(f"const int t = {outer};")
            block = f"{block} * {self.columns} + {inner}"
        if self.partial:
            w.put(f"const {w.index} place = {block};")
            w.put(f"const bool live = place < {self.k.num_rows};")
            w.put(f"const {w.index} x = live ? place : {self.k.num_rows - 1};")
        else:
            w.put(f"const {w.index} x = {block};")
        w.digits("x", rows)

    def sweep(self, stage: int, count: int, start: str = "", end: str = "") -> None:
        """One pass: `count` vectors per thread known in advance (unrolled), or a loop for count 0."""
        w = self.writer
        reduces, stores = w.reduces(stage), w.element_stores(stage)
        for r in reduces:
            w.put(f"{REGISTER[r.type]} r{r.id} = {identity(r)};")
            if isinstance(w.pair, VariancePair) and r is w.pair.first:
                w.put(f"float n{r.id} = 0.0f;")
        stride = self.lanes * self.vector
        first = f"t * {self.vector}" if self.vector > 1 else "t"
        opened = 1
        w.put("#pragma unroll" if count else "#pragma unroll 4")
        if count:
            w.open(f"for (int e = 0; e < {count}; ++e)")
            w.put(f"const int r = e * {stride} + {first};")
            if leaves_rest(self.length, count * stride):
                w.open(f"if (r < {self.length})")
                opened += 1
            w.at = "e"
        else:
            begin = f"{start} + {first}" if start else first
            w.open(f"for ({w.index} r = {begin}; r < {end or self.length}; r += {stride})")
        if self.reduced:
            w.digits("r", self.reduced)
        needed = w.closure(w.targets(stage))
        w.guard = "if (live) " if self.partial else ""
        w.elements(needed, reduces, stores)
        w.guard = ""
        for _ in range(opened):
            w.close()
        w.done |= w.kept & {i.id for i in needed}

    def gather(self, reduces: list[Instr], length: str = "") -> None:
        """Reduce each thread's `r…` to the row's `v…` in all its threads.

        Args:
            length: elements of the row, if a pair of reductions has just been accumulated.
        """
        w = self.writer
        for r in reduces:
            if length and w.pair is not None:
                self._align(r, length)
            kind, op = REGISTER[r.type], operation(r)
            if self.lanes == 1:
                text = f"r{r.id}"
            elif self.across:
                w.put(f"__shared__ {kind} c{r.id}[{self.threads}];")
                text = f"dvk_column<{op}, {self.lanes}, {self.columns}>(r{r.id}, c{r.id})"
            elif self.lanes <= WARP:
                text = f"dvk_warp<{op}, {self.lanes}>(r{r.id})"
            else:
                w.put(f"__shared__ {kind} c{r.id}[{self.lanes // WARP}];")
                text = f"dvk_block<{op}, {self.lanes // WARP}>(r{r.id}, c{r.id})"
            w.put(f"const {kind} v{r.id} = {text};")

    def _align(self, reduce: Instr, length: str) -> None:
        """Convert a thread's values of a pair so that adding them up gives the row's values."""
        pair = self.writer.pair
        assert pair is not None
        first, second = f"r{pair.first.id}", f"r{pair.second.id}"
        if reduce is pair.second:
            self.writer.put(
                f"{second} = {aligned(pair, second, first, f'n{pair.first.id}', length, piece=self.pieces > 1)};"
            )
        elif reduce is pair.first and isinstance(pair, VariancePair):
            # A thread's mean becomes its sum, which is kept as well: the squares need both.
            self.writer.put(f"{first} *= n{pair.first.id};")

    def row_values(self, stage: int, done: set[int]) -> None:
        """Compute the values needed once per row as soon as the reductions up to `stage` are known."""
        for instr in self.k.instrs:
            if not self.k.is_row_value(instr) or instr.id in done or instr.stage > stage:
                continue
            done.add(instr.id)
            if not instr.op.startswith("reduce_"):
                self.writer.scalar(instr)
            elif self.writer.is_constant(instr):
                self.writer.constant_reduce(instr)

    def row_stores(self, stores: list[Store]) -> None:
        """Write outputs from one lane per row."""
        if not stores:
            return
        conditions = (
            ["t == 0"] * (self.lanes > 1)
            + ["live"] * self.partial
            + ["piece == 0"] * (self.pieces > 1)
        )
        if conditions:
            self.writer.open(f"if ({' && '.join(conditions)})")
        vector, self.writer.vector = self.writer.vector, 1
        for store in stores:
            self.writer.store(store)
        self.writer.vector = vector
        if conditions:
            self.writer.close()


def _is_online(schedule: CudaRows) -> bool:
    return isinstance(schedule, CudaLooped | CudaSplit) and schedule.online


def whole(kernel: Kernel, schedule: CudaPersistent | CudaLooped, aliased: set[str]) -> CudaFunction:
    """One launch for whole rows: unrolled with repeated values kept in registers (`persistent`), or a loop."""
    rows = RowFunction(kernel, schedule, aliased)
    w = rows.writer
    rows.place()
    count = 0
    if isinstance(schedule, CudaPersistent):
        count = _held_vectors(rows)
        w.kept = kept.choose(w, count * rows.vector)
        kept.declare(w, count)
    done: set[int] = set()
    for stage in range(kernel.num_stages):
        rows.row_values(stage, done)
        reduces = w.reduces(stage)
        if reduces or w.element_stores(stage):
            rows.sweep(stage, count)
            rows.gather(reduces, real(rows.length))
    rows.row_stores([s for s in kernel.stores if kernel.is_row_store(s)])
    return w.function(kernel.name, rows.blocks, rows.threads)


def _held_vectors(rows: RowFunction) -> int:
    """Vectors of a row that each thread holds; room for up to twice as many as it has, where the length is known at run time.

    Raises:
        CannotCompose: they do not fit in registers.
    """
    count = -(-int(rows.length) // (rows.lanes * rows.vector))
    if isinstance(rows.length, SymbolicSize):
        count = power(count)
        if count * rows.vector > min(MOST_HELD, MOST_HELD_A_BLOCK // rows.lanes):
            raise CannotCompose("a row of this length does not fit in registers")
    return count


def split(
    kernel: Kernel, schedule: CudaSplit, aliased: set[str]
) -> tuple[list[CudaFunction], dict[str, int]]:
    """Cut each row into `splits` slices, with one launch per pass; every later launch adds up the slices of earlier ones.

    Returns:
        The functions in launch order, and the buffers between them (type → elements).
    """
    pieces = schedule.splits
    slots: Slots = {}
    counts: dict[str, int] = {}
    passes = []
    plain = RowFunction(kernel, schedule, aliased).writer
    for stage in range(kernel.num_stages):
        for r in plain.reduces(stage):
            slots[r.id] = (r.type, counts.get(r.type, 0))
            counts[r.type] = counts.get(r.type, 0) + pieces * kernel.num_rows
        if plain.reduces(stage) or plain.element_stores(stage):
            passes.append(stage)
    stores = [s for s in kernel.stores if kernel.is_row_store(s)]
    functions = []
    for number, stage in enumerate(passes):
        ready = (
            [s for s in stores if kernel.instrs[s.value].stage <= stage]
            if number == len(passes) - 1
            else []
        )
        stores = [s for s in stores if s not in ready]
        functions.append(
            _piece(kernel, schedule, aliased, stage, slots, ready, f"{kernel.name}_{number}")
        )
    if stores:
        functions.append(
            _piece(kernel, schedule, aliased, None, slots, stores, f"{kernel.name}_{len(passes)}")
        )
    return functions, counts


def _piece(
    kernel: Kernel,
    schedule: CudaSplit,
    aliased: set[str],
    stage: int | None,
    slots: Slots,
    stores: list[Store],
    name: str,
) -> CudaFunction:
    """The pass of a stage over one slice; without a stage, the remaining work once per row."""
    pieces = schedule.splits
    rows = RowFunction(kernel, schedule, aliased, pieces if stage is not None else 1)
    w = rows.writer
    rows.place()
    share = rows.vector * -(-rows.length // (rows.vector * pieces))
    used: set[str] = set()
    targets = (w.targets(stage) if stage is not None else []) + [s.value for s in stores]
    wanted = _behind(kernel, targets)
    last = kernel.num_stages - 1 if stage is None else stage
    done: set[int] = {i.id for i in kernel.instrs if i.id not in wanted}
    for earlier in range(last + 1):
        rows.row_values(earlier, done)
        reduces = [r for r in w.reduces(earlier) if r.id in wanted] if earlier < last else []
        _add_slices(rows, slots, reduces, share, pieces)
        used |= {slots[r.id][0] for r in reduces}
        done |= {r.id for r in reduces}
    if stage is not None:
        _sweep_slice(rows, slots, stage, share)
        used |= {slots[r.id][0] for r in w.reduces(stage)}
    rows.row_stores(stores)
    extra = [(f"part_{kind}", REGISTER[kind]) for kind in sorted(used)]
    return w.function(name, rows.blocks * rows.pieces, rows.threads, extra)


def _add_slices(
    rows: RowFunction, slots: Slots, reduces: list[Instr], share: int, pieces: int
) -> None:
    """Add up the results that an earlier launch left of `pieces` slices of `share` elements."""
    w, num_rows = rows.writer, rows.k.num_rows
    for r in reduces:
        kind, start = slots[r.id]
        cell = f"part_{kind}[{start} + n * {num_rows} + x]"
        if w.pair is not None and r is w.pair.second:
            first = f"part_float32[{slots[w.pair.first.id][1]} + n * {num_rows} + x]"
            count = f"(float)min({share}, {rows.length} - n * {share})"
            cell = aligned(w.pair, cell, first, count, real(rows.length))
        w.put(f"{REGISTER[r.type]} r{r.id} = {identity(r)};")
        w.put(
            f"for (int n = t; n < {pieces}; n += {rows.lanes}) r{r.id} = {combined(r, f'r{r.id}', cell)};"
        )
        if w.pair is not None and r is w.pair.first:
            rows.gather([r])
    rows.gather([r for r in reduces if w.pair is None or r is not w.pair.first])


def _sweep_slice(rows: RowFunction, slots: Slots, stage: int, share: int) -> None:
    """Make a stage's pass over slice `piece` and leave its results for the next launch."""
    w = rows.writer
    w.put(
        f"const {w.index} from = ({w.index})piece * {share}, upto = min(from + {share}, ({w.index}){rows.length});"
    )
    rows.sweep(stage, 0, "from", "upto")
    reduces = w.reduces(stage)
    rows.gather(reduces, "(float)(upto - from)")
    conditions = ["t == 0"] * (rows.lanes > 1) + ["live"] * rows.partial
    when = f"if ({' && '.join(conditions)}) " if conditions else ""
    for r in reduces:
        kind, start = slots[r.id]
        w.put(f"{when}part_{kind}[{start} + ({w.index})piece * {rows.k.num_rows} + x] = v{r.id};")


def aligned(
    pair: Pair, second: str, first: str, count: str, length: str, piece: bool = False
) -> str:
    """A part's second result of a pair, relative to the row's first one, so that adding up the parts gives the row's.

    Args:
        second, first: the part's results.
        count: elements of the part.
        length: elements of the row.
        piece: the row is one of several slices. A slice of -inf alone adds nothing; a whole row of -inf gives NaN.
    """
    if isinstance(pair, SoftmaxPair):
        return f"{second} * expf({first} - {f'dvk_shift(v{pair.first.id})' if piece else f'v{pair.first.id}'})"
    return f"dvk_around({second}, {first}, {count}, v{pair.first.id} / {length})"


def _behind(kernel: Kernel, targets: list[int]) -> set[int]:
    """Instructions that the targets depend on, through reductions too."""
    result: set[int] = set()
    pending = list(targets)
    while pending:
        id_ = pending.pop()
        if id_ not in result:
            result.add(id_)
            pending.extend(a.id for a in kernel.instrs[id_].args if hasattr(a, "id"))
    return result
