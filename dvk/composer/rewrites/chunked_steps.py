"""Loops over time steps that are linear attention, computed in chunks of steps (`ir.chunked_form`)."""

from __future__ import annotations

from dataclasses import replace

from dvk.composer.ir.chunked_form import chunked_form
from dvk.composer.ir.graph_edits import rebuilt
from dvk.composer.ir.time_scan import TIME_SCAN, TimeScan
from dvk.records import Graph, Node

STEPS = 64
"""Steps of a chunk."""
LEAST = 2
"""Chunks from which it pays."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph with chunked loops, or None if there are none."""
    replacement: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op == TIME_SCAN and not node.kwargs.get("chunked"):
            scan = TimeScan.of(node.kwargs)
            if scan.steps >= LEAST * STEPS and chunked_form(scan) is not None:
                made = replace(scan, chunked=STEPS)
                replacement[node.name] = [node.model_copy(update={"kwargs": made.given()})]
    return rebuilt(graph, replacement, {}) if replacement else None


__all__ = ["rewrite"]
