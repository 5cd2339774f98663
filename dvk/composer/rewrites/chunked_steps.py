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
WIDEST = 128
"""Largest keys and values. With keys of 256 and values of 512 in bfloat16 the kernel ended with an illegal memory access on an H200
(Triton 3.6), though its offsets stay inside of the tensors; up to 128 its results were right."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph with chunked loops, or None if there are none."""
    replacement: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op == TIME_SCAN and not node.kwargs.get("chunked"):
            scan = TimeScan.of(node.kwargs)
            if scan.steps >= LEAST * STEPS and _is_narrow(scan) and chunked_form(scan) is not None:
                made = replace(scan, chunked=STEPS)
                replacement[node.name] = [node.model_copy(update={"kwargs": made.given()})]
    return rebuilt(graph, replacement, {}) if replacement else None


def _is_narrow(scan: TimeScan) -> bool:
    """Keys and values are not too wide."""
    return all(scan.sizes[axis] <= WIDEST for axis in (scan.inner, scan.lanes) if axis >= 0)


__all__ = ["rewrite"]
