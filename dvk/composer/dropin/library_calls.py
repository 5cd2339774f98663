"""The text of a call of a library, as the plan's recipes have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dvk.composer.ir.text import literal, spelled
from dvk.composer.rewrites import cudnn, packed_weights
from dvk.records import Node

if TYPE_CHECKING:
    from dvk.composer.dropin.forward import HostWriter


def text(host: HostWriter, node: Node) -> str:
    """The call of an operator of PyTorch."""
    found = None
    if cudnn.RECIPE in host.called:
        found = cudnn.measured(node, lambda value: literal(value, host.value))
    elif node.name in host.packed:
        found = _packed(host, host.packed[node.name])
    return found or spelled(node, host.value)


def _packed(host: HostWriter, call: packed_weights.Call) -> str:
    """The call with a weight that is packed once."""

    def one(operand: object) -> str:
        return literal(operand, host.value)

    weight = host.made_once(call.make, (host.origin(call.weight),), [one(call.weight)])
    given = ", ".join([one(call.x), weight, one(call.bias), *call.numbers])
    return f"{call.function}({given})"
