"""The widths of vectors that are worth measuring on a processor."""

from __future__ import annotations

from dvk.composer.ir.schedules.cpp import Width
from dvk.target import Cpu


def widths(cpu: Cpu) -> tuple[Width, ...]:
    """Bits, the widest first: vectors of 512 bits may lower the clock, so that 256 are worth measuring as well."""
    return (512, 256) if cpu.vector_bits >= 512 else (256,)
