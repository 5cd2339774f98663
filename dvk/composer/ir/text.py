"""Calls of a graph as Python text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dvk import aten
from dvk.composer.ir import steps
from dvk.records import Node

IN_TORCH = aten.having("in_torch")


def spelled(node: Node, name: Callable[[str], str]) -> str:
    """The text of a call of an ATen operator; `name` gives the name of a value."""
    args = [literal(a, name) for a in node.args] + [
        f"{k}={literal(v, name)}" for k, v in node.kwargs.items()
    ]
    if not node.op.startswith("aten."):
        return steps.spelled(node.op, args)
    packet, _, overload = node.op.removeprefix("aten.").partition(".")
    if packet == "linear":
        function = "torch.nn.functional.linear"
    elif packet == "scaled_dot_product_attention":
        function = "torch.nn.functional.scaled_dot_product_attention"
    elif packet == "contiguous":
        return f"{args[0]}.contiguous({', '.join(args[1:])})"
    elif packet.startswith("_foreach_"):
        function = f"torch.{packet}"  # half the host time of torch.ops, which looks at the schema
    else:
        # torch.einsum finds the path itself, and accepts none
        positional = (
            packet in IN_TORCH
            and overload in ("default", "input", "padding")
            and "path" not in node.kwargs
        )
        function = f"torch.{packet}" if positional else f"torch.ops.aten.{packet}.{overload}"
    return f"{function}({', '.join(args)})"


def literal(value: Any, name: Callable[[str], str]) -> str:
    """The text of an encoded operand; `name` gives the name of a value."""
    if isinstance(value, dict):
        ((key, inner),) = value.items()
        if key == "ref":
            return name(inner)
        if key == "complex":
            return f"complex({', '.join(f'float({part!r})' for part in inner)})"
        return {
            "dtype": f"torch.{inner}",
            "device": f"torch.device({inner!r})",
            "memory_format": f"torch.{inner}",
            "layout": f"torch.{inner}",
            "float": f"float({inner!r})",
        }[key]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(literal(v, name) for v in value)}]"
    return repr(value)
