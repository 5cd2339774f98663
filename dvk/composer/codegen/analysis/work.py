"""The kind of work of a kernel, a key of schedules, skills and evidence."""

from __future__ import annotations

from dvk.composer.codegen.analysis.online import SoftmaxPair, online_pair
from dvk.composer.ir.loops import Kernel


def does(kernel: Kernel) -> str:
    """Classify the work of a kernel: `pointwise`, `softmax`, `norm`, `product`, `convolution` or `reduction`."""
    if not kernel.reduced:
        return "pointwise"
    if any(
        i.op == "reduce_sum" and i.prim is not None and i.prim.attrs.get("contracted")
        for i in kernel.instrs
    ):
        return "convolution"
    if kernel.family == "product":
        return "product"
    stores = any(not kernel.is_row_store(s) for s in kernel.stores)
    operations = {i.op for i in kernel.instrs}
    if (
        isinstance(online_pair(kernel), SoftmaxPair)
        or {"reduce_max", "exp", "reduce_sum"} <= operations
    ):
        return "softmax" if stores else "logsumexp"
    return (
        "norm"
        if stores and {"reduce_sum"} & operations and {"rsqrt", "sqrt", "div"} & operations
        else "reduction"
    )
