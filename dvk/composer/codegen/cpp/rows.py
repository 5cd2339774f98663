"""Loops of a C++ row kernel over its row: whole, in blocks, by several threads, or both reductions of a pair in one pass.

`open_loop` opens the loops over the row for one pass. `one_pass` computes two dependent reductions together: softmax's maximum and sum
block by block (a block that raises the maximum rescales the sum), a variance from sums of x and x² in double, where squares of floats are
exact and cancellation costs digits that float never had.
"""

from __future__ import annotations

import math

from dvk.composer.codegen.analysis.online import Pair, SoftmaxPair
from dvk.composer.codegen.cpp.scalar import REGISTER, may_be_nan
from dvk.composer.codegen.cpp.writer import CppWriter, simd_loop
from dvk.composer.ir.affine import Var
from dvk.composer.ir.loops import Instr, Ref
from dvk.composer.ir.nodes import FLOATS
from dvk.composer.ir.primitives import reduction

ONLINE_BLOCK = 1024
"""Elements of a block that stays in the L1 cache between its maximum and its sum (4 KiB of floats)."""


def clause(reduce: Instr) -> str:
    """The OpenMP clause of a reduction over lanes."""
    extra = f" reduction(|:nan{reduce.id})" if may_be_nan(reduce) else ""
    return f"reduction({reduction(reduce.op).sign}:v{reduce.id}){extra}"


def larger(total: str, value: str, kind: str, sign: str = ">") -> str:
    """A statement that adds one more value to a maximum and keeps NaN; two plain selects, which GCC also vectorises after a relu."""
    if kind not in FLOATS:
        return f"{total} = {value} {sign} {total} ? {value} : {total};"
    return f"{{ const {REGISTER[kind]} m = {value} {sign} {total} ? {value} : {total}; {total} = {value} != {value} ? {value} : m; }}"


def accumulate(writer: CppWriter, r: Instr, acc: str) -> None:
    """Accumulate one more element into a reduction's result."""
    value = writer.arg(r.args[0], r.type)
    if not (row := reduction(r.op)).is_extreme:
        writer.put(f"{acc} {row.sign}= {value};")
        return
    sign = ">" if r.op == "reduce_max" else "<"
    if writer.k.family == "window" and writer.arrays:
        writer.put(larger(acc, value, r.type, sign))
    elif writer.arrays:
        writer.put(f"{acc} = ({value} {sign} {acc} || {value} != {value}) ? {value} : {acc};")
    else:
        nan = f" nan{r.id} |= {value} != {value};" if may_be_nan(r) else ""
        writer.put(f"{acc} = {value} {sign} {acc} ? {value} : {acc};{nan}")


def open_loop(writer: CppWriter, lane: Var, outer: tuple[Var, ...], clauses: str) -> int:
    """Open the loops of a pass over a row; returns the number of blocks to close after the innermost."""
    depth = len(outer) + 1
    if writer.loops.parallel == "inner":
        chunk = writer.loops.chunk
        pieces = -(-lane.size // chunk)
        writer.parallel_for("u", pieces * math.prod(v.size for v in outer), clauses)
        writer.decompose("u", [*outer, ("p", pieces)])
        writer.put(
            f"const long lo = p * {chunk}, hi = lo + {chunk} < {lane.size!r} ? lo + {chunk} : {lane.size!r};"
        )
        depth = 1
    else:
        for var in outer:
            writer.open(
                f"for (long {writer.names[var]} = 0; {writer.names[var]} < {var.size!r}; ++{writer.names[var]})"
            )
        block = writer.loops.block
        if 0 < block < lane.size:
            writer.open(f"for (long lo = 0; lo < {lane.size!r}; lo += {block})")
            writer.put(
                f"const long hi = lo + {block} < {lane.size!r} ? lo + {block} : {lane.size!r};"
            )
        else:
            depth -= writer.open_row(lane, clauses)
            return depth
    simd_loop(writer, lane, clauses, "lo", "hi")
    return depth


def constant_reduce(writer: CppWriter, r: Instr, chunk: int) -> None:
    """Reduce a value that is constant along the row."""
    value, kind, length = writer.arg(r.args[0], r.type), REGISTER[r.type], writer.k.row_length
    times = f" * ({kind}){length}" if r.op == "reduce_sum" else ""
    if writer.arrays:
        writer.put(
            f"{kind} v{r.id}[{chunk}]; for (long l = 0; l < len; ++l) v{r.id}[l] = {value}{times};"
        )
    else:
        writer.put(f"{kind} v{r.id} = {value}{times};")
    if r.op == "reduce_prod":
        cell = f"v{r.id}[l]" if writer.arrays else f"v{r.id}"
        each = "for (long l = 0; l < len; ++l) " if writer.arrays else ""
        writer.put(f"for (long n = 1; n < {length!r}; ++n) {each}{cell} *= {value};")


def one_pass(writer: CppWriter, pair: Pair) -> None:
    """Compute both reductions of a pair."""
    source = pair.first.args[0]
    assert isinstance(source, Ref)
    needed = writer.closure([source.id])
    *outer, lane = writer.k.reduced
    if isinstance(pair, SoftmaxPair):
        _softmax(writer, pair, needed, source.id, tuple(outer), lane)
    else:
        _variance(writer, pair, needed, source.id, tuple(outer), lane)


def _softmax(
    writer: CppWriter, pair: Pair, needed: list[Instr], x: int, outer: tuple[Var, ...], lane: Var
) -> None:
    top, total = f"v{pair.first.id}", f"v{pair.second.id}"
    writer.put(f"float {top} = -__builtin_inff(), {total} = 0; int nan{pair.first.id} = 0;")
    for var in outer:
        writer.open(
            f"for (long {writer.names[var]} = 0; {writer.names[var]} < {var.size!r}; ++{writer.names[var]})"
        )
    writer.open(f"for (long lo = 0; lo < {lane.size!r}; lo += {ONLINE_BLOCK})")
    writer.put(
        f"const long hi = lo + {ONLINE_BLOCK} < {lane.size!r} ? lo + {ONLINE_BLOCK} : {lane.size!r};"
    )
    writer.put("float peak = -__builtin_inff(), sum = 0;")
    simd_loop(writer, lane, f"reduction(max:peak) reduction(|:nan{pair.first.id})", "lo", "hi")
    for instr in needed:
        writer.scalar(instr)
    writer.put(f"peak = v{x} > peak ? v{x} : peak; nan{pair.first.id} |= v{x} != v{x};")
    writer.close()
    writer.put(f"if (peak > {top}) {{ {total} *= dvk_expf({top} - peak); {top} = peak; }}")
    # Only -inf so far: x - top would be NaN.
    writer.put(f"if ({top} == -__builtin_inff()) continue;")
    simd_loop(writer, lane, "reduction(+:sum)", "lo", "hi")
    for instr in needed:
        writer.scalar(instr)
    writer.put(f"sum += dvk_expf(v{x} - {top});")
    writer.close()
    writer.put(f"{total} += sum;")
    for _ in range(len(outer) + 1):
        writer.close()
    writer.put(f'if (nan{pair.first.id}) {top} = {total} = __builtin_nanf("");')
    writer.put(
        f'if ({top} == -__builtin_inff()) {total} = __builtin_nanf("");'
    )  # as exp(-inf - (-inf)) is


def _variance(
    writer: CppWriter, pair: Pair, needed: list[Instr], x: int, outer: tuple[Var, ...], lane: Var
) -> None:
    writer.put("double sum = 0, squares = 0;")
    depth = open_loop(writer, lane, outer, "reduction(+:sum) reduction(+:squares)")
    for instr in needed:
        writer.scalar(instr)
    writer.put(f"sum += v{x}; squares += (double)v{x} * v{x};")
    writer.close()
    for _ in range(depth):
        writer.close()
    kind, length = REGISTER[pair.first.type], writer.k.row_length
    # Rounding may leave a constant row just below zero, whose root would be NaN.
    writer.put(f"squares -= sum * sum / {length};")
    # Around the rounded mean: for large equal values, two passes compute the same.
    writer.put(
        f"const {kind} v{pair.first.id} = sum, mean = v{pair.first.id} * ({kind})(1.0 / {length});"
    )
    writer.put(f"const double away = mean - sum / {length};")
    writer.put(
        f"const {kind} v{pair.second.id} = (squares < 0 ? 0 : squares) + {length} * away * away;"
    )
