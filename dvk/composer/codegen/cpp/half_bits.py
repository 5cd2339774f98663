"""Move fp16 and bf16 values as 16-bit integers in C++ kernels that do not compute with them: no conversion, and NaN payloads stay."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

from dvk.composer.ir.loops import READS, Argument, Instr, Kernel, Ref
from dvk.composer.ir.nodes import HALVES, rounded

WORD = "int16"


def as_bits(kernel: Kernel) -> Kernel:
    """Treat the kernel's fp16 and bf16 values as integers if it only reads, selects and writes them; else return the kernel itself."""
    kinds: dict[int, str] = {}
    for instr in kernel.instrs:
        read = kernel.inputs[instr.buffer].dtype if instr.op in READS else ""
        chosen = {kinds.get(a.id, "") for a in _choices(instr) if isinstance(a, Ref)}
        if read in HALVES:
            kinds[instr.id] = read
        elif len(chosen) == 1 and chosen <= set(HALVES):
            kinds[instr.id] = chosen.pop()
    used = {
        a.id
        for i in kernel.instrs
        for a in i.args
        if isinstance(a, Ref) and not (i.id in kinds and a in _choices(i))
    }
    written = all(
        kernel.outputs[s.buffer].dtype == kinds[s.value] for s in kernel.stores if s.value in kinds
    )
    if not kinds or used & kinds.keys() or not written:
        return kernel
    outputs = {s.buffer for s in kernel.stores if s.value in kinds}
    return replace(
        kernel,
        inputs=tuple(replace(b, dtype=WORD) if b.dtype in HALVES else b for b in kernel.inputs),
        outputs=tuple(
            replace(b, dtype=WORD) if n in outputs else b for n, b in enumerate(kernel.outputs)
        ),
        instrs=tuple(_moved(i, kinds[i.id]) if i.id in kinds else i for i in kernel.instrs),
    )


def _choices(instr: Instr) -> tuple[Argument, ...]:
    """The operands whose value the instruction may return."""
    if instr.op == "where":
        return instr.args[1:]
    return (
        instr.args if instr.op == "bounded" or (instr.op, instr.type) == ("as", "float32") else ()
    )


def _moved(instr: Instr, dtype: str) -> Instr:
    if instr.op == "gather":  # its operands are indices
        return replace(instr, type=WORD, fill=bits(math.nan, dtype))
    args = tuple(
        a if isinstance(a, Ref) or n == 0 else bits(a, dtype) for n, a in enumerate(instr.args)
    )
    return replace(instr, type=WORD, compute=WORD, args=args, fill=bits(instr.fill, dtype))


def bits(value: float, dtype: str) -> int:
    """A number as fp16 or bf16 storage, read as a signed integer."""
    if dtype == "float16":
        return int(
            struct.unpack(
                "h",
                struct.pack("e", math.copysign(math.inf, value) if abs(value) >= 65520 else value),
            )[0]
        )
    return int(struct.unpack("hh", struct.pack("f", rounded(float(value), dtype)))[1])
