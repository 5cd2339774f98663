"""A reduction over few elements of a computed value, written as additions of slices where its operand has no other reader.

The coordinates of a point, the channels of an image: distances and gradients are summed over two to eight of them, and what is computed
from these sums is summed once more, over other dimensions. Two reductions over different dimensions are two kernels, with the value between
them in memory, often many times larger than the inputs. As additions the first one is part of the second's kernel. Where nothing follows,
slices across memory are read in whole lines, and no lanes of a row of three or five elements stay idle.
"""

from __future__ import annotations

import math
from typing import Any

from dvk import aten
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import is_view
from dvk.composer.ir.symint import arguments
from dvk.composer.rewrites.edit import packet, reads, rebuilt, ref, users
from dvk.records import Graph, Node

MOST = 8
"""Elements of a reduction."""
COMBINED = {
    "sum": "aten.add.Tensor",
    "mean": "aten.add.Tensor",
    "prod": "aten.mul.Tensor",
    "amax": "aten.maximum.default",
    "amin": "aten.minimum.default",
}
ELEMENTWISE = aten.of(*aten.POINTWISE)
WIDE = ("float32", "float64")
"""Types whose partial sums lose nothing; those of 16 bits would be rounded, or infinite."""
STEPS = 24
"""Operators between the two reductions."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph with such reductions as operators on slices, or None if there are none."""
    readers = users(graph)
    producers = {node.name: node for node in graph.nodes}
    replacement = {}
    for node in graph.nodes:
        made = _apart(node, producers, readers)
        if made is not None:
            replacement[node.name] = made
    return rebuilt(graph, replacement, {}) if replacement else None


def _apart(
    node: Node, producers: dict[str, Node], readers: dict[str, list[Node]]
) -> list[Node] | None:
    name = packet(node)
    operand = producers.get(ref(node.args[0]) or "") if node.args else None
    if name not in COMBINED or operand is None or operand.shape is None or node.dtype not in WIDE:
        return None
    dim = _dim(node, len(operand.shape))
    if (
        dim is None
        or arguments([operand.shape[dim]])
        or not 2 <= operand.shape[dim] <= MOST
        or operand.dtype != node.dtype
        or packet(operand) not in ELEMENTWISE
        or len(readers[operand.name]) != 1
        or _reduces(operand, producers)
        or not _stands_alone(node, readers, dim < len(operand.shape) - 1)
    ):
        return None
    return _slices(node, operand, dim)


def _dim(node: Node, rank: int) -> int | None:
    """The only dimension that is reduced."""
    if len(node.args) < 2 or node.kwargs.get("dtype") is not None:
        return None
    dims: Any = node.args[1]
    dims = [dims] if isinstance(dims, int) else dims
    return dims[0] % rank if isinstance(dims, (list, tuple)) and len(dims) == 1 else None


def _reduces(node: Node, producers: dict[str, Node]) -> bool:
    """The value is computed from reductions, whose kernel it shares."""
    pending, seen = [node], set[str]()
    while pending and len(seen) <= STEPS:
        one = pending.pop()
        if packet(one) in aten.REDUCING:
            return True
        if one.name not in seen and (packet(one) in ELEMENTWISE or is_view(one)):
            pending += [producers[name] for name in reads(one)]
        seen.add(one.name)
    return bool(pending)


def _stands_alone(node: Node, readers: dict[str, list[Node]], across: bool) -> bool:
    """Elementwise operators lead from the result to reductions alone, or `across` memory to results of its size.

    A reader of another size would read what is reduced, too, as a norm does: in one row's kernel it is read once.
    """
    size = math.prod(node.shape or ())
    pending, seen = [node], set[str]()
    reduced = False
    while pending:
        for reader in readers[pending.pop().name]:
            if reader.name in seen:
                continue
            seen.add(reader.name)
            if reader.op == "return":
                reduced |= across
                continue
            if not reader.op.startswith("aten.") or len(seen) > STEPS:
                return False
            if packet(reader) in aten.REDUCING and math.prod(reader.shape or ()) < size:
                reduced = True
            elif math.prod(reader.shape or ()) == size and packet(reader) in ELEMENTWISE:
                pending.append(reader)
            else:
                return False
    return reduced


def _slices(node: Node, operand: Node, dim: int) -> list[Node]:
    """The operators that compute the node from slices of its operand."""
    shape = node.shape or ()
    assert operand.shape is not None
    keep = len(shape) == len(operand.shape)
    whole, kind = contiguous_strides(shape), {"dtype": node.dtype, "shape": shape}
    made: list[Node] = []

    def emit(op: str, *args: Any, strides: Any = whole, last: bool = False) -> dict[str, str]:
        name = node.name if last else f"{node.name}_u{len(made)}"
        made.append(
            node.model_copy(
                update={"name": name, "op": op, "args": args, "kwargs": {}, "strides": strides}
                | kind
            )
        )
        return {"ref": name}

    op = packet(node)
    given = {"ref": operand.name}
    parts = []
    for n in range(operand.shape[dim]):
        if keep:
            parts.append(emit("aten.slice.Tensor", given, dim, n, n + 1, strides=None))
        else:
            parts.append(emit("aten.select.int", given, dim, n, strides=None))
    total = parts[0]
    for n, part in enumerate(parts[1:], 2):
        last = n == len(parts) and op != "mean"
        total = emit(COMBINED[op], total, part, strides=node.strides if last else whole, last=last)
    if op == "mean":
        emit("aten.div.Tensor", total, operand.shape[dim], strides=node.strides, last=True)
    return made


__all__ = ["rewrite"]
