"""Views in a program's text: one call where the layout in memory is known, the chain of PyTorch's methods elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dvk.composer.dropin.results import Layout
from dvk.composer.fusion.groups import FusionGroup
from dvk.composer.ir.effects import written
from dvk.composer.ir.nodes import IRNode, View
from dvk.records import Node


@dataclass
class Views:
    """Writes the views that the steps of a program read."""

    names: Mapping[IRNode, str]
    allocated: Mapping[IRNode, Layout]
    """The layouts of the tensors that the program allocates."""
    guarded: dict[str, Node]
    """Weights whose layout the guards check, by name."""
    checked: dict[IRNode, tuple[int, ...]] = field(default_factory=dict)
    """Results of calls whose layout the program has checked → their strides."""
    may_write: bool = False
    """The current step may write its operands. Their version counters must count it, which `dvk_view` does not share."""

    def at(self, step: IRNode | FusionGroup) -> None:
        """Note the step whose operands are written next."""
        node = None if isinstance(step, FusionGroup) else step.node
        self.may_write = node is not None and (node.op == "left" or bool(written(node)))

    def text(self, value: View) -> str:
        """The expression of a view."""
        text = self.names[value.base]
        read = value.steps and not self.may_write
        strides = self._strides(value.base) if read else None
        place = value.layout(strides) if strides is not None else None
        if place is not None:
            return f"dvk_view({text}, {value.shape!r}, {place[0]!r}, {place[1]!r})"
        return value.call(text)

    def _strides(self, base: IRNode) -> tuple[int, ...] | None:
        """The strides that a value has for certain, by the guards, a check or the program's allocation; None if it may have others."""
        if base in self.allocated:
            return self.allocated[base][1]
        node = base.node
        if base.kind != "source" or node is None or node.op not in ("input", "param", "buffer"):
            return self.checked.get(base)
        if node.op != "input":
            self.guarded[node.name] = node
        return node.strides
