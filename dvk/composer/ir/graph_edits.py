"""What a node reads and who reads it, and graphs with nodes replaced."""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.effects import rename, walk_refs
from dvk.records import Graph, Node


def reads(node: Node) -> list[str]:
    """Names of the values a node reads, one per occurrence."""
    result: list[str] = []
    walk_refs((list(node.args), node.kwargs), result.append)
    return result


def users(graph: Graph) -> dict[str, list[Node]]:
    """Name → nodes that read it; the graph's outputs count as a reader named `return`."""
    table: dict[str, list[Node]] = {n.name: [] for n in graph.nodes}
    for node in graph.nodes:
        for name in reads(node):
            table[name].append(node)
    closing = Node(name="return", op="return")
    walk_refs(graph.outputs, lambda name: table[name].append(closing))
    return table


def rebuilt(graph: Graph, replacement: dict[str, list[Node]], renamed: dict[str, str]) -> Graph:
    """The graph with nodes replaced (by none, or several) and later references renamed."""
    nodes: list[Node] = []
    for node in graph.nodes:
        for new in replacement.get(node.name, [node]):
            nodes.append(
                new.model_copy(
                    update={
                        "args": tuple(rename(list(new.args), renamed)),
                        "kwargs": rename(new.kwargs, renamed),
                    }
                )
            )
    return graph.model_copy(
        update={"nodes": tuple(nodes), "outputs": rename(graph.outputs, renamed)}
    )


def packet(node: Node) -> str:
    """`relu` for `aten.relu.default`; empty for an operator outside ATen."""
    return node.op.split(".")[1] if node.op.startswith("aten.") else ""


def ref(value: Any) -> str | None:
    """The name a reference stands for."""
    return str(value["ref"]) if isinstance(value, dict) and set(value) == {"ref"} else None
