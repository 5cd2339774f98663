"""Lowering of PyTorch's attention to its definition: a product, a scale, a mask, a softmax and a product.

The rule serves the kernels of whole attentions (`fusion.attention_chains`). PyTorch's own kernels are faster where they take the mask; with
masks and biases they do not take, PyTorch stores the scores.
"""

from __future__ import annotations

import math
from typing import Any

from dvk.composer.ir.nodes import FLOATS, View
from dvk.composer.lowering.dispatch import Lowering, codegen_rule, padded
from dvk.composer.lowering.matmul import product
from dvk.composer.lowering.pointwise import finish
from dvk.composer.lowering.reductions import softmax, widened
from dvk.records import Node

RECIPE = "own_attention"
NOTHING = -math.inf
"""The score of a key that a query does not see."""


@codegen_rule(RECIPE, "scaled_dot_product_attention")
def _attention(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    q, k, v, mask, dropout, causal = padded(args, None, None, None, None, 0.0, False)
    mask, dropout = kwargs.get("attn_mask", mask), kwargs.get("dropout_p", dropout)
    causal, scale = kwargs.get("is_causal", causal), kwargs.get("scale")
    if dropout or q.dtype not in FLOATS or not q.dtype == k.dtype == v.dtype:
        return None
    rank = len(q.shape)
    grouped = q.shape[:-2] != k.shape[:-2]
    if rank < 3 or len(k.shape) != rank or v.shape[:-2] != k.shape[:-2]:
        return None
    if grouped and not (kwargs.get("enable_gqa") and q.shape[: rank - 3] == k.shape[: rank - 3]):
        return None
    if grouped:
        many = k.shape[-3], q.shape[-3] // k.shape[-3]
        q, k, v = _grouped(q, many), _grouped(k, (many[0], 1)), _grouped(v, (many[0], 1))
        mask = _grouped_mask(mask, many) if isinstance(mask, View) else mask
    turned = (*range(len(k.shape) - 2), len(k.shape) - 1, len(k.shape) - 2)
    keys = k.then("permute", turned, tuple(k.shape[d] for d in turned))
    scores = product(low, q, keys)
    if scores is None:
        return None
    by = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = low.pointwise("mul", widened(low, scores), by)
    if isinstance(mask, View) and mask.dtype == "bool":
        scores = low.pointwise("where", mask, scores, NOTHING)
    elif isinstance(mask, View):
        scores = low.pointwise("add", scores, widened(low, mask))
    if causal:
        scores = low.pointwise("where", _seen(low, scores), scores, NOTHING)
    weights = softmax(low, scores, len(scores.shape) - 1, log=False)
    if isinstance(mask, View):  # a query that sees no key: its weights are 0, not NaN
        peak = low.reduce("max", scores, (len(scores.shape) - 1,), True)
        weights = low.pointwise("where", low.pointwise("eq", peak, NOTHING), 0.0, weights)
    value = product(low, low.typed(weights, v.dtype), v)
    if value is None:
        return None
    return finish(low, node, value.then("reshape", (), tuple(node.shape or ())))


def _grouped(value: View, many: tuple[int, int]) -> View:
    """[…, heads, n, d] as […, groups, heads of a group, n, d]."""
    *lead, _, rows, columns = value.shape
    return value.then("reshape", (), (*lead, *many, rows, columns))


def _grouped_mask(mask: View, many: tuple[int, int]) -> View:
    """A mask that broadcasts over heads, or has them all."""
    if len(mask.shape) < 3:
        return mask
    return _grouped(mask, many if mask.shape[-3] > 1 else (1, 1))


def _seen(low: Lowering, scores: View) -> View:
    """Keys up to the query's place."""
    rank = len(scores.shape)
    rows, columns = (
        low.pointwise("iota", shape=scores.shape, dim=dim, compute="int64")
        for dim in (rank - 2, rank - 1)
    )
    return low.pointwise("ge", rows, columns)
