"""Canonical listing of equivalent spellings: dimensions counted from the front, one part of a split tensor as a slice.

    softmax(x0,-1)                    softmax(x0,2)
    v1 = chunk(x0,2,-1)
    v2 = getitem(v1,1)                v2 = narrow(x0,2,s1,s1)

Only the listing changes; the graph is composed and run as it was captured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dvk import aten
from dvk.composer.lowering.views import parts
from dvk.nanolang.listing.symbolic import packet
from dvk.records import Node

DIMS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "softmax",
            "log_softmax",
            "_softmax",
            "_log_softmax",
            "logsumexp",
            "sum",
            "mean",
            "amax",
            "amin",
            "prod",
            "var",
            "std",
            "any",
            "all",
            "argmax",
            "argmin",
            "max",
            "min",
            "cumsum",
            "cumprod",
            "flip",
            "squeeze",
            "select",
            "slice",
            "narrow",
            "permute",
            "glu",
            "index_select",
            "gather",
            "var_mean",
            "std_mean",
        ),
        (1,),
    ),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims", "movedim"), (1, 2)),
}
"""Operator → positions of the operands that are dimensions of the first."""


def is_split(node: Node) -> bool:
    """It returns slices, each of which is listed by itself."""
    return packet(node) in aten.of("cut")


def canonical(node: Node, nodes: Mapping[str, Node]) -> Node:
    """The listed form of a node.

    Args:
        nodes: all nodes of the graph, by name.
    """
    source = _read(node, nodes)
    if node.op == "getitem" and source is not None and is_split(source):
        return _part(node, source, nodes)
    places = DIMS.get(packet(node), ())
    rank = len(source.shape) if source is not None and source.shape is not None else 0
    if not rank or not places:
        return node
    return node.model_copy(
        update={
            "args": tuple(_front(a, rank) if n in places else a for n, a in enumerate(node.args))
        }
    )


def _part(node: Node, cut: Node, nodes: Mapping[str, Node]) -> Node:
    source, index, name = _read(cut, nodes), node.args[1], packet(cut)
    if source is None or source.shape is None or node.shape is None:
        return node
    at = 1 if name == "unbind" else 2
    dim = _front(
        cut.kwargs.get("dim", cut.args[at] if len(cut.args) > at else 0), len(source.shape)
    )
    if name == "unbind":
        return node.model_copy(
            update={"op": "aten.select.int", "args": (cut.args[0], dim, index % source.shape[dim])}
        )
    sizes = parts(name, source.shape[dim], cut.args[1]) or [source.shape[dim]]
    start = sum(sizes[: index % len(sizes)])
    return node.model_copy(
        update={"op": "aten.narrow.default", "args": (cut.args[0], dim, start, node.shape[dim])}
    )


def _read(node: Node, nodes: Mapping[str, Node]) -> Node | None:
    first = node.args[0] if node.args else None
    return nodes.get(first["ref"]) if isinstance(first, dict) and set(first) == {"ref"} else None


def _front(value: Any, rank: int) -> Any:
    if isinstance(value, (list, tuple)):
        return [_front(v, rank) for v in value]
    return value + rank if type(value) is int and -rank <= value < 0 else value


__all__ = ["is_split", "canonical"]
