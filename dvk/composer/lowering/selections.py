"""Lowering rules for one place of a sorted line: the threshold of a top-k filter, `kthvalue`, an element of `sort`.

A top-k filter is written with `topk`, of which it reads the least value alone: `logits < logits.topk(k).values[..., -1:]`. Nothing has to
be sorted for it. The value is a reduction, `kth`, so that the filter, a softmax and a draw behind it may be one kernel; `fusion.searches`
writes it as passes that count. Ties, infinities and NaN, which is above all numbers, are as in PyTorch; of a zero, which is equal to a zero
of the other sign, the sign may differ.

Not covered: 64-bit and integer values, several places of one sorted line, and indices.
"""

from __future__ import annotations

import math
from typing import Any

from dvk.composer.ir.effects import refs
from dvk.composer.ir.nodes import IRNode, View
from dvk.composer.lowering.dispatch import Lowering, codegen_rule, padded
from dvk.composer.lowering.indexing import number_at
from dvk.composer.lowering.reductions import argument
from dvk.records import Node

RECIPE = "own_selections"
SINGLE = ("float32", "float16", "bfloat16")
"""Types whose values have an order in 32 bits."""
CONVERSIONS = ("as", "cast")
IN_REGISTERS = 1 << 15
"""Elements of the longest line that a GPU's registers hold: a pass over a longer one reads memory, and so decides on two bits, not one."""


def kth(low: Lowering, x: View, dim: int, above: int, keepdim: bool) -> View:
    """The value along `dim` that so many places are above, in descending order."""
    value, length = low.rounded_as_stored(x), x.shape[dim]
    assert isinstance(value, View)
    if above == 0:
        largest = low.reduce("max", low.typed(value, "float32"), (dim,), keepdim, own=True)
        return low.typed(largest, x.dtype)
    source, rising = below_rising(low, value)
    found = low.reduce(
        "kth",
        source,
        (dim,),
        keepdim,
        own=True,
        above=above,
        below=length - 1 - above,
        bits=2 if length > IN_REGISTERS else 1,
    )
    for prim in reversed(rising):
        attrs = {k: v for k, v in prim.attrs.items() if k != "compute"}
        operands = [found if isinstance(o, View) else o for o in prim.operands]
        compute = prim.attrs["compute"]
        found = low.pointwise(prim.op, *operands, dtype=prim.dtype, compute=compute, **attrs)
    return found


def below_rising(low: Lowering, value: View) -> tuple[View, list[IRNode]]:
    """What a value is a rising function of, and the steps of that function, the last one first: the value at a place is that of its source
    there.

    The temperature of logits need not be applied in each pass, and logits in bfloat16 take half the passes of what float32 makes of them.
    Besides conversions there is one step at most: compilers may contract two, and not in the same way for a row and for its elements.
    """
    found, rising = (value, list[IRNode]()), list[IRNode]()
    while not value.steps and value.base.kind == "pw":
        prim = value.base
        views = [o for o in prim.operands if isinstance(o, View)]
        scales = _is_scaled(prim)
        if len(views) != 1 or not (scales or prim.op in CONVERSIONS):
            break
        (source,) = views
        again = scales and any(_is_scaled(one) for one in rising)
        if again or source.shape != value.shape or source.dtype not in SINGLE:
            break
        rising.append(prim)
        value = source
        if low.rounded_as_stored(value) == value:
            found = value, list(rising)
    return found


def _is_scaled(prim: IRNode) -> bool:
    """A product with a positive number, or a quotient by one."""
    numbers = [o for o in prim.operands if not isinstance(o, View)]
    by = prim.op == "mul" or (prim.op == "div" and not isinstance(prim.operands[1], View))
    return by and len(numbers) == 1 and 0 < numbers[0] < math.inf


@codegen_rule(RECIPE, "kthvalue")
def _kthvalue(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> tuple[View, ...] | None:
    x, k = args[0], argument(args, kwargs, 1, "k", 1)
    if not _is_covered(low, node, x):
        return None
    dim = argument(args, kwargs, 2, "dim", -1) % len(x.shape)
    keepdim = bool(argument(args, kwargs, 3, "keepdim", False))
    return (kth(low, x, dim, x.shape[dim] - k, keepdim),)


@codegen_rule(RECIPE, "topk", "sort")
def _sorted(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> tuple[View, ...] | None:
    x, at = args[0], 2 if "topk" in node.op else 1
    if not _is_covered(low, node, x) or not argument(args, kwargs, 4, "sorted", True):
        return None
    dim = argument(args, kwargs, at, "dim", -1) % len(x.shape)
    descends = (
        argument(args, kwargs, 3, "largest", True)
        if "topk" in node.op
        else argument(args, kwargs, 2, "descending", False)
    )
    length = x.shape[dim]
    count = argument(args, kwargs, 1, "k", 1) if "topk" in node.op else length
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    place = _one_place(low, node, dim, shape)
    if place is None:
        return None
    value = kth(low, x, dim, place if descends else length - 1 - place, True)
    # The places that nothing reads have any value.
    return (value.then("expand", shape, shape),)


def _is_covered(low: Lowering, node: Node, x: Any) -> bool:
    """The operand has an order in 32 bits, and the values of the result are read alone."""
    return bool(low.read_parts.get(node.name) == {0} and x.dtype in SINGLE and x.shape)


def _one_place(low: Lowering, node: Node, dim: int, shape: tuple[int, ...]) -> int | None:
    """The place along `dim` at which all readers read the values, of this shape; None if there is more than one, or they are returned."""
    if shape[dim] == 1:
        return 0
    places: set[int | None] = set()
    names = {
        n.name for n in low.nodes.values() if n.op == "getitem" and n.args[0] == {"ref": node.name}
    }
    for reader in low.nodes.values():
        if names.isdisjoint(refs([list(reader.args), reader.kwargs])):
            continue
        if reader.op == "aten.slice.Tensor" and reader.shape == shape:
            names.add(reader.name)  # all of another dimension
        else:
            places.add(_place_read(low, reader, dim, shape))
    returned = any(low.last_read.get(name, 0) >= len(low.nodes) for name in names)
    return places.pop() if len(places) == 1 and not returned else None


def _place_read(low: Lowering, reader: Node, dim: int, shape: tuple[int, ...]) -> int | None:
    """The one place along `dim` that a view of a value reads, or an index by one number."""
    _, axis, at, *_ = padded(list(reader.args), None, 0, None)
    if (one := number_at(low.nodes, reader)) is not None:
        axis, at = one
    if type(axis) is not int or not isinstance(at, int) or axis % len(shape) != dim:
        return None
    if reader.op in ("aten.slice.Tensor", "aten.narrow.default"):
        if reader.shape != (*shape[:dim], 1, *shape[dim + 1 :]):
            return None
    elif reader.op not in ("aten.select.int", "aten.index.Tensor"):
        return None
    return max(at + shape[dim], 0) if at < 0 else at
