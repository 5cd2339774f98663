"""Lowering of a whole graph: each operator by its rule, or as a call that stays with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dvk.composer.ir.effects import draws, is_step, pinned, refs, unknown, walk_refs, written
from dvk.composer.ir.nodes import IRNode, View
from dvk.composer.lowering import common_loops
from dvk.composer.lowering.common_loops import common_shapes
from dvk.composer.lowering.copies import stored_as_read
from dvk.composer.lowering.dispatch import (
    BLOCK_PRODUCTS,
    CODEGEN_RULES,
    NARROW,
    NARROW_PRODUCTS,
    RULES,
    Lowering,
)
from dvk.records import Graph, Node


@dataclass(frozen=True)
class PrimGraph:
    """The lowered graph: primitives in execution order and the view each SSA name stands for."""

    prims: tuple[IRNode, ...]
    values: dict[str, Any]
    outputs: Any
    origins: dict[IRNode, str]
    """SSA name of the operator that each primitive was made for; slices add an index."""
    pieces: dict[View, IRNode]
    """A slice of a computed value → the primitive that computes the slice alone."""


def lower(
    graph: Graph,
    allow: Callable[[Node], bool] = lambda node: True,
    may_own: Callable[[str], bool] = lambda recipe: True,
    tf32: bool = False,
    whole: Collection[str] = (),
    device: str = "cpu",
) -> PrimGraph:
    """Lower every operator; `allow` names those whose ordinary rule applies, `may_own` the recipes of the others.

    No slice is computed of the nodes in `whole`.
    """
    state = _begun(graph, may_own, tf32, device)
    kept, read = pinned(graph) | unknown(graph), set[str]()
    origins: dict[IRNode, str] = {}
    laid: dict[IRNode, tuple[int, ...]] = {}
    walk_refs([[list(node.args), node.kwargs] for node in graph.nodes], read.add)
    for state.position, node in enumerate(graph.nodes):
        before = len(state.order)
        if node.op in ("input", "param", "buffer", "const"):
            state.values[node.name] = state.number(node) or state.source(node)
            origins.update(dict.fromkeys(state.order[before:], node.name))
            continue
        packet = node.op.split(".")[1] if node.op.startswith("aten.") else node.op
        lowered = None
        if node.name not in kept:
            lowered = state.try_rule(RULES.get(packet) if allow(node) else None, node)
            for recipe, owned in CODEGEN_RULES.get(packet, {}).items():
                if lowered is None and may_own(recipe):
                    lowered = state.try_rule(owned, node)
        if lowered is not None and node.name in read:
            lowered = (
                tuple(map(state.within, lowered))
                if isinstance(lowered, tuple)
                else state.within(lowered)
            )
        if lowered is None:
            _store_as_read(state, refs([list(node.args), node.kwargs]), laid, origins)
            before = len(state.order)
            lowered = state.extern(node)
        elif isinstance(lowered, View) and not lowered.steps and node.strides is not None:
            laid.setdefault(lowered.base, node.strides)
        state.values[node.name] = lowered
        origins.update(dict.fromkeys(state.order[before:], node.name))
        if node.name in whole:
            state.kept_whole.update(state.order[before:])
    _store_as_read(state, refs(graph.outputs), laid, origins)
    pieces = {view: piece.base for view, piece in state.pieces.items()}
    numbers: dict[Any, int] = {}
    for view, piece in pieces.items():
        origins[piece] = f"{origins[view.base]}[{numbers.setdefault(view.steps, len(numbers))}]"
    return PrimGraph(tuple(state.order), state.values, graph.outputs, origins, pieces)


def _begun(graph: Graph, may_own: Callable[[str], bool], tf32: bool, device: str) -> Lowering:
    """What rules see before the first operator."""
    named = {
        (node.args[0]["ref"], node.args[1]): node for node in graph.nodes if node.op == "getitem"
    }
    return Lowering(
        nodes={node.name: node for node in graph.nodes},
        named=named,
        read_parts=_read_parts(graph),
        device=device,
        tf32=tf32,
        narrow=any(map(may_own, (NARROW, NARROW_PRODUCTS, BLOCK_PRODUCTS))),
        narrow_products=may_own(NARROW_PRODUCTS),
        block_products=may_own(BLOCK_PRODUCTS),
        last_read=_last_read(graph),
        has_effects=any(is_step(n) or written(n) or draws(n) for n in graph.nodes),
        completed=common_shapes(graph) if may_own(common_loops.RECIPE) else {},
    )


def _store_as_read(
    state: Lowering,
    names: Iterable[str],
    laid: Mapping[IRNode, tuple[int, ...]],
    origins: dict[IRNode, str],
) -> None:
    """Have the values that PyTorch reads in the order in which a reshape would copy them."""
    for name in names:
        value, before = state.values[name], len(state.order)
        if isinstance(value, View):
            state.values[name] = stored_as_read(state, value, laid)
            origins.update(dict.fromkeys(state.order[before:], origins[value.base]))


READERS = ("embedding", "index_select", "gather", "take_along_dim", "index")
"""Operators that read a few elements, which can be computed where they are read."""


def _last_read(graph: Graph) -> dict[str, int]:
    """Position of each name's last reader, those of a few elements apart; beyond all nodes for outputs."""
    found: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        if not (node.op.startswith("aten.") and node.op.split(".")[1] in READERS):
            found.update(dict.fromkeys(refs([list(node.args), node.kwargs]), position))
    return found | dict.fromkeys(refs(graph.outputs), len(graph.nodes))


def _read_parts(graph: Graph) -> dict[str, set[int]]:
    parts: dict[str, set[int]] = {}
    read: set[str] = set()
    walk_refs([graph.outputs, *([list(n.args), n.kwargs] for n in graph.nodes)], read.add)
    for node in graph.nodes:
        if node.op == "getitem" and node.name in read:
            parts.setdefault(node.args[0]["ref"], set()).add(node.args[1])
    return parts
