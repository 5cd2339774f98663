"""Recognise hand-written attention: from the matmul with v back over softmax, masks and scales to the matmul of q and k.

`attention` decides when it applies, and writes the call.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dvk import aten
from dvk.composer.ir.nodes import FLOATS
from dvk.composer.lowering.pointwise import LARGEST
from dvk.composer.rewrites.edit import drops_nothing, packet, ref
from dvk.composer.rewrites.masks import Mask, number
from dvk.records import Node

RESHAPES = aten.of("reshape")
LEADS = 2
"""Leading dimensions that fused kernels take: batch and heads. If there are more, all but the first are heads."""


@dataclass(frozen=True)
class PermutedValue:
    """A value with permuted dimensions."""

    name: str
    order: tuple[int, ...]


@dataclass(frozen=True)
class MatchedMatmul:
    """Σ_c left[…, i, c]·right[…, j, c] for all […, i, j]; `out` permutes those dimensions to the order of the node's result."""

    left: PermutedValue
    right: PermutedValue
    out: tuple[int, ...]

    def turned(self) -> MatchedMatmul:
        """The same with i and j, left and right exchanged."""
        *lead, i, j = range(len(self.out))
        other = {**{d: d for d in lead}, i: j, j: i}
        return MatchedMatmul(self.right, self.left, tuple(other[d] for d in self.out))

    @property
    def is_plain(self) -> bool:
        """The result's dimensions are […, i, j]."""
        return self.out == tuple(range(len(self.out)))


@dataclass
class Match:
    """One attention, from the matmul with v back to that of q and k."""

    last: Node
    values: PermutedValue
    """v as […, j, d]."""
    out: tuple[int, ...]
    lead: tuple[int, ...]
    """Leading dimensions of the weights that multiply v."""
    queries: PermutedValue = field(init=False)
    keys: PermutedValue = field(init=False)
    scale: float = 1.0
    factors: list[tuple[str, Node, tuple[int, ...]]] = field(default_factory=list)
    """`mul` or `div`, by a tensor that is constant over the scores of a head, and the leading dimensions of the scores there."""
    score_lead: tuple[int, ...] = ()
    """Leading dimensions of q·kᵀ."""
    mask_lead: tuple[int, ...] | None = None
    masks: list[Mask] = field(default_factory=list)
    """Masks, in the order in which they are applied."""
    inner: list[Node] = field(default_factory=list)
    """Nodes to replace in addition to the last matmul."""

    @property
    def heads(self) -> tuple[int, ...]:
        """All leading dimensions of the scores, at the mask."""
        return self.lead if self.mask_lead is None else self.mask_lead


def matched(
    last: Node, nodes: Mapping[str, Node], readers: Mapping[str, list[Node]], kept: Iterable[str]
) -> Match | None:
    """Match the attention that ends with a matmul; None if there is none, or if the library would compute it differently."""
    product = product_of(last, nodes) if packet(last) != "baddbmm" else None
    for turned in (product, product.turned()) if product is not None else ():
        if turned.left.order == tuple(range(len(turned.left.order))):
            *lead, columns, summed = turned.right.order
            weights = nodes[turned.left.name]
            match = Match(
                last,
                PermutedValue(turned.right.name, (*lead, summed, columns)),
                turned.out,
                tuple((weights.shape or ())[:-2]),
            )
            touched = kept if _to_scores(match, weights, nodes, readers) else None
            names = [n.name for n in (*match.inner, last, *(f for _, f, _ in match.factors))] + [
                m.name for m in match.masks
            ]
            names.append(match.values.name)
            if (
                touched is not None
                and not {*names, match.queries.name, match.keys.name}.intersection(touched)
                and _agree(match, nodes)
            ):
                return match
    return None


def _to_scores(
    match: Match, node: Node, nodes: Mapping[str, Node], readers: Mapping[str, list[Node]]
) -> bool:
    """Walk from the weights back to the matmul of q and k; False at an operator that the library does not have."""
    dtype, normalised = match.last.dtype, False
    later, room = 1.0, math.inf
    while True:
        if len(readers[node.name]) != 1 or node.shape is None or len(node.shape) < 2:
            return False
        name, source = packet(node), nodes.get(ref(node.args[0]) or "") if node.args else None
        product = product_of(node, nodes) if normalised else None
        if product is not None:
            if name == "baddbmm":
                if not _adds(match, node, later, nodes):
                    return False
                later *= number(node.kwargs.get("alpha", 1), nodes) or 0.0
            return _queries(
                match,
                product if product.is_plain else product.turned(),
                node,
                later,
                nodes,
                readers,
            )
        if source is None and name != "where":
            return False
        match.inner.append(node)
        if normalised or name in ("softmax", "_softmax"):
            room = min(room, LARGEST.get(node.dtype or "", 0.0))
        if name in ("softmax", "_softmax"):
            if normalised or node.args[1] not in (-1, len(node.shape) - 1):
                return False
            normalised = True
        elif normalised and name in ("mul", "div") and len(node.args) == 2 and not node.kwargs:
            source, by = _scaled(node, nodes)
            if source is None or source.shape != node.shape or by is None:
                return False
            factor = _factor(match, node, by)
            if factor is None:
                return False
            later *= factor
            room /= max(factor, 1.0)
        elif normalised and name in ("add", "masked_fill", "where"):
            mask = _mask(node, nodes, later, room)
            if mask is None or match.factors or match.mask_lead not in (None, node.shape[:-2]):
                return False
            source, match.mask_lead = nodes[mask[0]], node.shape[:-2]
            if source.shape != node.shape:
                return False
            match.masks.insert(0, mask[1])
        elif not _passes(node, source):
            return False
        if node.dtype not in (dtype, "float32" if dtype in ("float16", "bfloat16") else dtype):
            return False
        assert source is not None
        node = source


def _factor(match: Match, node: Node, by: Node | float) -> float | None:
    """The number that scales the scores; 1 for a tensor, which the match keeps; None if the library cannot scale so."""
    if not isinstance(by, Node):
        return (by if packet(node) == "mul" else 1 / by) if 0 < by < math.inf else None
    if (
        by.dtype not in FLOATS
        or any(size != 1 for size in shape_of(by)[-2:])
        or (by.shape != () and by.dtype != match.last.dtype)
    ):
        return None
    match.factors.append((packet(node), by, shape_of(node)[:-2]))
    return 1.0


def _passes(node: Node, source: Node | None) -> bool:
    """The operator changes values at most in type, and keeps rows of scores as rows."""
    name = packet(node)
    if source is None or source.shape is None or source.shape[-2:] != node.shape[-2:]:  # type: ignore[index]
        return False
    if name == "dropout":
        return drops_nothing(node)
    return name in (
        "to",
        "_to_copy",
        "type_as",
        "float",
        "contiguous",
        "clone",
        "detach",
        "alias",
        "expand",
        *RESHAPES,
    ) and math.prod(source.shape) == math.prod(node.shape or ())


def _scaled(node: Node, nodes: Mapping[str, Node]) -> tuple[Node | None, float | Node | None]:
    """The scaled operand, and the number or tensor that scales it."""
    scores, by = (nodes.get(ref(a) or "") for a in node.args)
    if packet(node) == "mul" and by is not None and by.shape == node.shape:
        return by, scores
    value = number(node.args[1], nodes)
    return scores, by if value is None else value


def _adds(match: Match, node: Node, later: float, nodes: Mapping[str, Node]) -> bool:
    """Take the mask to which a `baddbmm` adds its product; a factor of 0 removes it, whatever it holds. False if it is more than a mask."""
    beta, bias, lead = (
        number(node.kwargs.get("beta", 1), nodes),
        nodes[ref(node.args[0]) or ""],
        shape_of(node)[:-2],
    )
    if beta == 0:
        return True
    if (
        beta != 1
        or later != 1
        or match.factors
        or bias.dtype != node.dtype
        or match.mask_lead not in (None, lead)
    ):
        return False
    match.mask_lead = lead
    match.masks.insert(0, Mask(bias.name, None))
    return True


def _mask(
    node: Node, nodes: Mapping[str, Node], later: float, room: float
) -> tuple[str, Mask] | None:
    """The masked scores, and the mask; `later` is their later factor, and values beyond `room` overflow."""
    args, name = node.args, packet(node)
    if name == "add":
        first, second = (ref(a) for a in args[:2])
        if first is None or second is None or node.kwargs or later != 1:
            return None
        if nodes[first].shape != node.shape:
            first, second = second, first
        return (first, Mask(second, None)) if nodes[second].dtype == nodes[first].dtype else None
    if name == "where":
        chosen, yes, no = (*args, None, None)[:3]
        masked = number(yes, nodes) is not None
        fill, scores = (number(yes, nodes), ref(no)) if masked else (number(no, nodes), ref(yes))
    else:
        chosen, scores, fill, masked = args[1], ref(args[0]), number(args[2], nodes), True
    picked = nodes.get(ref(chosen) or "")
    if (
        picked is None
        or picked.dtype != "bool"
        or scores is None
        or fill is None
        or room < abs(fill) < math.inf
    ):
        return None
    mask = Mask(picked.name, fill * later, masked)
    return (scores, mask) if mask.hides_masked(node.dtype or "") else None


def _queries(
    match: Match,
    product: MatchedMatmul,
    node: Node,
    scale: float,
    nodes: Mapping[str, Node],
    readers: Mapping[str, list[Node]],
) -> bool:
    """Take q and k from their matmul; a number that multiplies only one of them belongs to the scale."""
    if not product.is_plain or node.dtype != match.last.dtype:
        return False
    match.inner.append(node)
    sides = []
    for side in (product.left, product.right):
        made = nodes[side.name]
        source = nodes.get(ref(made.args[0]) or "") if made.args else None
        scaled = (
            packet(made) in ("mul", "div")
            and len(made.args) == 2
            and type(made.args[1]) in (int, float)
            and not made.kwargs
        )
        if (
            scaled
            and source is not None
            and (source.shape, source.dtype) == (made.shape, made.dtype)
            and len(readers[made.name]) == 1
            and 0 < made.args[1] < math.inf
        ):
            scale *= made.args[1] if packet(made) == "mul" else 1 / made.args[1]
            match.inner.append(made)
            side = PermutedValue(source.name, side.order)
        sides.append(side)
    match.queries, match.keys = sides
    match.scale, match.score_lead = scale, (node.shape or ())[:-2]
    return 0 < scale < math.inf


def _agree(match: Match, nodes: Mapping[str, Node]) -> bool:
    """All types are equal, and batch and heads have a form that a fused kernel takes."""
    operands = [nodes[o.name] for o in (match.queries, match.keys, match.values)]
    if match.last.dtype not in FLOATS or any(
        n.dtype != match.last.dtype or n.shape is None or 0 in n.shape for n in operands
    ):
        return False
    if (
        any(nodes[m.name].dtype != match.last.dtype for m in match.masks if m.fill is None)
        or len(match.out) != len(match.lead) + 2
    ):
        return False
    if len(match.masks) > 1 and any(
        m.fill is not None and m.fill != -math.inf for m in match.masks
    ):
        return False
    (rows, width), (columns, same), (summed, last) = (
        (shape_of(n)[o.order[-2]], shape_of(n)[o.order[-1]])
        for n, o in zip(operands, (match.queries, match.keys, match.values), strict=True)
    )
    if (
        width != same
        or columns != summed
        or math.prod(shape_of(match.last)) != math.prod(match.lead) * rows * last
    ):
        return False  # one of them broadcasts over more than batch and heads
    if not math.prod(match.heads) == math.prod(match.score_lead) == math.prod(match.lead):
        return False
    for _, by, lead in match.factors:
        if len(shape_of(by)) > LEADS + 2 or (
            math.prod(shape_of(by)) != 1 and (lead != match.heads or len(lead) > LEADS)
        ):
            return False
    ones = (1,) * len(match.heads)
    masks = [shape_of(nodes[m.name])[:-2] for m in match.masks]
    merged = [(*ones[len(mask) :], *mask)[1:] for mask in masks]
    return len(match.heads) <= LEADS or all(mask in (match.heads[1:], ones[1:]) for mask in merged)


def product_of(node: Node, nodes: Mapping[str, Node]) -> MatchedMatmul | None:
    """The product of a `matmul`, `bmm` or two-operand `einsum`, or the one that `baddbmm` adds to; None for any other operator."""
    name = packet(node)
    if name == "baddbmm" or (
        name in ("matmul", "bmm", "mm") and len(node.args) == 2 and not node.kwargs
    ):
        a, b = (nodes[ref(v) or ""] for v in node.args[-2:])
        ranks = len(a.shape or ()), len(b.shape or ())
        if min(ranks) < 2:
            return None
        *lead, k, n = range(ranks[1])
        return MatchedMatmul(
            PermutedValue(a.name, tuple(range(ranks[0]))),
            PermutedValue(b.name, (*lead, n, k)),
            tuple(range(max(ranks))),
        )
    if (
        name != "einsum"
        or len(node.args) != 2
        or node.kwargs
        or len(node.args[1]) != 2
        or "->" not in node.args[0]
        or "." in node.args[0]
    ):
        return None
    inputs, output = node.args[0].replace(" ", "").split("->")
    left, right = inputs.split(",")
    many = [c for c in output if c in left and c in right]
    rows, columns = (
        [c for c in word if c not in other] for word, other in ((left, right), (right, left))
    )
    summed = [c for c in left if c in right and c not in output]
    if any(len(part) != 1 for part in (rows, columns, summed)) or sorted(output) != sorted(
        (*many, *rows, *columns)
    ):
        return None
    if any(len(set(word)) != len(word) for word in (left, right, output)):
        return None
    names = [ref(v) or "" for v in node.args[1]]
    sides = [
        PermutedValue(n, tuple(word.index(c) for c in (*many, *own, *summed)))
        for n, word, own in zip(names, (left, right), (rows, columns), strict=True)
    ]
    return MatchedMatmul(
        sides[0], sides[1], tuple([*many, *rows, *columns].index(c) for c in output)
    )


def shape_of(node: Node) -> tuple[int, ...]:
    return tuple(node.shape or ())
