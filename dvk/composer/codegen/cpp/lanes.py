"""Segments of the variable that SIMD runs over, in each of which bounds hold or fail throughout, and values that are invariant in it.

The segment's ends show the compiler which conditions hold in it: concatenated or padded parts are read without a check per element.
"""

from __future__ import annotations

from dvk.composer.codegen.cpp.writer import CppWriter
from dvk.composer.ir.affine import Var
from dvk.composer.ir.loops import Instr, Kernel

MAX_SEGMENTS = 6
"""Maximum segments: more of them make longer source for too little."""


def segments(kernel: Kernel, lane: Var) -> list[tuple[int, int]]:
    """Cut points of the lane, chosen so that every bound on the lane alone holds throughout a segment or nowhere in it."""
    cuts = {0, lane.size}
    for instr in kernel.instrs:
        for part, count in instr.bounds:
            if part.terms == ((lane, 1),):
                cuts |= {cut for cut in (-part.const, count - part.const) if 0 < cut < lane.size}
    ends = sorted(cuts)
    return (
        list(zip(ends, ends[1:], strict=False))
        if len(ends) <= MAX_SEGMENTS + 1
        else [(0, lane.size)]
    )


def row_segments(writer: CppWriter) -> list[tuple[int, int]]:
    """The slices of a row in one pass."""
    lane = writer.k.reduced[-1]
    cut = writer.rows and writer.loops.parallel != "inner" and not writer.loops.block
    return segments(writer.k, lane) if cut else [(0, lane.size)]


def ahead(writer: CppWriter, needed: list[Instr]) -> list[Instr]:
    """Declare lane-invariant values before the loop, because the compiler does not hoist all of them."""
    if writer.arrays or writer.lane is None:
        return []
    return [
        i
        for i in needed
        if writer.lane not in i.vars and not (i.id in writer.kept or i.op.startswith("reduce_"))
    ]


def flat_kernel(writer: CppWriter) -> None:
    """Write a pointwise kernel as one vector loop over all elements, with each element's indices divided out."""
    threads = writer.threads()
    shared = "" if threads is None else "parallel for "
    writer.put(f"#pragma omp {shared}simd {threads or ''}".rstrip())
    writer.open(f"for (long t = 0; t < {writer.k.num_rows!r}; ++t)")
    writer.decompose("t", list(writer.k.rows))
    for instr in writer.k.instrs:
        writer.scalar(instr)
    for s in writer.k.stores:
        writer.store(s)
    writer.close()
