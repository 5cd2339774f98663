"""Lowering rules for matmuls: a matmul is a pointwise multiplication of two broadcast operands and its sum over k.

In this form, all rules of kernels apply: transposes, slices and broadcasts of operands are affine views, the epilogue reads the sum once
per element and fuses after it, the prologue of an operand fuses into its load, and two matmuls over one index space (a gate and its value)
become one kernel. The renderers, which recognise such a kernel by its form (`matmul_form`), compute it in tiles.

fp16 and bf16 are multiplied exactly and summed in float32; float32 is multiplied in TF32 only if the task declares that class; three TF32
products, which are as exact as one in float32, are always allowed.
"""

from __future__ import annotations

import math
from typing import Any

from dvk.composer.ir.affine import ZERO, Affine, Var
from dvk.composer.ir.nodes import FLOATS, View, register_type
from dvk.composer.lowering.block_scales import product_of_blocks
from dvk.composer.lowering.dequantised import product_of_codes
from dvk.composer.lowering.dispatch import (
    Lowering,
    NotLowered,
    Rule,
    codegen_rule,
    is_number,
    padded,
)
from dvk.composer.lowering.normed import normed_product
from dvk.composer.lowering.pointwise import finish
from dvk.records import Node

RECIPE = "own_matmul"


def contracted(low: Lowering, left: View, right: View, summed: int = 1) -> View:
    """The product of two mutually broadcast operands, summed over their last dimensions; in the register type."""
    kind = register_type(left.dtype)
    # K == 1 needs no reduction: pointwise work remains.
    summing = math.prod((*left.shape[-summed:], *right.shape[-summed:])) > 1
    marks: dict[str, Any] = {
        "own": True,
        "product": summing,
        "tf32": low.tf32 and left.dtype == "float32",
    }
    if low.narrow_products and summing:
        made = product_of_codes(low, left, right, summed, {"own": True, "product": True})
        if made is not None:
            return made
    if low.block_products and summing and summed == 1:
        made = product_of_blocks(low, left, right, {"own": True, "product": True})
        if made is not None:
            return made
    if low.codes_only:
        raise NotLowered("operands that are not quantised")
    if summed == 1 and summing:
        made = normed_product(low, left, right, marks)
        if made is not None:
            return made
    times = low.pointwise(
        "mul", _readable(low, left), _readable(low, right), dtype=kind, compute=kind, **marks
    )
    rank = len(times.shape)
    return low.reduce("sum", times, tuple(range(rank - summed, rank)), False, **marks)


def _readable(low: Lowering, operand: View) -> View:
    """An operand whose elements have affine indices in memory; stored again if a reshape left it none."""
    index = tuple(Affine.of(Var(size)) if size > 1 else ZERO for size in operand.shape)
    if operand.base_index(index) is not None:
        return operand
    return low.pointwise("as", operand, dtype=operand.dtype, compute=register_type(operand.dtype))


def product(low: Lowering, a: View, b: View) -> View | None:
    """`a @ b` like `torch.matmul`, in the register type; None for a dtype that kernels do not multiply."""
    if a.dtype not in FLOATS or b.dtype != a.dtype or not a.shape or not b.shape:
        return None
    if len(b.shape) == 1:
        return contracted(low, a, b)
    *many, k, n = b.shape
    rank = len(b.shape)
    turned = b.then("permute", (*range(rank - 2), rank - 1, rank - 2), (*many, n, k))
    if len(a.shape) == 1:
        return contracted(low, a, turned)
    left = a.then("reshape", (), (*a.shape[:-1], 1, k))
    return contracted(low, left, turned.then("reshape", (), (*many, 1, n, k)) if many else turned)


@codegen_rule(RECIPE, "matmul", "mm", "bmm", "mv", "__matmul__")
def _matmul(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    value = product(low, args[0], args[1]) if not kwargs and len(args) == 2 else None
    return None if value is None else finish(low, node, value)


@codegen_rule(RECIPE, "linear")
def _linear(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, weight, bias = padded(args, None, None, None)
    bias = kwargs.get("bias", bias)
    if x.dtype not in FLOATS or weight.dtype != x.dtype or not x.shape or len(weight.shape) != 2:
        return None
    value = contracted(low, x.then("reshape", (), (*x.shape[:-1], 1, x.shape[-1])), weight)
    return finish(
        low, node, value if bias is None else low.pointwise("add", value, bias, compute=value.dtype)
    )


@codegen_rule(RECIPE, "addmm", "addmv", "baddbmm")
def _added(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    if (
        len(args) != 3
        or args[0].dtype not in FLOATS
        or not all(is_number(v) for v in kwargs.values())
    ):
        return None
    value = product(low, args[1], args[2])
    if value is None:
        return None
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    if alpha != 1:
        value = low.pointwise("mul", value, alpha, compute=value.dtype)
    if beta == 0:
        return finish(low, node, value)
    added = args[0] if beta == 1 else low.pointwise("mul", args[0], beta, compute=value.dtype)
    return finish(low, node, low.pointwise("add", value, added, compute=value.dtype))


@codegen_rule(RECIPE, "einsum")
def _einsum(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    """Two operands whose letters each occur once, contracted over at least one letter."""
    formula, views = args[0], args[1] if len(args) > 1 else None
    if (
        not isinstance(views, list)
        or len(views) != 2
        or kwargs
        or "." in formula
        or "->" not in formula
    ):
        return None
    inputs, output = formula.replace(" ", "").split("->")
    words = inputs.split(",")
    if len(words) != 2 or any(len(set(w)) != len(w) for w in (*words, output)):
        return None
    summed = [c for c in words[0] if c in words[1] and c not in output]
    if not summed or views[0].dtype not in FLOATS or views[1].dtype != views[0].dtype:
        return None
    if any(c not in output and c not in summed for c in set("".join(words))):
        return None
    sides = [_spread(view, word, output, summed) for view, word in zip(views, words, strict=True)]
    return finish(low, node, contracted(low, sides[0], sides[1], len(summed)))


def _spread(view: View, word: str, output: str, summed: list[str]) -> View:
    """An operand with its dimensions in the output's order, missing ones of size 1, and the summed ones last."""
    order = [word.index(c) for c in (*(c for c in output if c in word), *summed)]
    shape = tuple(view.shape[d] for d in order)
    if order != list(range(len(order))):
        view = view.then("permute", tuple(order), shape)
    kept = iter(shape)
    return view.then(
        "reshape",
        (),
        (*(next(kept) if c in word else 1 for c in output), *shape[len(shape) - len(summed) :]),
    )


RULES_OF_PRODUCTS: dict[Rule, tuple[str, ...]] = {
    _matmul: ("matmul", "mm", "bmm", "__matmul__"),
    _linear: ("linear",),
    _added: ("addmm", "baddbmm"),
    _einsum: ("einsum",),
}
"""Rules whose operands may be quantised (`lowering.narrow`)."""
