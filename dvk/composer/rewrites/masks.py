"""Combine attention masks into one additive mask, or into the statement that the mask is causal.

The steps that hand-written code applies to the scores are applied to an additive mask instead, in the same order, from 0: an additive mask
is added, and masked scores become −∞. Fully masked rows need care. Under −∞ eager code gives NaN and the library 0, so such rows of the
mask become NaN. Under a finite number (−1e9) eager code gives the mean of v: such rows are not masked at all, and their queries are 0, so
that all weights are equal. In other rows a score masked with a finite number has weight 0 if all unmasked scores are larger.
`Mask.hides_masked` requires numbers so low that scores of their size have no significant digits left.

A mask computed from weights, buffers and constants alone is computed once, and again whenever one of them is written. Its current values
decide whether it is the causal one, which kernels apply without reading it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dvk.composer.ir.effects import draws, pinned
from dvk.composer.ir.nodes import broadcast_shapes
from dvk.composer.ir.text import spelled
from dvk.composer.rewrites.edit import packet, reads, ref
from dvk.records import Graph, Node

DIGITS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
"""Mantissa bits."""
LOWEST = {"float": "-inf"}
COARSE = 8.0
"""Distance of adjacent numbers from which their weights differ by a factor of e⁸: rounding decides."""


@dataclass(frozen=True)
class Mask:
    """One step that masks scores."""

    name: str
    """An additive mask, or a predicate."""
    fill: float | None
    """New value of masked scores; None for an additive mask."""
    masked: bool = True
    """The value of the predicate where scores are masked."""

    def hides_masked(self, dtype: str) -> bool:
        """Weights of masked scores are 0 next to any other, up to rounding, for scores of a dtype."""
        if self.fill is None or not self.fill < 0 or dtype not in DIGITS:
            return False
        return (
            math.isinf(self.fill)
            or math.ldexp(1.0, math.frexp(self.fill)[1] - 1 - DIGITS[dtype]) >= COARSE
        )


def number(value: Any, nodes: Mapping[str, Node]) -> float | None:
    """An encoded operand that is one number, or a constant or tensor with one element; else None."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, dict) and set(value) == {"float"}:
        return float(value["float"])
    node = nodes.get(ref(value) or "")
    while node is not None and packet(node) in (
        "lift_fresh_copy",
        "lift_fresh",
        "detach_",
        "detach",
    ):
        node = nodes.get(ref(node.args[0]) or "")
    if node is None or math.prod(node.shape or ()) != 1:
        return None
    data: Any = (
        node.kwargs.get("data")
        if node.op == "const"
        else node.args[-1]
        if packet(node) in ("full", "scalar_tensor")
        else None
    )
    while isinstance(data, list) and len(data) == 1:
        data = data[0]
    return number(data, {}) if data is not None else None


class Nodes:
    """New operators that replace one, named after it, of its dtype by default."""

    def __init__(self, place: Node):
        self.place, self.made = place, list[Node]()

    def add(self, op: str, args: Sequence[Any], shape: tuple[int, ...], **given: Any) -> Node:
        """Add an operator; `args` may be nodes. Strides come from the operator that lays the result out, unless `given`."""
        encoded = tuple({"ref": a.name} if isinstance(a, Node) else a for a in args)
        fields = {
            "name": f"{self.place.name}_a{len(self.made)}",
            "dtype": self.place.dtype,
            **given,
        }
        self.made.append(
            Node(
                op=op if op in ("derived", "checked") else f"aten.{op}",
                args=encoded,
                shape=shape,
                **fields,
            )
        )
        return self.made[-1]


def biased(
    graph: Graph, new: Nodes, q: Node, masks: Sequence[Mask], scores: tuple[int, ...], rank: int
) -> tuple[Node, Node | None, Node | bool]:
    """The queries, the mask and whether it is causal, in the library's form.

    Args:
        new: receives the operators that compute them.
        q: [*scores[:2], scores[2], width].
        scores: their shape: batch, heads, rows, columns.
        rank: number of dimensions at the mask; those between the first and the last two are heads here.
    """
    if not masks:
        return q, None, False
    nodes = {n.name: n for n in graph.nodes}
    steps = [(m, nodes[m.name]) for m in masks]
    causal: Node | bool = False
    held = held_by_module(graph, [m.name for m in masks])
    if held is None:
        bias, empty = _bias(new, steps, scores[-1], rank)
    else:
        sources, operators = held
        once = Nodes(new.place.model_copy(update={"name": f"{new.place.name}_h"}))
        bias, empty = _bias(once, steps, scores[-1], rank)
        made = "".join(f"({n.name} := {spelled(n, str)}), " for n in (*operators, *once.made))

        names = ", ".join(n.name for n in sources)

        def derived(result: str, like: Node) -> Node:
            return new.add(
                "derived",
                sources,
                like.shape or (),
                dtype=like.dtype,
                kwargs={"make": f"lambda {names}: ({made}{result})[-1]"},
            )

        given = bias.name
        if all(m.fill is not None for m in masks) and bias.shape == (1, 1, *scores[-2:]):
            is_causal = (
                f"torch.equal({bias.name}, torch.full_like({bias.name}, float('-inf')).triu(1))"
            )
            causal, given = derived(is_causal, bias), f"None if {is_causal} else {bias.name}"
        bias, empty = (
            derived(given, bias),
            derived(empty.name, empty) if any(_is_finite(m) for m in masks) else empty,
        )
    if any(_is_finite(m) for m in masks):
        q = new.add("masked_fill.Scalar", (q, empty, 0.0), tuple(q.shape or ()))
    return q, bias, causal


def _is_finite(mask: Mask) -> bool:
    return mask.fill is not None and not math.isinf(mask.fill)


def _bias(
    new: Nodes, masks: Sequence[tuple[Mask, Node]], columns: int, rank: int
) -> tuple[Node, Node]:
    """The additive mask [B, H, R, columns], sizes 1 where it broadcasts, and the fully masked rows [B, H, R, 1]."""
    bias: Node | None = None
    for mask, node in masks:
        batch, *heads, rows, width = (
            *(1 for _ in range(max(rank, 4) - len(node.shape or ()))),
            *(node.shape or ()),
        )
        shape: tuple[int, ...] = (batch, math.prod(heads), rows, width)
        if shape != node.shape:
            node = new.add("reshape.default", (node, list(shape)), shape, dtype=node.dtype)
        if bias is not None:
            shape = broadcast_shapes(tuple(bias.shape or ()), shape)
        if mask.fill is None:
            bias = node if bias is None else new.add("add.Tensor", (bias, node), shape)
        elif bias is None:
            plain = new.add(
                "where.Scalar",
                (node, *((LOWEST, 0.0) if mask.masked else (0.0, LOWEST))),
                shape,
                dtype="float32",
            )
            bias = new.add("to.dtype", (plain, {"dtype": new.place.dtype}), shape)
        elif mask.masked:
            bias = new.add("where.ScalarSelf", (node, LOWEST, bias), shape)
        else:
            bias = new.add("where.ScalarOther", (node, bias, LOWEST), shape)
    assert bias is not None
    shape = tuple(bias.shape or ())
    if shape[-1] != columns:
        shape = (*shape[:-1], columns)
        bias = new.add("expand.default", (bias, list(shape)), shape)
    top = new.add("amax.default", (bias, [-1], True), (*shape[:-1], 1))
    empty = new.add("eq.Scalar", (top, LOWEST), (*shape[:-1], 1), dtype="bool")
    instead = 0.0 if any(_is_finite(m) for m, _ in masks) else {"float": "nan"}
    return new.add("masked_fill.Scalar", (bias, empty, instead), shape), empty


def held_by_module(graph: Graph, names: Sequence[str]) -> tuple[list[Node], list[Node]] | None:
    """The sources of values that depend on weights, buffers and constants alone: those, and operators in order; else None."""
    nodes = {n.name: n for n in graph.nodes}
    kept = pinned(graph)
    found: set[str] = set()
    pending = list(names)
    while pending:
        node = nodes[pending.pop()]
        if node.name in found:
            continue
        found.add(node.name)
        held = node.op in ("param", "buffer", "const") and node.target is not None
        if node.name in kept or not (held or (packet(node) and not draws(node))):
            return None
        pending.extend(reads(node))
    wanted = [n for n in graph.nodes if n.name in found]
    return [n for n in wanted if not packet(n)], [n for n in wanted if packet(n)]
