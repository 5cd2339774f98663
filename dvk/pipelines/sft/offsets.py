"""Listings whose indices begin at an offset, so that no index is new in a longer graph.

A model that has copied `v3` a thousand times and `v31` never fails at `v31`. Inputs, weights and values are renumbered in the
graph itself, before any text is written: prompt and text agree by construction, and such texts are executed like
all others. Questions at inference begin at 0, as half of the examples do.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from dvk.composer import CapturedGraph

LETTERS = "xpv"
"""Inputs, weights, values."""
HIGHEST = 47
"""Largest index that is drawn: half as much again as the longest of the generator's listings needs."""

Offsets = Mapping[str, int]
"""Letter → offset of its indices."""


def draw_offsets(captured: CapturedGraph, rng: random.Random, share: float) -> dict[str, int]:
    """Offsets for a graph, for a share of the draws; empty for the others."""
    if rng.random() >= share:
        return {}
    last = {
        letter: max(
            (
                int(n.name[1:])
                for n in captured.graph.nodes
                if _numbered(n.name) and n.name[0] == letter
            ),
            default=HIGHEST,
        )
        for letter in LETTERS
    }
    return {
        letter: rng.randint(0, HIGHEST - most) for letter, most in last.items() if most < HIGHEST
    }


def shift_indices(captured: CapturedGraph, offsets: Offsets) -> CapturedGraph:
    """The graph with its indices moved; itself if there is nothing to move."""
    if not offsets:
        return captured
    graph = captured.graph
    names = {
        n.name: f"{n.name[0]}{int(n.name[1:]) + offsets.get(n.name[0], 0)}"
        for n in graph.nodes
        if _numbered(n.name)
    }
    nodes = tuple(
        n.model_copy(
            update={
                "name": names.get(n.name, n.name),
                "args": tuple(_moved(a, names) for a in n.args),
                "kwargs": _moved(n.kwargs, names),
            }
        )
        for n in graph.nodes
    )
    moved = graph.model_copy(update={"nodes": nodes, "outputs": _moved(graph.outputs, names)})
    return captured.model_copy(update={"graph": moved})


def _numbered(name: str) -> bool:
    return name[:1] in LETTERS and name[1:].isdigit()


def _moved(value: Any, names: Mapping[str, str]) -> Any:
    """An operand, or a tree of them, with its references renamed."""
    if isinstance(value, dict):
        if set(value) == {"ref"}:
            return {"ref": names.get(value["ref"], value["ref"])}
        return {key: _moved(inner, names) for key, inner in value.items()}
    return (
        type(value)(_moved(v, names) for v in value) if isinstance(value, (list, tuple)) else value
    )
