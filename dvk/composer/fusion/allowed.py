"""Operators that the fusion recipes of a plan take from PyTorch."""

from __future__ import annotations

from collections.abc import Callable

from dvk import aten
from dvk.composer.ir.effects import is_view
from dvk.records import Graph, Node


def allowed(graph: Graph, names: tuple[str, ...]) -> Callable[[Node], bool]:
    """Select the operators that may leave PyTorch under the chosen fusion recipes."""
    behind: set[str] = set()
    for node in graph.nodes:
        if node.op.startswith("aten.") and node.op.split(".")[1] in aten.LIBRARY:
            behind.add(node.name)
        elif any(isinstance(a, dict) and a.get("ref") in behind for a in node.args):
            behind.add(node.name)

    def allow(node: Node) -> bool:
        operator = node.op.split(".")[1] if node.op.startswith("aten.") else node.op
        if is_view(node):
            return True
        if operator in aten.REDUCING:
            return "fuse_rowwise" in names
        return (
            "fuse_pointwise" in names
            or "fuse_rowwise" in names
            or ("fuse_epilogue" in names and node.name in behind)
        )

    return allow
