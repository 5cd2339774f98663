"""Scans in C++: blocks of a row whose elementwise work is vector loops around one serial loop, or vectors of columns.

Along memory a task is a row: a vector loop computes a block's operands, a plain loop scans them, and a second vector loop computes the
epilogue. A few long rows may be cut into slices (`parallel: "inner"`): threads first reduce each slice, then scan it from the total of the
slices before it. Across memory a task is a slice of the fastest row variable, with one running value per column. Sums and products run in
double, as in torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from dvk.composer.codegen.cpp.rows import larger
from dvk.composer.codegen.cpp.scalar import REGISTER, identity
from dvk.composer.codegen.cpp.vectors import widths
from dvk.composer.codegen.cpp.writer import CppWriter
from dvk.composer.ir.affine import Var
from dvk.composer.ir.loops import Instr, Kernel, Ref
from dvk.composer.ir.primitives import reduction
from dvk.composer.ir.schedules.cpp import CppLoops, CppSchedule
from dvk.target import Cpu

BLOCK = 512
"""Elements of a row that are computed, scanned and used while they are in the L1 cache."""
RUNS = 8
"""Runs of a block that are scanned in parallel."""
PIECES = 64
"""Slices of a long row."""
LONG = 1 << 15
"""Minimum row length, in elements, for slices."""


def schedules(kernel: Kernel, cpu: Cpu) -> list[CppSchedule]:
    """The alternatives worth measuring, the default first."""
    every = widths(cpu)
    if kernel.family == "scan_column":
        return [
            CppLoops(parallel="rows", chunk=chunk, width=width)
            for chunk in (1024, 256, 64)
            for width in every
        ]
    result: list[CppSchedule] = [
        CppLoops(parallel="rows", chunk=BLOCK, width=width) for width in every
    ]
    result.append(CppLoops(parallel="rows", chunk=4 * BLOCK, width=every[0]))
    if kernel.num_rows < 16 and _splits(kernel):
        pieces = CppLoops(parallel="inner", chunk=BLOCK, width=every[0])
        result.insert(0 if kernel.num_rows < 4 and kernel.row_length >= LONG else 1, pieces)
    return result


def _splits(kernel: Kernel) -> bool:
    """Slices of a row can be reduced in advance: it is contiguous, and no scan depends on another."""
    scans = [i for i in kernel.instrs if i.op.startswith("scan_")]
    return (
        len(kernel.reduced) == 1
        and kernel.row_length > PIECES
        and not any(_needs(kernel, _operand(s)) & {o.id for o in scans} for s in scans)
    )


def scan_kernel(writer: CppWriter) -> None:
    """The body of the function."""
    if writer.k.family == "scan_column":
        _columns(writer)
    elif writer.loops.parallel == "inner":
        _pieces(writer)
    else:
        writer.parallel_for("t", writer.k.num_rows)
        writer.decompose("t", list(writer.k.rows))
        _row_values(writer)
        _start(writer, _scans(writer.k))
        _walk(writer)
        writer.close()


def _row_values(writer: CppWriter) -> None:
    for instr in writer.k.instrs:
        if writer.k.is_row_value(instr):
            writer.scalar(instr)


def _scans(kernel: Kernel) -> list[Instr]:
    return [i for i in kernel.instrs if i.op.startswith("scan_")]


def _operand(scan: Instr) -> int:
    source = scan.args[0]
    assert isinstance(source, Ref)
    return source.id


def _needs(kernel: Kernel, target: int) -> set[int]:
    """Element-level dependencies of a value, itself included, up to scans."""
    result: set[int] = set()
    pending = [target]
    while pending:
        instr = kernel.instrs[pending.pop()]
        if instr.id not in result and not kernel.is_row_value(instr):
            result.add(instr.id)
            if not instr.op.startswith("scan_"):
                pending.extend(a.id for a in instr.args if isinstance(a, Ref))
    return result


def _wide(scan: Instr) -> str:
    """The accumulator type of a scan."""
    return (
        "double"
        if scan.type == "float32" and scan.op in ("scan_sum", "scan_prod")
        else REGISTER[scan.type]
    )


def _start(writer: CppWriter, scans: Iterable[Instr]) -> None:
    for scan in scans:
        writer.put(f"{_wide(scan)} c{scan.id} = {identity(scan)};")


def _join(scan: Instr, total: str, value: str) -> str:
    """Text that adds one more value to a running one."""
    if not (row := reduction(scan.op)).is_extreme:
        return f"{total} {row.sign}= {value};"
    return larger(total, value, scan.type)


def _values(writer: CppWriter, ids: set[int], buffered: set[int]) -> None:
    """Declare values of one element; the buffers hold the results of finished scans."""
    for instr in writer.k.instrs:
        if instr.id in ids:
            if instr.id in buffered:
                writer.put(f"const {REGISTER[instr.type]} v{instr.id} = b{instr.id}[l];")
            elif not instr.op.startswith("scan_"):
                writer.scalar(instr)


def _walk(writer: CppWriter, start: str = "0", stop: str = "") -> None:
    """Scan a row, or a slice of it, block by block."""
    k = writer.k
    *outer, lane = k.reduced
    scans = _scans(k)
    backward = scans[0].backward
    for var in outer:
        name, last = writer.names[var], repr(var.size - 1)
        turn = (
            f"long {name} = {last}; {name} >= 0; --{name}"
            if backward
            else f"long {name} = 0; {name} <= {last}; ++{name}"
        )
        writer.open(f"for ({turn})")
    stop, block = stop or repr(lane.size), writer.loops.chunk
    writer.open(f"for (long n = 0; n < ({stop} - {start} + {block - 1}) / {block}; ++n)")
    if backward:
        writer.put(
            f"const long hi = {stop} - n * {block}, lo = hi - {block} > {start} ? hi - {block} : {start}, len = hi - lo;"
        )
    else:
        writer.put(
            f"const long lo = {start} + n * {block}, hi = lo + {block} < {stop} ? lo + {block} : {stop}, len = hi - lo;"
        )
    done: set[int] = set()
    for scan in scans:
        writer.put(f"{REGISTER[scan.type]} b{scan.id}[{block}];")
        _lanes(writer, lane)
        _values(writer, _needs(k, _operand(scan)), done)
        writer.put(f"b{scan.id}[l] = {writer.arg(scan.args[0], scan.type)};")
        writer.close()
        _run(writer, scan, block)
        done.add(scan.id)
    stores = [s for s in k.stores if not k.is_row_store(s)]
    _lanes(writer, lane)
    _values(writer, set().union(*(_needs(k, s.value) for s in stores)), done)
    for s in stores:
        writer.store(s)
    writer.close()
    for _ in range(len(outer) + 1):
        writer.close()
    for s in k.stores:
        if k.is_row_store(s) and not start.startswith("p"):
            writer.store(s)


def _run(writer: CppWriter, scan: Instr, block: int) -> None:
    """Scan the operands of a block: a whole one as several parallel runs, because each step of one run waits for the previous step."""
    kind, part, name = _wide(scan), block // RUNS, scan.id
    turn = (
        "for (long l = %s - 1; l >= 0; --l)" if scan.backward else "for (long l = 0; l < %s; ++l)"
    )
    writer.open(f"if (len == {block})")
    writer.put(f"{kind} d[{block}], e[{RUNS}];")
    writer.put(f"for (int j = 0; j < {RUNS}; ++j) e[j] = {identity(scan)};")
    writer.open(turn % part)
    writer.put(f"#pragma GCC unroll {RUNS}")
    writer.put(
        f"for (int j = 0; j < {RUNS}; ++j) {{ {_join(scan, 'e[j]', f'b{name}[j * {part} + l]')} d[j * {part} + l] = e[j]; }}"
    )
    writer.close()
    writer.open(f"for (int n = 0; n < {RUNS}; ++n)")
    writer.put(f"const int j = {f'{RUNS - 1} - n' if scan.backward else 'n'};")
    writer.put("#pragma omp simd")
    writer.put(
        f"for (long l = j * {part}; l < (j + 1) * {part}; ++l) "
        f"{{ {kind} y = c{name}; {_join(scan, 'y', 'd[l]')} b{name}[l] = y; }}"
    )
    writer.put(_join(scan, f"c{name}", "e[j]"))
    writer.close()
    writer.close()
    writer.open("else")
    writer.open(turn % "len")
    writer.put(f"{_join(scan, f'c{name}', f'b{name}[l]')} b{name}[l] = c{name};")
    writer.close()
    writer.close()


def _lanes(writer: CppWriter, lane: Var) -> None:
    writer.put("#pragma omp simd")
    writer.open("for (long l = 0; l < len; ++l)")
    writer.put(f"const long {writer.names[lane]} = lo + l;")


def _pieces(writer: CppWriter) -> None:
    """Scan every row in slices: their totals, the prefix of each, and their scans."""
    k = writer.k
    (lane,) = k.reduced
    scans = _scans(k)
    chunk = -(-lane.size // PIECES)
    writer.open(f"for (long t = 0; t < {k.num_rows!r}; ++t)")
    writer.decompose("t", list(k.rows))
    _row_values(writer)
    for scan in scans:
        writer.put(f"{_wide(scan)} s{scan.id}[{PIECES}];")
    end = repr(lane.size)
    bounds = f"const long pl = p * {chunk} < {end} ? p * {chunk} : {end}, ph = pl + {chunk} < {end} ? pl + {chunk} : {end};"
    writer.parallel_for("p", PIECES)
    writer.put(bounds)
    _start(writer, scans)
    writer.open(
        f"for (long {writer.names[lane]} = pl; {writer.names[lane]} < ph; ++{writer.names[lane]})"
    )
    _values(writer, set().union(*(_needs(k, _operand(s)) for s in scans)), set())
    for scan in scans:
        writer.put(_join(scan, f"c{scan.id}", writer.arg(scan.args[0], scan.type)))
    writer.close()
    for scan in scans:
        writer.put(f"s{scan.id}[p] = c{scan.id};")
    writer.close()
    for scan in scans:
        turn = (
            f"long p = {PIECES - 1}; p >= 0; --p"
            if scan.backward
            else f"long p = 0; p < {PIECES}; ++p"
        )
        writer.open("")
        writer.put(f"{_wide(scan)} c{scan.id} = {identity(scan)};")
        writer.open(f"for ({turn})")
        writer.put(
            f"const {_wide(scan)} own = s{scan.id}[p]; s{scan.id}[p] = c{scan.id}; {_join(scan, f'c{scan.id}', 'own')}"
        )
        writer.close()
        writer.close()
    writer.parallel_for("p", PIECES)
    writer.put(bounds)
    for scan in scans:
        writer.put(f"{_wide(scan)} c{scan.id} = s{scan.id}[p];")
    _walk(writer, "pl", "ph")
    writer.close()
    for s in k.stores:
        if k.is_row_store(s):
            writer.store(s)
    writer.close()


def _columns(writer: CppWriter) -> None:
    """Scan vectors of columns together."""
    k = writer.k
    lane = writer.lane or Var(1)
    writer.names.setdefault(lane, "i0")
    chunk = min(writer.loops.chunk, max(lane.size, 1))
    pieces = -(-lane.size // chunk)
    outer = [v for v in k.rows if v is not lane]
    tasks = pieces
    for var in outer:
        tasks *= var.size
    writer.parallel_for("t", tasks)
    writer.decompose("t", [*outer, ("p", pieces)])
    writer.lane_piece(lane, chunk)
    scans = _scans(k)
    for scan in scans:
        writer.put(
            f"{_wide(scan)} c{scan.id}[{chunk}]; for (long l = 0; l < len; ++l) c{scan.id}[l] = {identity(scan)};"
        )
    for var in k.reduced:
        name, last = writer.names[var], repr(var.size - 1)
        turn = (
            f"long {name} = {last}; {name} >= 0; --{name}"
            if scans[0].backward
            else f"long {name} = 0; {name} <= {last}; ++{name}"
        )
        writer.open(f"for ({turn})")
    _lanes(writer, lane)
    for instr in k.instrs:
        if instr.op.startswith("scan_"):
            writer.put(_join(instr, f"c{instr.id}[l]", writer.arg(instr.args[0], instr.type)))
            writer.put(f"const {REGISTER[instr.type]} v{instr.id} = c{instr.id}[l];")
        else:
            writer.scalar(instr)
    for s in k.stores:
        writer.store(s)
    writer.close()
    for _ in k.reduced:
        writer.close()
    writer.close()
