"""Lowering rules for views: they become steps on an operand and cost nothing inside a kernel."""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.nodes import View, broadcast_shapes, register_type
from dvk.composer.lowering.dispatch import Lowering, padded, rule
from dvk.records import Node


@rule(
    "view",
    "reshape",
    "_unsafe_view",
    "flatten",
    "unflatten",
    "view_as",
    "reshape_as",
    "squeeze",
    "unsqueeze",
)
def _reshape(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    if (
        not isinstance(args[0], View)
        or node.shape is None
        or (len(args) > 1 and isinstance(args[1], dict))
    ):
        return None
    return args[0].then("reshape", tuple(node.shape), tuple(node.shape))


@rule(
    "permute",
    "transpose",
    "t",
    "swapaxes",
    "swapdims",
    "numpy_T",
    "mT",
    "adjoint",
    "movedim",
    "moveaxis",
)
def _permute(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    rank = len(x.shape)
    name = node.op.split(".")[1]
    if not rank:
        return x
    if name == "permute":
        dims = tuple(d % rank for d in args[1])
    elif name in ("transpose", "swapaxes", "swapdims", "mT", "adjoint"):
        order = list(range(rank))
        a, b = (
            (rank - 2, rank - 1) if name in ("mT", "adjoint") else (args[1] % rank, args[2] % rank)
        )
        order[a], order[b] = order[b], order[a]
        dims = tuple(order)
    elif name in ("t", "numpy_T"):
        dims = tuple(reversed(range(rank)))
    else:
        moved = [
            [v % rank for v in ([value] if isinstance(value, int) else value)]
            for value in args[1:3]
        ]
        rest = iter(d for d in range(rank) if d not in moved[0])
        dims = tuple(
            moved[0][moved[1].index(d)] if d in moved[1] else next(rest) for d in range(rank)
        )
    return x.then("permute", dims, tuple(x.shape[d] for d in dims))


@rule("expand", "expand_as", "broadcast_to")
def _expand(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    return args[0].then("expand", tuple(node.shape or ()), tuple(node.shape or ()))


@rule("broadcast_tensors")
def _broadcast_tensors(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> tuple[View, ...]:
    shape = broadcast_shapes(*(x.shape for x in args[0]))
    return tuple(x.then("expand", shape, shape) for x in args[0])


@rule("select")
def _select(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, dim, at = args
    if not isinstance(at, int):
        return None  # a computed index
    dim %= len(x.shape)
    return x.then("select", (dim, at % x.shape[dim]), tuple(node.shape or ()))


@rule("slice")
def _slice(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, dim, start, _stop, step = padded(args, None, 0, None, None, 1)
    dim = (dim or 0) % len(x.shape)
    size = x.shape[dim]
    start = 0 if start is None else max(start + size, 0) if start < 0 else min(start, size)
    after = tuple(node.shape or ())
    return x if after == x.shape else x.then("slice", (dim, start, step or 1), after)


@rule("narrow")
def _narrow(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, dim, start, _length = args
    if not isinstance(start, int):
        return None
    dim %= len(x.shape)
    return x.then(
        "slice", (dim, start if start >= 0 else start + x.shape[dim], 1), tuple(node.shape or ())
    )


@rule("chunk", "split", "split_with_sizes", "unbind", "tensor_split")
def _split(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> tuple[View, ...] | None:
    name = node.op.split(".")[1]
    x = args[0]
    dim = kwargs.get("dim", args[2] if len(args) > 2 else 0)
    if name == "unbind":
        dim = kwargs.get("dim", args[1] if len(args) > 1 else 0) % len(x.shape)
        rest = x.shape[:dim] + x.shape[dim + 1 :]
        return tuple(x.then("select", (dim, i), rest) for i in range(x.shape[dim]))
    dim %= len(x.shape)
    sizes = parts(name, x.shape[dim], args[1])
    if sizes is None:
        return None
    pieces, start = [], 0
    for size in sizes:
        pieces.append(x.then("slice", (dim, start, 1), (*x.shape[:dim], size, *x.shape[dim + 1 :])))
        start += size
    return tuple(pieces)


def parts(name: str, total: int, asked: Any) -> list[int] | None:
    """Lengths of the parts into which `chunk`, `split` or `split_with_sizes` cuts a dimension; None for another operator.

    Args:
        name: the operator.
        total: the dimension's size.
        asked: number of parts, length of one, or length of each.
    """
    if name in ("chunk", "split") and isinstance(asked, int) and total == 0:
        return [0] * (asked if name == "chunk" else 1)
    if name == "chunk":
        size = total // asked if total % asked == 0 else -(-total // asked)
        return [min(size, total - at) for at in range(0, total, size)]
    if name == "split" and isinstance(asked, int):
        return [min(asked, total - at) for at in range(0, total, asked)]
    return list(asked) if isinstance(asked, list) and name != "tensor_split" else None


@rule("getitem")
def _getitem(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    # An unused result may be missing from the tuple.
    return args[0][args[1]] if isinstance(args[0], tuple) and args[1] < len(args[0]) else None


@rule(
    "detach",
    "alias",
    "lift_fresh",
    "detach_",
    "dropout",
    "feature_dropout",
    "alpha_dropout",
    "identity",
)
def _same(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    if node.op.split(".")[1].endswith("dropout") and args[2] and args[1] != 0:
        return None
    return args[0] if isinstance(args[0], View) else None


@rule("contiguous", "clone", "lift_fresh_copy")
def _copy(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    source = low.nodes.get(node.args[0]["ref"])
    if "contiguous" in node.op and source is not None and source.strides == node.strides:
        return args[0]
    return low.pointwise("as", args[0], dtype=args[0].dtype, compute=register_type(args[0].dtype))
