"""Lowering rules for floating-point values of 8 bits and for matmuls of quantised values.

Only casts, views, copies and scaled matmuls know fp8 in PyTorch.
"""

from __future__ import annotations

import math
import subprocess
import sys
from functools import cache
from typing import Any

from dvk.composer.ir.nodes import EIGHTHS, FLOATS, View, register_type
from dvk.composer.lowering import matmul
from dvk.composer.lowering.data_movement import repeat_interleave
from dvk.composer.lowering.dequantised import sum_of_codes
from dvk.composer.lowering.dispatch import (
    BLOCK_PRODUCTS,
    NARROW,
    NARROW_PRODUCTS,
    Lowering,
    Rule,
    codegen_rule,
    padded,
)
from dvk.composer.lowering.pointwise import finish
from dvk.records import Node

CASTS = ("to", "_to_copy", "type_as", "float", "half", "bfloat16", "double")


PROBE = "import torch; print(torch.tensor(1e4, device='cuda').to(torch.float8_e4m3fn).float().isnan().item())"


@cache
def overflow_is_nan(device: str) -> bool:
    """Whether numbers beyond e4m3fn's largest become NaN in this PyTorch; later versions give the largest one.

    A GPU's casts saturate since an earlier version than a CPU's (PyTorch pull requests 177870 and 178817). Where the CPU's do not, another
    process asks the GPU, so that this one gets no CUDA context.
    """
    import torch  # lowering loads none

    on_cpu = bool(torch.tensor(1e4).to(torch.float8_e4m3fn).float().isnan())
    if device != "cuda" or not on_cpu:
        return on_cpu
    asked = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True)
    return asked.stdout.strip() != "False"


def _cast(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    kinds = (*FLOATS, *EIGHTHS)
    if not isinstance(x, View) or x.dtype not in kinds or node.dtype not in kinds:
        return None
    if x.dtype == node.dtype or (x.dtype in EIGHTHS and node.dtype in FLOATS):
        if x.base.kind == "pw" and x.base.op != "cast":
            x = low.pointwise("cast", x, dtype=x.dtype, compute="float32")
        return low.pointwise("as", x, dtype=node.dtype, compute=register_type(node.dtype))
    stored = low.rounded_as_stored(x)
    if node.dtype == "float8_e4m3fn" and overflow_is_nan(low.device):
        far = low.pointwise("gt", low.pointwise("abs", stored), 464.0)
        stored = low.pointwise("where", far, math.nan, stored, dtype="float32", compute="float32")
    return low.pointwise("cast", stored, dtype=node.dtype, compute="float32")


for _recipe in (NARROW, NARROW_PRODUCTS, BLOCK_PRODUCTS):
    codegen_rule(_recipe, *CASTS)(_cast)


def _of_codes(known: Rule) -> Rule:
    """A matmul's rule, for quantised operands alone."""

    def only(
        low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
    ) -> View | tuple[View, ...] | None:
        low.codes_only = True
        try:
            return known(low, node, args, kwargs)
        finally:
            low.codes_only = False

    return only


for _known, _names in matmul.RULES_OF_PRODUCTS.items():
    for _recipe in (NARROW_PRODUCTS, BLOCK_PRODUCTS):
        codegen_rule(_recipe, *_names)(_of_codes(_known))


@codegen_rule(BLOCK_PRODUCTS, "repeat_interleave")
def _repeated_scales(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | tuple[View, ...] | None:
    """Scales written out for each element, where there are codes that they may scale."""
    if all(other.dtype not in EIGHTHS for other in low.nodes.values()):
        return None
    return repeat_interleave(low, node, args, kwargs)


def _marks() -> dict[str, Any]:
    return {"own": True, "product": True}


def _turned(b: View) -> View:
    """A k × n matrix as n × k."""
    k, n = b.shape
    return b.then("permute", (1, 0), (n, k))


@codegen_rule(NARROW_PRODUCTS, "_int_mm")
def _int_mm(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    a, b = args
    if a.dtype != "int8" or b.dtype != "int8" or 1 in (*a.shape, *b.shape):
        return None
    left = a.then("reshape", (), (a.shape[0], 1, a.shape[1]))
    times = low.pointwise(
        "mul", left, _turned(b), dtype="int32", compute="int32", **_marks(), tf32=False
    )
    return finish(low, node, low.reduce("sum", times, (2,), False, **_marks(), tf32=False))


@codegen_rule(NARROW_PRODUCTS, "_scaled_mm")
def _scaled_mm(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    """Scales of whole tensors, or of rows and columns."""
    names = ("scale_a", "scale_b", "bias", "scale_result", "out_dtype", "use_fast_accum")
    a, b, *rest = padded(args, *([None] * (2 + len(names))))
    given = {name: kwargs.get(name, value) for name, value in zip(names, rest, strict=True)}
    (m, k), n = a.shape, b.shape[1]
    fits = a.dtype in EIGHTHS and b.dtype in EIGHTHS and k > 1
    for name, wanted in (("scale_a", (m, 1)), ("scale_b", (1, n))):
        scale = given[name]
        fits &= isinstance(scale, View) and scale.dtype == "float32"
        fits = fits and (scale.shape == wanted or all(size == 1 for size in scale.shape))
    if not fits or given["scale_result"] is not None:
        return None
    how = "fast" if given["use_fast_accum"] else "sums"
    value = sum_of_codes(low, a.then("reshape", (), (m, 1, k)), _turned(b), 1, _marks(), how)
    for name in ("scale_a", "scale_b"):
        scale = given[name]
        flat = scale if len(scale.shape) == 2 else scale.then("reshape", (), (1, 1))
        value = low.pointwise("mul", value, flat, dtype="float32", compute="float32")
    if given["bias"] is not None:
        value = low.pointwise("add", value, given["bias"], dtype="float32", compute="float32")
    return finish(low, node, low.typed(value, str(node.dtype)))
