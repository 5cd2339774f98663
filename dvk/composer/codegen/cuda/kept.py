"""Values that a thread keeps in registers between two passes over its share of a row, instead of reading or computing them again."""

from __future__ import annotations

from dvk.composer.codegen.cuda.scalar import REGISTER, STORAGE
from dvk.composer.codegen.cuda.writer import CudaWriter
from dvk.composer.ir.loops import Instr, Ref
from dvk.composer.ir.nodes import BYTES
from dvk.composer.ir.primitives import COSTLY

KEPT_REGISTERS = 64
"""32-bit registers of a thread for kept values: with 1024 threads per block there are 64 in all."""
KEPT_COSTLY = 32
"""The same limit if results of costly functions are kept as well as loads."""


def choose(writer: CudaWriter, elements: int) -> set[int]:
    """Instructions whose values stay in registers; a thread has `elements` of a row."""
    for costly, limit in ((COSTLY, KEPT_COSTLY), (frozenset[str](), KEPT_REGISTERS)):
        kept = _repeated(writer, costly)
        if sum(_registers(writer, i) for i in kept) * elements <= limit:
            return {i.id for i in kept}
    return set()


def declare(writer: CudaWriter, count: int) -> None:
    """Room for the kept values of `count` vectors; loads keep their memory type."""
    for id_ in sorted(writer.kept):
        instr = writer.k.instrs[id_]
        if instr.op == "load":
            storage = STORAGE[writer.k.inputs[instr.buffer].dtype]
            writer.put(f"dvk_pack<{storage}, {writer.vector}> s{id_}[{count}];")
        else:
            writer.put(f"{REGISTER[instr.type]} s{id_}[{count}][{writer.vector}];")


def _repeated(writer: CudaWriter, costly: frozenset[str]) -> list[Instr]:
    """Loads, and results of `costly` functions, that more than one pass needs."""
    k, seen, kept = writer.k, set[int](), set[int]()
    for stage in range(k.num_stages):
        pending, here = writer.targets(stage), set[int]()
        while pending:
            instr = k.instrs[pending.pop()]
            if instr.id in here or k.is_row_value(instr):
                continue
            here.add(instr.id)
            if (
                instr.id in seen
                and writer.varies(instr)
                and (instr.op == "load" or instr.op in costly)
            ):
                kept.add(instr.id)
            else:
                pending.extend(a.id for a in instr.args if isinstance(a, Ref))
        seen |= here
    return [i for i in k.instrs if i.id in kept]


def _registers(writer: CudaWriter, instr: Instr) -> float:
    kind = writer.k.inputs[instr.buffer].dtype if instr.op == "load" else instr.type
    return max(BYTES[kind], 2) / 4
