"""C-like source text: what the writers of C++ and CUDA functions have in common."""

from __future__ import annotations

from collections.abc import Iterable

from dvk.composer.ir.affine import Affine
from dvk.composer.ir.loops import Instr, Kernel, Ref, Store


class CSource:
    """The lines of one function, and what a pass over a kernel computes.

    Args:
        kernel: what it computes.
        depth: indentation of the first line.
    """

    def __init__(self, kernel: Kernel, depth: int = 0):
        self.k, self.depth = kernel, depth
        self.lines: list[str] = []
        self.names = {v: f"i{n}" for n, v in enumerate((*kernel.rows, *kernel.reduced))}
        self.kept: set[int] = set()
        """Values that stay in memory or registers for a later pass."""
        self.done: set[int] = set()
        """Values that an earlier pass has computed."""

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        """Open a block; `text` is its head, or empty."""
        self.put(f"{text} {{".lstrip())
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.put("}")

    def offset(self, offset: Affine) -> str:
        """An element offset as source text."""
        parts = [f"{self.names[v]} * {c}" if c != 1 else self.names[v] for v, c in offset.terms]
        return " + ".join(parts + ([str(offset.const)] if offset.const else [])) or "0"

    def element_stores(self, stage: int) -> list[Store]:
        """Stores of the pass of a stage that are made for each element."""
        return [
            s
            for s in self.k.stores
            if not self.k.is_row_store(s) and self.k.instrs[s.value].stage == stage
        ]

    def closure(self, targets: Iterable[int]) -> list[Instr]:
        """Element-level instructions that the targets need, up to values kept from an earlier pass."""
        needed: set[int] = set()
        pending = list(targets)
        while pending:
            instr = self.k.instrs[pending.pop()]
            if instr.id in needed or self.k.is_row_value(instr):
                continue
            needed.add(instr.id)
            if instr.id not in self.kept or instr.id not in self.done:
                pending.extend(a.id for a in instr.args if isinstance(a, Ref))
        return [i for i in self.k.instrs if i.id in needed]
