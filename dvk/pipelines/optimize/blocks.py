"""A network by its blocks: eager's time in each, and the winner's kernels for it. Only reads.

Blocks that run the same operators on the same sizes are one row. A kernel that fused across a border is counted in the block with
most of its operators.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dvk.agents import TaskContext
from dvk.composer import CapturedGraph, fuse
from dvk.composer.fusion.groups import FusionGroup
from dvk.composer.ir.layers import layer_of
from dvk.graph_costs import LEAVES, operators
from dvk.harness.profiling.blocks import WHOLE
from dvk.records import Node, Turn

REST = "the rest"
"""Name of the operators that belong to no block."""
ORIGIN = re.compile(r"[a-z]\d+")
"""The captured value that a primitive was made for, whatever suffix a rewrite or a slice adds to its name."""


@dataclass
class _Made:
    """A block of the winner: its kernels, its calls of PyTorch, and the bytes that each moves."""

    kernels: int = 0
    calls: int = 0
    sizes: list[int | None] = field(default_factory=list)


def names(captured: CapturedGraph | None) -> list[str]:
    """The blocks of a network in execution order; empty if there is only one."""
    found = (
        list(
            dict.fromkeys(
                captured.blocks[n.name] for n in _working(captured) if n.name in captured.blocks
            )
        )
        if captured
        else []
    )
    return found if len(found) > 1 else []


def rows(
    subject: TaskContext, winner: Turn | None, times: Mapping[str, float]
) -> list[dict[str, Any]]:
    """A row for each kind of block, those that take most of eager time first.

    `name` (its first block), `count`, `operators`, `ms` and `share` of an eager call (null where `times` is empty), `bytes` that the
    operators move by their shapes; of a winner that the composer wrote `kernels`, `calls` left to PyTorch and the `bytes_after`
    that both move, else null. All figures are sums over the row's blocks.

    Args:
        times: milliseconds by block and of the whole call, see `harness.blocks`.
    """
    captured = subject.captured
    blocks = names(captured)
    if captured is None or not blocks:
        return []
    moved = {
        n.name: o.moved_bytes
        for n, o in zip(_working(captured), operators(captured.graph), strict=True)
    }
    inside: dict[str, list[Node]] = defaultdict(list)
    for node in _working(captured):
        if moved[node.name] != 0:
            inside[captured.blocks.get(node.name, REST)].append(node)
    after = _after(subject, captured, winner, moved)
    alike: dict[Any, list[str]] = defaultdict(list)
    for block in [*blocks, REST]:
        if inside[block]:
            alike[block == REST, tuple((n.op, n.shape, n.dtype) for n in inside[block])].append(
                block
            )
    left = dict(times)
    if times:
        left[REST] = max(0.0, times[WHOLE] - sum(times[block] for block in blocks))
    made = []
    for same in alike.values():
        ms = sum(left[block] for block in same) if times else None
        row = {
            "name": same[0],
            "count": len(same),
            "operators": sum(len(inside[block]) for block in same),
            "ms": ms,
            "share": ms / times[WHOLE] if ms is not None else None,
            "kernels": None,
            "calls": None,
            "bytes": _sum(moved[n.name] for block in same for n in inside[block]),
            "bytes_after": None,
        }
        if after is not None:
            row |= {
                "kernels": sum(after[block].kernels for block in same),
                "calls": sum(after[block].calls for block in same),
                "bytes_after": _sum(size for block in same for size in after[block].sizes),
            }
        made.append(row)
    return sorted(made, key=lambda row: (row["name"] == REST, -(row["ms"] or 0.0)))


def _after(
    subject: TaskContext,
    captured: CapturedGraph,
    winner: Turn | None,
    moved: Mapping[str, int | None],
) -> dict[str, _Made] | None:
    """The outcome of each block; None if the composer did not write the winner."""
    candidate = winner.candidate if winner is not None else None
    if candidate is None or candidate.proposer != "composer":
        return None
    result: dict[str, _Made] = defaultdict(_Made)
    composition = fuse(subject.task, captured, candidate.recipes)
    for step in composition.part.schedule:
        if isinstance(step, FusionGroup):
            block = Counter(
                _block(captured, composition.prims.origins.get(p, "")) for p in step.members
            ).most_common(1)[0][0]
            result[block].kernels += 1
            result[block].sizes.append(composition.kernels[id(step)].num_bytes)
        elif (layer := layer_of(step)) is not None and step.node is not None:
            block = _block(captured, step.node.name)
            result[block].kernels += 1
            result[block].sizes.append(layer.num_bytes)
        elif step.node is not None and moved.get(step.node.name, 0) != 0:
            block = captured.blocks.get(step.node.name, REST)
            result[block].calls += 1
            result[block].sizes.append(moved[step.node.name])
    return result


def _block(captured: CapturedGraph, name: str) -> str:
    """The block of the captured value that a node was made for, by its name."""
    origin = ORIGIN.match(name)
    return captured.blocks.get(origin[0], REST) if origin else REST


def _working(captured: CapturedGraph) -> list[Node]:
    return [node for node in captured.graph.nodes if node.op not in LEAVES]


def _sum(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total
