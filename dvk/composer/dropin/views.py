"""Views in a program's text: one call where the layout in memory is known, the chain of PyTorch's methods elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dvk.composer.dropin.results import Layout
from dvk.composer.fusion.groups import FusionGroup
from dvk.composer.ir.effects import shared, written
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
    counted: bool = False
    """The current step may write its operands, or return memory of theirs that is written later. Their version counters must count it,
    which `dvk_view` does not share."""

    def at(self, step: IRNode | FusionGroup) -> None:
        """Note the step whose operands are written next."""
        node = None if isinstance(step, FusionGroup) else step.node
        self.counted = node is not None and bool(node.op == "left" or written(node) or shared(node))

    def text(self, value: View) -> str:
        """The expression of a view."""
        text, node = self.names[value.base], value.base.node
        read = value.steps and not self.counted
        strides = self._strides(value.base) if read else None
        place = value.layout(strides) if strides is not None else None
        if place is None:
            return value.call(text)
        if value.base.kind == "source" and node is not None and node.op != "input":
            self.guarded[node.name] = node
        return f"dvk_view({text}, {value.shape!r}, {place[0]!r}, {place[1]!r})"

    def _strides(self, base: IRNode) -> tuple[int, ...] | None:
        """The strides that a value has for certain, by the guards, a check or the program's allocation; None if it may have others."""
        if base in self.allocated:
            return self.allocated[base][1]
        node = base.node
        if base.kind == "source" and node is not None and node.op in ("input", "param", "buffer"):
            return node.strides
        return self.checked.get(base)
