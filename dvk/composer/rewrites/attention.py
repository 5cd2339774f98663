"""Turn hand-written attention into one library call that never stores the scores.

softmax(q·kᵀ·c [masked]) · v, written with matmuls, becomes `scaled_dot_product_attention`: the weights are equal in real arithmetic, so
results differ only in rounding if inputs are finite. Eager code replaces an infinite or NaN score under a mask by the mask, and the library
adds the mask to it. On CPUs the program checks that q, k and v are finite, and runs the original operators otherwise (`finite`); on GPUs,
where the check costs a synchronisation, such masks are left to the recipe `attention_finite`, which is off by default, and so are scores
in float16, which eager code stores: beyond 65504 they are infinite there. In float32 the library's GPU kernels use three TF32 products,
with about the error of float32 products; in fp16 and bf16 they keep scores in float32, where eager code rounds them. The difference is
largest in rows that are fully masked by adding a finite number, of which eager code keeps only rounding errors. The judge's tolerance
decides on validity, and measurement on whether it pays.

It applies if scores and weights have no other reader, dropout is inactive, a number c is positive and every type on the way is that of q, k
and v, or float32 between fp16 or bf16. If c is a tensor, q is multiplied or divided by it: it may have any sign, and is rounded into q
instead of the scores. `masks` handles masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dvk.composer.ir.effects import pinned
from dvk.composer.ir.text import spelled
from dvk.composer.rewrites.attention_match import LEADS, Match, PermutedValue, matched, shape_of
from dvk.composer.rewrites.edit import (
    outputs_as_before,
    packet,
    reads,
    rebuilt,
    ref,
    sees_layout,
    users,
)
from dvk.composer.rewrites.masks import Nodes, biased, held_by_module
from dvk.records import Graph, Node


def rewrite(graph: Graph, device: str) -> Graph | None:
    """The graph with library calls that are exact for every input, or None without such attention."""
    return rewritten(graph, checked=device == "cpu", only_exact=True)


def rewrite_finite(graph: Graph, device: str) -> Graph | None:
    """Rewrite like `rewrite`, including calls that are exact only for finite scores."""
    return rewritten(graph, checked=device == "cpu", only_exact=False)


def rewritten(graph: Graph, checked: bool, only_exact: bool) -> Graph | None:
    """The graph with library calls, or None without such attention."""
    if not any(packet(n) in ("softmax", "_softmax") for n in graph.nodes) or sees_layout(graph):
        return None
    readers = {
        name: [r for r in found if packet(r) != "_assert_tensor_metadata"]
        for name, found in users(graph).items()
    }
    nodes = {n.name: n for n in graph.nodes}
    kept = pinned(graph)
    replacement: dict[str, list[Node]] = {}
    moved: set[str] = set()
    for node in graph.nodes:
        found = matched(node, nodes, readers, kept)
        exact = checked or (found is not None and _is_exact(found))
        if (
            found is not None
            and (exact or not only_exact)
            and not any(n.name in replacement for n in found.inner)
        ):
            replacement[node.name] = _written(graph, found, nodes, checked)
            replacement.update({n.name: [] for n in found.inner})
            moved.add(node.name)
    if not moved:
        return None
    gone = replacement.keys() - moved
    replacement.update(
        {
            n.name: []
            for n in graph.nodes
            if packet(n) == "_assert_tensor_metadata" and ref(n.args[0]) in gone
        }
    )
    return outputs_as_before(
        _followed(rebuilt(graph, replacement, {}), frozenset(moved)), graph, moved
    )


def _is_exact(match: Match) -> bool:
    """Whether the call is infinite and NaN where the original is: no mask hides such scores, and no float16 score overflows."""
    stored = {n.dtype for n in match.inner}
    return all(m.fill is None for m in match.masks) and "float16" not in stored


def _as_it_was(graph: Graph, match: Match, shape: tuple[int, ...]) -> tuple[list[Node], str]:
    """The original operators as a function that returns the call's result, and the arguments of that function.

    Masks computed from weights, buffers and constants are computed inside the function: outside they would be computed once, not per call.
    """
    _, held = held_by_module(graph, [m.name for m in match.masks]) or ([], [])
    inside = {n.name for n in (*match.inner, match.last, *held)}
    operators = [n for n in graph.nodes if n.name in inside]
    read = {name for n in operators for name in reads(n)} - inside
    names = [n.name for n in graph.nodes if n.name in read]
    steps = "".join(f"({n.name} := {spelled(n, str)}), " for n in operators)
    order = sorted(range(len(match.out)), key=match.out.__getitem__)
    laid = f"{match.last.name}.permute({order}).reshape({shape})"
    return [
        n for n in graph.nodes if n.name in names
    ], f"lambda {', '.join(names)}: ({steps}{laid})[-1]"


def _written(graph: Graph, match: Match, nodes: Mapping[str, Node], checked: bool) -> list[Node]:
    """The call and its operands, replacing the last matmul.

    Args:
        checked: run the original operators if operands are not finite.
    """
    new = Nodes(match.last)
    batch, *heads = (*(1 for _ in range(LEADS - len(match.heads))), *match.heads)
    four = (batch, math.prod(heads))
    q, k, v = (
        _laid(new, operand, own, four, nodes)
        for operand, own in (
            (match.queries, match.score_lead),
            (match.keys, match.score_lead),
            (match.values, match.lead),
        )
    )
    rows, columns, width = shape_of(q)[-2], shape_of(k)[-2], shape_of(v)[-1]
    for name, by, _ in match.factors:
        q = new.add(f"{name}.Tensor", (q, by), shape_of(q))
    q, mask, causal = biased(
        graph, new, q, match.masks, (*four, rows, columns), len(match.heads) + 2
    )
    # Fused kernels keep the data of a token together.
    strides = (rows * four[1] * width, width, four[1] * width, 1)
    call = new.add(
        "scaled_dot_product_attention.default",
        (q, k, v, mask, 0.0, causal),
        (*four, rows, width),
        strides=strides,
        kwargs={"scale": match.scale},
    )
    if checked:
        sources, make = _as_it_was(graph, match, tuple(call.shape or ()))
        operands = [{"ref": n.name} for n in (q, k, v)]
        call = new.add(
            "checked",
            (call, operands, max(match.scale, 1.0), *sources),
            tuple(call.shape or ()),
            strides=strides,
            kwargs={"make": make},
        )
    out = (*match.lead, rows, width)
    if out != call.shape:
        call = new.add("reshape.default", (call, list(out)), out)
    if match.out != tuple(range(len(out))):
        new.add("permute.default", (call, list(match.out)), shape_of(match.last))
    new.made[-1] = new.made[-1].model_copy(update={"name": match.last.name})
    return new.made


def _laid(
    new: Nodes,
    operand: PermutedValue,
    lead: tuple[int, ...],
    wanted: tuple[int, ...],
    nodes: Mapping[str, Node],
) -> Node:
    """Reshape an operand [*lead, rows, columns], or one that broadcasts to it, to [*wanted, rows, columns]."""
    node, order = nodes[operand.name], operand.order
    rank = len(order)
    if order == (*range(rank - 2), rank - 1, rank - 2) and _permutation(node) == order:
        node = nodes[ref(node.args[0]) or ""]
    elif order != tuple(range(rank)):
        node = new.add(
            "permute.default", (node, list(order)), tuple(shape_of(node)[d] for d in order)
        )
    if shape_of(node)[:-2] != lead:
        shape = (*lead, *shape_of(node)[-2:])
        node = new.add("expand.default", (node, list(shape)), shape)
    if lead != wanted:
        shape = (*wanted, *shape_of(node)[-2:])
        node = new.add("reshape.default", (node, list(shape)), shape)
    return node


def _permutation(node: Node) -> tuple[int, ...] | None:
    """The permutation of its operand's dimensions that a view applies; None for other views."""
    rank, name = len(shape_of(node)), packet(node)
    if name == "permute":
        return tuple(d % rank for d in node.args[1])
    if name not in ("transpose", "swapaxes", "swapdims", "mT") or rank < 2:
        return None
    order = list(range(rank))
    a, b = (rank - 2, rank - 1) if name == "mT" else (d % rank for d in node.args[1:3])
    order[a], order[b] = order[b], order[a]
    return tuple(order)


def _followed(graph: Graph, calls: Iterable[str]) -> Graph:
    """Transposed results with their original strides, so that `contiguous()` after them does not copy."""
    laid = {n.name: n.strides for n in graph.nodes if n.name in calls and n.strides is not None}
    nodes = []
    for node in graph.nodes:
        order, source = _permutation(node), laid.get(ref(node.args[0]) or "") if node.args else None
        if order is not None and source is not None:
            laid[node.name] = tuple(source[d] for d in order)
            node = node.model_copy(update={"strides": laid[node.name]})
        nodes.append(node)
    return graph.model_copy(update={"nodes": tuple(nodes)})
