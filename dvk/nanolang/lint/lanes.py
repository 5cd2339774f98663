"""Abstract values of a Triton kernel: the shape of a block, and its integers, lane by lane.

A number is known only if Triton's compiler and its interpreter agree on it: within 32 bits, quotients of nonnegative numbers, no arithmetic
with booleans. All other values are unknown, and unknown is never an error.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Shape = tuple[int, ...]
WIDEST = 1 << 20
"""Lanes of a block whose values are tracked; Triton allows no more."""
BOUND = 1 << 31


class LaneError(Exception):
    """An error of a kernel; the message is a verb phrase."""


@dataclass(frozen=True)
class LaneValue:
    """A number, a block of numbers, or pointers."""

    shape: Shape | None = None
    """Shape of the block; `()` is a scalar, None unknown."""
    data: Any = None
    """Integers or booleans, as an array that broadcasts to `shape` or as a single one; for pointers the offsets; None if unknown. An array
    with one axis more than the block has the programs as its first axis."""
    base: str = ""
    """The tensor of the pointers."""


UNKNOWN = LaneValue()
_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_BITS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_ORDER: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def scalar(number: int | None) -> LaneValue:
    """One integer."""
    return LaneValue((), number if number is not None and abs(number) < BOUND else None)


def shown(shape: Shape) -> str:
    """A shape as people write it."""
    return str(list(shape))


def joined(values: Sequence[LaneValue]) -> Shape | None:
    """The common shape of values; None if one of them is unknown.

    Raises:
        LaneError: the shapes do not broadcast.
    """
    result: Shape = ()
    for value in values:
        if value.shape is None:
            return None
        rank = max(len(result), len(value.shape))
        a, b = ((1,) * (rank - len(s)) + s for s in (result, value.shape))
        if any(m != n and 1 not in (m, n) for m, n in zip(a, b, strict=True)):
            raise LaneError(f"joins a block of {shown(result)} with one of {shown(value.shape)}")
        result = tuple(n if m == 1 else m for m, n in zip(a, b, strict=True))
    return result


def applied(node: ast.operator | ast.cmpop, left: LaneValue, right: LaneValue) -> LaneValue:
    """A binary operation or a comparison.

    Raises:
        LaneError: the shapes do not broadcast.
    """
    shape = joined([left, right])
    if left.base or right.base:
        moves = (
            isinstance(node, ast.Add)
            and not (left.base and right.base)
            or isinstance(node, ast.Sub)
            and not right.base
        )
        data = _numbers(node, [left, right], shape) if moves else None
        return LaneValue(shape, data, left.base or right.base) if moves else UNKNOWN
    if shape is None or isinstance(node, (ast.MatMult, ast.In, ast.NotIn, ast.Is, ast.IsNot)):
        return UNKNOWN
    return LaneValue(shape, _numbers(node, [left, right], shape))


def lined_up(values: Sequence[LaneValue], shape: Shape | None) -> list[Any]:
    """The numbers of several values as arrays that broadcast to a block of many programs; None for all if they are too many."""
    result = [value.data for value in values]
    if shape is None or not any(_of_many(value) for value in values):
        return result
    for place, value in enumerate(values):
        if _of_many(value):
            assert value.shape is not None, "it has an axis more than its block"
            data = value.data.reshape(
                len(value.data), *(1,) * (len(shape) - len(value.shape)), *value.data.shape[1:]
            )
            if len(data) * math.prod(shape) > WIDEST << 1:
                return [None] * len(values)
            result[place] = data
    return result


def _of_many(value: LaneValue) -> bool:
    return (
        isinstance(value.data, np.ndarray)
        and value.shape is not None
        and value.data.ndim > len(value.shape)
    )


def _numbers(
    node: ast.operator | ast.cmpop, values: Sequence[LaneValue], shape: Shape | None
) -> Any:
    a, b = lined_up(values, shape)
    if a is None or b is None or shape is None or math.prod(shape) > WIDEST:
        return None
    flags = is_flags(a) + is_flags(b)
    if type(node) in _BITS:
        return None if flags == 1 else _BITS[type(node)](a, b)
    if flags:
        return None
    if type(node) in _ORDER:
        return _ORDER[type(node)](a, b)
    if isinstance(node, (ast.FloorDiv, ast.Mod)) and (
        least(a) < 0 or least(b) < 1
    ):  # C's are others
        return None
    return _within(_ARITHMETIC[type(node)](a, b)) if type(node) in _ARITHMETIC else None


def chosen(condition: LaneValue, yes: LaneValue, no: LaneValue) -> LaneValue:
    """`tl.where`."""
    shape = joined([condition, yes, no])
    numbers = lined_up([condition, yes, no], shape)
    if yes.base or no.base or shape is None:
        return UNKNOWN
    if (
        any(n is None for n in numbers)
        or math.prod(shape) > WIDEST
        or not is_flags(numbers[0])
        or is_flags(yes.data) != is_flags(no.data)
    ):
        return LaneValue(shape)
    return LaneValue(shape, _plain(np.where(*numbers)))


def extreme(pick: Callable[..., Any], values: Sequence[LaneValue]) -> LaneValue:
    """The smaller or the larger of two."""
    shape = joined(values)
    if shape is None or any(v.base for v in values):
        return UNKNOWN
    known = (
        all(v.data is not None and not is_flags(v.data) for v in values)
        and math.prod(shape) <= WIDEST
    )
    numbers = lined_up(values, shape) if known else []
    return LaneValue(shape, _plain(pick(*numbers)) if known and numbers[0] is not None else None)


def expanded(value: LaneValue, index: ast.expr) -> LaneValue:
    """`x[:, None]`: the block with further axes."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    new = [isinstance(part, ast.Constant) and part.value is None for part in parts]
    whole = [
        isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None
        for part in parts
    ]
    if (
        value.shape is None
        or not all(a or b for a, b in zip(new, whole, strict=True))
        or sum(whole) != len(value.shape)
        or not value.shape
    ):
        return UNKNOWN
    sizes = iter(value.shape)
    shape = tuple(1 if is_new else next(sizes) for is_new in new)
    data = value.data
    if isinstance(data, np.ndarray) and data.ndim:
        data = data.reshape((1,) * (len(value.shape) - data.ndim) + data.shape)
        data = data[
            (
                *([slice(None)] if _of_many(value) else []),
                *(None if is_new else slice(None) for is_new in new),
            )
        ]
    return replace(value, shape=shape, data=data)


def reaching(where: LaneValue, mask: LaneValue | None, extent: int) -> int | None:
    """An out-of-bounds offset in an unmasked lane; None if none is certain."""
    places, active = where.data, True if mask is None else mask.data
    if places is None or active is None or least(places) >= 0 and most(places) < extent:
        return None
    places, active = np.broadcast_arrays(places, np.not_equal(active, 0))
    beyond = places[active & ((places < 0) | (places >= extent))]
    return int(beyond[np.abs(beyond).argmax()]) if beyond.size else None


def is_flags(data: Any) -> bool:
    """Booleans, not integers."""
    return isinstance(data, (bool, np.bool_)) or (
        isinstance(data, np.ndarray) and data.dtype == np.bool_
    )


def least(data: Any) -> int:
    """The minimum of some integers."""
    return int(data.min()) if isinstance(data, np.ndarray) else int(data)


def most(data: Any) -> int:
    """The maximum of some integers."""
    return int(data.max()) if isinstance(data, np.ndarray) else int(data)


def _within(data: Any) -> Any:
    """Integers if they fit in 32 bits, else None."""
    return data if least(data) > -BOUND and most(data) < BOUND else None


def _plain(data: np.ndarray) -> Any:
    return data if data.ndim else data.item()


__all__ = [
    "UNKNOWN",
    "WIDEST",
    "Shape",
    "LaneValue",
    "LaneError",
    "applied",
    "chosen",
    "expanded",
    "extreme",
    "is_flags",
    "joined",
    "lined_up",
    "reaching",
    "scalar",
    "shown",
]
