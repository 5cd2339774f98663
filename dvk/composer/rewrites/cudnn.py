"""Library convolutions for which cuDNN measures its algorithms instead of guessing the best."""

from __future__ import annotations

from collections.abc import Callable

from dvk import aten
from dvk.composer.ir.nodes import FLOATS
from dvk.composer.lowering.dispatch import padded
from dvk.composer.lowering.pooling import per_dim
from dvk.records import Node

RECIPE = "cudnn_benchmark"


def measured(node: Node, spelled: Callable[[object], str]) -> str | None:
    """The text of such a call; None for other operators, unbatched convolutions, or padding given by name.

    Args:
        spelled: renders an operand.
    """
    operator = node.op.split(".")[1] if node.op.startswith("aten.") else ""
    count = aten.CONVOLUTIONS.get(operator, 0)
    if (
        not count
        or node.kwargs
        or node.dtype not in FLOATS
        or node.shape is None
        or len(node.shape) != count + 2
    ):
        return None
    transposed = operator.startswith("conv_transpose")
    if transposed:
        x, weight, bias, stride, padding, more, groups, dilation = padded(
            list(node.args), None, None, None, 1, 0, 0, 1, 1
        )
    else:
        x, weight, bias, stride, padding, dilation, groups = padded(
            list(node.args), None, None, None, 1, 0, 1, 1
        )
        more = 0
    sizes = [per_dim(value, count, []) for value in (stride, padding, dilation, more)]
    if not all(sizes):
        return None
    steps, ahead, gaps, behind = sizes
    operands = ", ".join(map(spelled, (x, weight, bias)))
    return f"dvk_convolution({operands}, {steps!r}, {ahead!r}, {gaps!r}, {transposed!r}, {behind!r}, {groups!r})"
