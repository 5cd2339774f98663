"""Programs that may go back to the original after a write: they put back what they wrote, or the original would write it a second time.

A running statistic, a counter or a cache is written where the module writes it, and a value or a result that shows that the call does not
match may come later. Only what is written before the last such place is copied, at the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dvk.composer.ir.effects import AliasClasses, written
from dvk.composer.ir.steps import GO_BACK
from dvk.records import Graph, Node

HELD = ("input", "param", "buffer", "const")
"""Nodes whose memory may be the caller's or the module's."""
BEFORE = "_before"
"""The program's name of the copies."""


class Writes:
    """The writes of one program, noted as its lines are made.

    Args:
        lines: those of the program; they grow.
        value: the program's text of a value of the graph.
    """

    def __init__(self, graph: Graph, lines: list[str], value: Callable[[str], str]):
        self._held = [n.name for n in graph.nodes if n.op in HELD and n.target is not None]
        self._memory = AliasClasses(graph.nodes)
        self._lines, self._value = lines, value
        self._noted: list[tuple[int, str]] = []
        """Number of lines before a write, and the text of what is written: a tensor, or the path of one as a literal."""

    def note(self, texts: Iterable[str]) -> None:
        """Note what the next line writes."""
        self._noted += [(len(self._lines), text) for text in texts]

    def by(self, node: Node) -> None:
        """Note what an operator writes of the tensors from outside, under any name; code left to PyTorch lists what it writes."""
        classes = {self._memory.of(name) for name in written(node)}
        if classes:
            self.note(self._value(n) for n in self._held if self._memory.of(n) in classes)
        self.note(map(repr, node.kwargs.get("writes", ()) if node.op == "left" else ()))

    def restored(self) -> list[str]:
        """The lines, with copies at the beginning of what is put back wherever the program goes back."""
        backs = [n for n, line in enumerate(self._lines) if line.endswith(GO_BACK)]
        last = backs[-1] if backs else 0
        kept = dict.fromkeys(text for number, text in self._noted if number < last)
        if not kept:
            return self._lines
        made = [f"{BEFORE} = dvk_before(self, ({''.join(f'{text}, ' for text in kept)}))"]
        for line in self._lines:
            if line.endswith(GO_BACK):
                made.append(f"{line.removesuffix(GO_BACK)}dvk_put({BEFORE})")
            made.append(line)
        return made


__all__ = ["Writes"]
