"""Kernels made plain for reading: no instruction that only renames another, numbers of formulas by name."""

from __future__ import annotations

from dataclasses import replace

from dvk.composer.compact.frame import CONSTANTS
from dvk.composer.compose import Composition
from dvk.composer.kernel import Argument, Instr, Kernel, Ref, Store
from dvk.composer.sizes import constant

_NAMED = {value: constant(name, value) for name, value in CONSTANTS.items()}


def tidied(composition: Composition) -> Composition:
    """The composition with its kernels tidied."""
    return replace(composition, kernels={key: kernel(k) for key, k in composition.kernels.items()})


def kernel(k: Kernel) -> Kernel:
    """The same computation, in fewer instructions."""
    kept: list[Instr] = []
    now: dict[int, int] = {}

    def argument(value: Argument) -> Argument:
        if isinstance(value, Ref):
            return Ref(now[value.id])
        return _NAMED.get(value, value) if type(value) is float else value

    for instr in k.instrs:
        source = instr.args[0] if instr.op == "as" else None
        if isinstance(source, Ref) and k.instrs[source.id].type == instr.type == instr.compute:
            now[instr.id] = now[source.id]
            continue
        now[instr.id] = len(kept)
        kept.append(replace(instr, id=len(kept), args=tuple(argument(a) for a in instr.args)))
    return replace(k, instrs=tuple(kept), stores=tuple(Store(now[s.value], s.buffer, s.offset) for s in k.stores))
