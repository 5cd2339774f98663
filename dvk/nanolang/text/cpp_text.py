"""C++ kernels in the dialect: the composer's, without words that carry no information for a reader.

The frame adds linkage, vector width and sizes; values are declared by their type alone, one loop runs over a whole row, and an index that
is the loop's own variable is not copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dvk.composer.codegen.cpp.render import KernelWriter
from dvk.composer.codegen.cpp.scalar import REGISTER, STORAGE
from dvk.composer.codegen.cpp.writer import simd_loop
from dvk.composer.ir.affine import Var
from dvk.composer.ir.loops import Instr, Ref, Store


class NanoCppWriter(KernelWriter):
    """The text of one kernel under a schedule."""

    buffer = "b"
    half = ("(float){}", "(_Float16){}", "((float)(_Float16){})")
    costly_halves = False

    def signature(self) -> None:
        self.open(f"{self.k.name}:")

    def open_row(self, lane: Var, clauses: str) -> int:
        simd_loop(self, lane, clauses, "0", repr(lane.size))
        return 1

    def decompose(self, flat: str, variables: Sequence[Var | tuple[str, int]]) -> None:
        if self.arrays and self.lane is not None and self.loops.chunk >= self.lane.size:
            variables = [
                v for v in variables if isinstance(v, Var)
            ]  # a single slice needs no index
        if len(variables) == 1 and isinstance(variables[0], Var):
            self.names[variables[0]] = flat
        else:
            super().decompose(flat, variables)

    def whole_lane(self, lane: Var) -> bool:
        if self.arrays or self.loops.chunk < lane.size:
            return False
        outer = [v for v in self.k.rows if v is not lane]
        if outer:
            self.parallel_for("t", math.prod(v.size for v in outer))
            self.decompose("t", outer)
        simd_loop(self, lane, "", "0", repr(lane.size))
        self._element(self.k.instrs, self.k.stores)
        if outer:
            self.close()
        return True

    def _element(self, needed: Iterable[Instr], stores: Iterable[Store]) -> None:
        for instr in needed:
            self.scalar(instr)
        for s in stores:
            self.store(s)
        self.close()

    def lane_piece(self, lane: Var, chunk: int) -> None:
        if self.arrays or self.lane is None:
            if chunk >= lane.size:
                self.put(f"const long lo = 0, len = {lane.size!r};")
            else:
                super().lane_piece(lane, chunk)
        else:
            self.put(f"const long lo = p * {chunk}, hi = least(lo + {chunk}, {lane.size!r});")

    def lane_loop(self, needed: list[Instr], reduces: list[Instr], stores: list[Store]) -> None:
        if self.arrays or self.lane is None:
            super().lane_loop(needed, reduces, stores)
            return
        simd_loop(self, self.lane, "", "lo", "hi")
        self._element(needed, stores)

    def declaration(self, instr: Instr) -> str:
        return REGISTER[instr.type]

    def bare(self, text: str) -> str:
        """An expression without its outer parentheses."""
        if not text.startswith("(") or not text.endswith(")"):
            return text
        depth = 0
        for position, letter in enumerate(text):
            depth += (letter == "(") - (letter == ")")
            if depth == 0 and position < len(text) - 1:
                return text
        return text[1:-1]

    def store(self, store: Store) -> None:
        instr, buffer = self.k.instrs[store.value], self.k.outputs[store.buffer]
        if STORAGE[buffer.dtype] != REGISTER[instr.type] or buffer.dtype in ("bool", "bfloat16"):
            super().store(store)
        else:
            self.put(
                f"o{store.buffer}[{self.offset(store.offset)}] = {self.arg(Ref(instr.id), instr.type)};"
            )
