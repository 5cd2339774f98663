"""Small edits on a captured graph that several recipes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import draws, is_step, rename, shared, walk_refs
from dvk.composer.ir.graph_edits import packet, reads, rebuilt, ref, users
from dvk.records import Graph, Node


def drops_nothing(node: Node) -> bool:
    """A dropout in eval mode, or with probability 0."""
    return len(node.args) > 2 and (not node.args[2] or node.args[1] == 0)


def is_foldable(
    first: Node, held: Iterable[Node], readers: list[Node], kept: set[str], only_exact: bool
) -> bool:
    """A layer can be merged with its one reader: its weights are the module's, and eager does not store a value that may overflow.

    Args:
        held: the weights of both.
        kept: operators that must stay, with the reader's name if it must.
        only_exact: accept all types but float16, in which a stored value beyond 65,504 is infinite; else accept float16 alone.
    """
    return (
        len(readers) == 1
        and (first.dtype == "float16") is not only_exact
        and all(n.op in ("param", "buffer") and n.shape is not None for n in held)
        and not kept & {first.name, readers[0].name}
    )


def sees_layout(graph: Graph) -> bool:
    """Some operator depends on memory order, as random draws do: another layout would give it other values."""
    return any(packet(node) == "as_strided" or draws(node) or is_step(node) for node in graph.nodes)


def is_output(readers: Iterable[Node]) -> bool:
    """One of the readers is the return statement."""
    return any(r.op == "return" for r in readers)


def returned_memory(graph: Graph) -> set[str]:
    """Values whose memory may be returned: the outputs, and the bases of their views."""
    producers = {node.name: node for node in graph.nodes}
    result: set[str] = set()
    pending: list[str] = []
    walk_refs(graph.outputs, pending.append)
    while pending:
        name = pending.pop()
        if name not in result:
            result.add(name)
            pending += shared(producers[name])
    return result


def split_outputs(
    graph: Graph, apart: Callable[[Node], tuple[list[Any], list[Node]] | None]
) -> Graph | None:
    """The graph with some nodes decomposed, or None if there are none.

    Args:
        apart: returns references to a node's results, and the nodes that compute them; None for a node that stays.
    """
    results: dict[str, list[Any]] = {}
    replacement: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "getitem":
            if (found := results.get(ref(node.args[0]) or "")) is not None:
                replacement[node.name] = [
                    node.model_copy(
                        update={"op": "aten.alias.default", "args": (found[node.args[1]],)}
                    )
                ]
        elif (parts := apart(node)) is not None:
            results[node.name], replacement[node.name] = parts
    return rebuilt(graph, replacement, {}) if replacement else None


def outputs_as_before(graph: Graph, original: Graph, moved: set[str]) -> Graph:
    """Restore the original strides of returned values wherever the new layout may have reached them."""
    before = {n.name: n for n in original.nodes}
    laid = {n.name: n.strides for n in graph.nodes}
    for node in graph.nodes:
        if moved.intersection(reads(node)):
            moved.add(node.name)
    made: dict[str, Node] = {}

    def lay(name: str) -> None:
        shape, strides = before[name].shape, before[name].strides
        if name in moved and shape is not None:
            # A kernel lays out what is known to lie otherwise; elsewhere PyTorch looks when it runs.
            known = strides == contiguous_strides(shape) and laid[name] not in (None, strides)
            made[name] = before[name].model_copy(
                update={
                    "name": f"{name}_o",
                    "op": "aten.contiguous.default" if known else "restrided",
                    "args": ({"ref": name},),
                    "kwargs": {},
                }
            )

    walk_refs(graph.outputs, lay)
    return graph.model_copy(
        update={
            "nodes": (*graph.nodes, *made.values()),
            "outputs": rename(graph.outputs, {name: node.name for name, node in made.items()}),
        }
    )


__all__ = [
    "drops_nothing",
    "is_foldable",
    "is_output",
    "outputs_as_before",
    "packet",
    "reads",
    "rebuilt",
    "ref",
    "returned_memory",
    "sees_layout",
    "split_outputs",
    "users",
]
