"""Choose the values of a C++ row kernel to keep between passes: costly ones that a later pass needs again."""

from __future__ import annotations

from dvk.composer.codegen.cpp.writer import CppWriter
from dvk.composer.ir.loops import READS, Instr, Ref
from dvk.composer.ir.primitives import COSTLY

KEPT_BYTES = 1 << 17
"""Bytes of a thread's stack that kept values may take; half of a usual L2 cache."""


def plan_kept(writer: CppWriter) -> set[int]:
    """Costly values of one pass that a later pass needs again: worth a buffer of a row's length."""
    k = writer.k
    if (
        not writer.rows
        or writer.pair is not None
        or k.num_stages < 2
        or k.row_length * 4 > KEPT_BYTES
    ):
        return set()
    if not writer.loops.keep:
        return set()
    kept: set[int] = set()
    seen: set[int] = set()
    for stage in range(k.num_stages):
        pending, here = writer.targets(stage), set()
        while pending:
            instr = k.instrs[pending.pop()]
            if instr.id in here or k.is_row_value(instr):
                continue
            here.add(instr.id)
            if instr.id in seen and _is_costly(writer, instr, kept):
                kept.add(instr.id)
            else:
                pending.extend(a.id for a in instr.args if isinstance(a, Ref))
        seen |= here
    return kept if len(kept) * k.row_length * 4 <= KEPT_BYTES else set()


def _is_costly(writer: CppWriter, instr: Instr, kept: set[int]) -> bool:
    if instr.op in READS:
        places = [writer.k.instrs[a.id] for a in instr.args if isinstance(a, Ref)]
        half = writer.costly_halves and writer.k.inputs[instr.buffer].dtype == "float16"
        return half or any(not writer.k.is_row_value(place) for place in places)
    if instr.op in COSTLY or (instr.call is not None and instr.call.inside & COSTLY):
        return True
    return any(
        _is_costly(writer, writer.k.instrs[a.id], kept)
        for a in instr.args
        if isinstance(a, Ref)
        and a.id not in kept
        and not writer.k.is_row_value(writer.k.instrs[a.id])
    )
