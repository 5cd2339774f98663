"""Collapse a linear whose output is only summed or averaged over its output features into one dot product per row.

Σ_o (x·W_o + b_o) = x·(Σ_o W_o) + Σ_o b_o: exact in real arithmetic. It turns a matmul of K·N multiplications per row into K, and fuses with
its readers. The summed weights are recomputed whenever the weight is written.

An infinite element of x is infinite in every output, and if its weights differ in sign, or one is 0, the sum is NaN: such elements are
multiplied by 0 and added, which is 0 for finite ones.

In float16, eager code stores every output, where a value beyond 65504 is infinite. The single dot product is exact only if all outputs
stay finite (`rewrite_finite`).
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import pinned
from dvk.composer.rewrites.edit import is_foldable, packet, rebuilt, ref, users
from dvk.records import Graph, Node


def rewrite(graph: Graph) -> Graph | None:
    """The collapsed graph, or None without such a pair that is exact for every input."""
    return _rewritten(graph, only_exact=True)


def rewrite_finite(graph: Graph) -> Graph | None:
    """The graph with pairs in float16 collapsed, or None without such a pair."""
    return _rewritten(graph, only_exact=False)


def _rewritten(graph: Graph, only_exact: bool) -> Graph | None:
    readers = users(graph)
    nodes = {n.name: n for n in graph.nodes}
    kept = pinned(graph)
    replacement: dict[str, list[Node]] = {}
    for reduce in graph.nodes:
        if (
            packet(reduce) not in ("sum", "mean")
            or not reduce.args
            or reduce.kwargs
            or len(reduce.args) < 2
        ):
            continue
        first = nodes[ref(reduce.args[0]) or ""]
        dims = reduce.args[1] if isinstance(reduce.args[1], (list, tuple)) else [reduce.args[1]]
        rank = len(first.shape or ())
        if packet(first) != "linear" or [d % rank for d in dims if d is not None] != [rank - 1]:
            continue
        weight = nodes[ref(first.args[1]) or ""]
        bias = ref(first.args[2]) if len(first.args) > 2 and first.args[2] is not None else None
        held = [weight, *([nodes[bias]] if bias else [])]
        if not is_foldable(first, held, readers[first.name], kept, only_exact):
            continue
        keepdim = len(reduce.args) > 2 and bool(reduce.args[2])
        replacement[first.name] = []
        replacement[reduce.name] = _dot(reduce, first, weight, bias, packet(reduce), keepdim, nodes)
    return rebuilt(graph, replacement, {}) if replacement else None


def _dot(
    reduce: Node,
    first: Node,
    weight: Node,
    bias: str | None,
    how: str,
    keepdim: bool,
    nodes: dict[str, Node],
) -> list[Node]:
    x = nodes[ref(first.args[0]) or ""]
    shape = x.shape or ()
    width = (weight.shape or (0, 0))[1]

    def derived(
        letter: str, source: str, make: str, shape: tuple[int, ...], dtype: str | None
    ) -> Node:
        return Node(
            name=f"{reduce.name}_{letter}",
            op="derived",
            args=({"ref": source},),
            kwargs={"make": make},
            shape=shape,
            dtype=dtype,
            strides=contiguous_strides(shape),
        )

    def made_of(letter: str, op: str, *args: Any) -> Node:
        return Node(
            name=f"{reduce.name}_{letter}",
            op=f"aten.{op}",
            args=args,
            shape=shape,
            dtype=x.dtype,
            strides=contiguous_strides(shape),
        )

    summed = derived("w", weight.name, f"lambda w: w.{how}(0)", (width,), weight.dtype)
    signs = "lambda w: ~((w > 0).all(0) | (w < 0).all(0))"
    mixed = derived("m", weight.name, signs, (width,), "bool")
    terms = made_of("t", "mul.Tensor", {"ref": x.name}, {"ref": summed.name})
    chosen = made_of("c", "where.ScalarOther", {"ref": mixed.name}, {"ref": x.name}, 0.0)
    nothing = made_of("n", "mul.Tensor", {"ref": chosen.name}, 0.0)
    product = made_of("p", "add.Tensor", {"ref": terms.name}, {"ref": nothing.name})
    total = reduce.model_copy(
        update={
            "name": f"{reduce.name}_s" if bias else reduce.name,
            "op": "aten.sum.dim_IntList",
            "args": ({"ref": product.name}, [len(shape) - 1], keepdim),
            "kwargs": {},
        }
    )
    made = [terms, chosen, nothing, product, total]
    if not bias:
        return [summed, mixed, *made]
    offset = derived("b", bias, f"lambda b: b.{how}()", (), weight.dtype)
    added = {"op": "aten.add.Tensor", "args": ({"ref": total.name}, {"ref": offset.name})}
    return [summed, mixed, offset, *made, reduce.model_copy(update=added)]
