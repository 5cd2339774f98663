"""The lowering rule for `nucleus`, which `rewrites.nucleus` makes: which elements of a line have more, or less, weight before them than a
limit.

The place where the sum reaches the limit is a reduction, `mass`, which `fusion.searches` writes as passes that add up the weights from a
candidate on. Candidates are values with their index, as in `arg_reductions`: equal values are taken apart, the first index first.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.nodes import HALVES, IRNode, Operand, View
from dvk.composer.ir.symint import arguments
from dvk.composer.lowering.arg_reductions import pack_key
from dvk.composer.lowering.dispatch import Lowering, rule
from dvk.composer.lowering.pointwise import finish
from dvk.composer.lowering.reductions import widened
from dvk.composer.lowering.selections import CONVERSIONS, IN_REGISTERS, below_rising
from dvk.records import Node

NUCLEUS = "nucleus"
TESTS = ("gt", "ge", "lt", "le")
LEAST_FACTOR = 2.0**-16
"""Different values of 16 bits are different in float32 after a product with this or more, the tiniest ones included."""


@rule(NUCLEUS)
def _nucleus(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    """Whether the cumulative sum at each element passes the test.

    Operands are the line, the weights, and the limit, a number or a tensor with one value a line.
    """
    x, weights, limit = args
    dim, shape = kwargs["dim"], x.shape
    line = _in_the_same_order(low, x)
    key = pack_key(low, line, dim, not kwargs["descends"])
    operands: list[Operand] = [key, widened(low, weights).then("expand", shape, shape)]
    operands.append(
        widened(low, limit).then("expand", shape, shape) if isinstance(limit, View) else limit
    )
    attrs = {
        "dims": (dim,),
        "keepdim": True,
        "own": True,
        "test": kwargs["test"],
        "of": line.dtype,
        "places": 32 if arguments([shape[dim]]) else (shape[dim] - 1).bit_length(),
        "bits": 2 if shape[dim] > IN_REGISTERS else 1,
    }
    one = (*shape[:dim], 1, *shape[dim + 1 :])
    pushed = tuple(low.push_views(o) if isinstance(o, View) else o for o in operands)
    prim = IRNode("reduce", "mass", one, "int64", pushed, attrs)
    low.order.append(prim)
    beyond = (
        {True: "le", False: "lt"} if kwargs["test"] in ("gt", "ge") else {True: "gt", False: "ge"}
    )
    return finish(
        low, node, low.pointwise(beyond[kwargs["includes"]], key, View(prim), compute="int64")
    )


def _in_the_same_order(low: Lowering, x: View) -> View:
    """Logits of 16 bits in place of scaled ones in float32: as many equal values, and half the passes."""
    source, rising = below_rising(low, x)
    scales = [one for one in rising if one.op not in CONVERSIONS]
    strictly = x.dtype == "float32" and source.dtype in HALVES
    return source if strictly and all(_factor(one) >= LEAST_FACTOR for one in scales) else x


def _factor(prim: IRNode) -> float:
    (by,) = (o for o in prim.operands if not isinstance(o, View))
    return float(by) if prim.op == "mul" else 1 / by
