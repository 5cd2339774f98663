"""Which keys the queries of an attention see, read from the conditions that mask its scores.

A score under a condition that hides it is -∞ and its weight 0: blocks of keys that no query of a block sees need no work, and blocks that
all of them see need no condition. Conditions are comparisons of affine functions of the key's place with values that do not depend on it:
causal masks, sliding windows, lengths. Others, such as masks in memory, hide single scores, and are applied to each block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dvk.composer.ir.affine import ZERO, Affine, Var
from dvk.composer.ir.loops import Argument, Instr, Kernel, Ref

INTEGERS = ("int64", "int32", "bool")
NOT = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
TURNED = {"lt": "gt", "gt": "lt", "ge": "le", "le": "ge", "eq": "eq", "ne": "ne"}
FINITE = 1e30
"""Numbers beyond may become infinite when they are multiplied by log2(e)."""
PLAIN = frozenset({"as", "neg", "add", "sub", "mul", "div", "tanh"})
"""Operations of scores whose results are small if their operands are."""


@dataclass(frozen=True)
class Sum:
    """An integer: an affine function of loop variables and a sum of values."""

    affine: Affine = ZERO
    values: Mapping[int, int] = field(default_factory=dict)
    """Instruction → its factor."""

    def plus(self, other: Sum, by: int = 1) -> Sum:
        values = dict(self.values)
        for id_, factor in other.values.items():
            values[id_] = values.get(id_, 0) + by * factor
        kept = {id_: factor for id_, factor in values.items() if factor}
        return Sum(self.affine + other.affine.scale(by), kept)

    def shift(self, by: int) -> Sum:
        return Sum(self.affine.shift(by), self.values)


@dataclass(frozen=True)
class Condition:
    """A condition on scores: where the value is `hidden`, they are -∞."""

    value: int
    hidden: bool


@dataclass
class Seen:
    """What follows the product of queries and keys, apart from what masks it."""

    value: int
    """The scores without masks."""
    factor: float | None = None
    """The scores are `value` times this number, a positive one, and all of them are far from the ends of float32; None: not known."""
    conditions: list[Condition] = field(default_factory=list)
    first: list[Sum] = field(default_factory=list)
    """A query sees no key before any of these places."""
    end: list[Sum] = field(default_factory=list)
    """A query sees no key from any of these places on."""
    whole: bool = True
    """A query sees every key between: no condition hides others."""


def seen_keys(kernel: Kernel, product: int, keys: tuple[Var, ...], sides: frozenset[Var]) -> Seen:
    """What the queries of a kernel of scores see.

    Args:
        product: the instruction that sums the products.
        keys: variables of the keys.
        sides: variables of queries and keys.
    """
    found = Seen(kernel.stores[0].value)
    while True:
        instr = _through(kernel, Ref(found.value))
        if instr is None or instr.op != "where":
            break
        condition, *values = instr.args
        hidden = [isinstance(v, float) and v == -math.inf for v in values]
        if hidden.count(True) != 1 or not isinstance(condition, Ref):
            break
        kept = values[hidden.index(False)]
        if not isinstance(kept, Ref):
            break
        found.conditions.append(Condition(condition.id, hidden[0]))
        found.value = kept.id
        for bound in _bounds(kernel, condition, not hidden[0], keys):
            if bound is None:
                found.whole = False
            else:
                (found.first if bound[0] == "first" else found.end).append(bound[1])
    if _is_moderate(kernel, product, found.value, sides):
        found.value, found.factor = _without_factor(kernel, product, found.value)
    return found


def _through(kernel: Kernel, value: Argument) -> Instr | None:
    """What computes a value, conversions to float32 aside."""
    while isinstance(value, Ref):
        instr = kernel.instrs[value.id]
        if instr.op not in ("as", "cast_float32") or instr.type != "float32":
            return instr
        value = instr.args[0]
    return None


def _is_moderate(kernel: Kernel, product: int, value: int, sides: frozenset[Var]) -> bool:
    """No number and no bias may bring scores near the ends of float32.

    What memory holds for many scores alike may be a factor, such as a slope of each head. As a summand it may be the lowest number there
    is, which hides all keys of a batch from each other and leaves their weights equal.
    """
    pending, known = [value], {product}
    while pending:
        instr = kernel.instrs[pending.pop()]
        if instr.id in known or instr.type in INTEGERS:
            continue
        known.add(instr.id)
        if instr.op not in PLAIN and not instr.op.startswith("cast_"):
            return False
        if any(not isinstance(a, Ref) and not abs(a) < FINITE for a in instr.args):
            return False
        given = [kernel.instrs[a.id] for a in instr.args if isinstance(a, Ref)]
        varies = instr.op in ("mul", "div") and any(
            one.id == product or one.vars & sides for one in given
        )
        pending += [one.id for one in given if not (varies and _is_factor(kernel, one, sides))]
    return True


def _is_factor(kernel: Kernel, value: Instr, sides: frozenset[Var]) -> bool:
    """A value of many scores alike, computed from memory and numbers of ordinary size."""
    for id_ in closure(kernel, value.id):
        instr = kernel.instrs[id_]
        small = instr.op in PLAIN or instr.op.startswith("cast_") or instr.type in INTEGERS
        if not small and (instr.op != "load" or instr.bounds) or instr.vars & sides:
            return False
        if any(not isinstance(a, Ref) and not abs(a) < FINITE for a in instr.args):
            return False
    return True


def _without_factor(kernel: Kernel, product: int, value: int) -> tuple[int, float]:
    """A value made of the product, and the positive number by which it is multiplied."""
    factor = 1.0
    while (instr := _through(kernel, Ref(value))) is not None and instr.op in ("mul", "div"):
        inner, by = instr.args
        if instr.op == "mul" and isinstance(by, Ref):
            inner, by = by, inner
        if not isinstance(inner, Ref) or isinstance(by, Ref) or not 1 / FINITE < by < FINITE:
            break
        if product not in closure(kernel, inner.id):
            break
        factor *= by if instr.op == "mul" else 1 / by
        value = inner.id
    return value, factor


def closure(kernel: Kernel, value: int) -> set[int]:
    """The value and all it is computed from."""
    found, pending = set[int](), [value]
    while pending:
        id_ = pending.pop()
        if id_ not in found:
            found.add(id_)
            pending += [a.id for a in kernel.instrs[id_].args if isinstance(a, Ref)]
    return found


# ------------------------------------------------------------------ conditions

Bound = tuple[str, Sum]


def _bounds(
    kernel: Kernel, value: Argument, wanted: bool, keys: tuple[Var, ...]
) -> Iterator[Bound | None]:
    """Bounds of the keys for which a value is `wanted`; None for each part that says more than a bound."""
    instr = _made(kernel, value)
    if instr is None:
        yield None
    elif instr.op == "not":
        yield from _bounds(kernel, instr.args[0], not wanted, keys)
    elif instr.op == ("and" if wanted else "or") and instr.type == "bool":
        for part in instr.args:
            yield from _bounds(kernel, part, wanted, keys)
    elif instr.op in NOT:
        yield from _compared(kernel, instr, wanted, keys)
    elif instr.op == "where" and instr.type == "bool":
        # A condition as numbers, such as a triangle of ones.
        sides = [bool(a) for a in instr.args[1:] if not isinstance(a, Ref)]
        if sides in ([True, False], [False, True]):
            yield from _bounds(kernel, instr.args[0], sides[0] is wanted, keys)
        else:
            yield None
    else:
        yield None


def _made(kernel: Kernel, value: Argument) -> Instr | None:
    """What computes a condition, copies aside."""
    while isinstance(value, Ref):
        instr = kernel.instrs[value.id]
        if instr.op != "as" and instr.op != "cast_bool":
            return instr
        value = instr.args[0]
    return None


def _compared(
    kernel: Kernel, instr: Instr, wanted: bool, keys: tuple[Var, ...]
) -> Iterator[Bound | None]:
    op = instr.op if wanted else NOT[instr.op]
    one, other = instr.args
    picked = _picked(kernel, one, other, op)
    if picked is not None:
        yield from _bounds(kernel, picked[0], picked[1], keys)
        return
    if instr.compute not in INTEGERS:
        yield None
        return
    width = _made(kernel, one)
    if width is not None and width.op == "abs" and op in ("lt", "le"):
        for sign in (1, -1):
            yield _solved(kernel, width.args[0], other, op, keys, sign)
        return
    if op == "eq":
        for half in ("ge", "le"):
            yield _solved(kernel, one, other, half, keys)
        return
    yield _solved(kernel, one, other, op, keys)


def _number(kernel: Kernel, value: Argument) -> bool | int | float | None:
    """A number, or one that every place of a tensor has; None for others."""
    while isinstance(value, Ref):
        instr = kernel.instrs[value.id]
        if instr.op != "as":
            return None
        value = instr.args[0]
    return value


def _picked(
    kernel: Kernel, one: Argument, other: Argument, op: str
) -> tuple[Argument, bool] | None:
    """The condition of `where(condition, a, b) == c` for numbers, and the value that it needs."""
    made = _made(kernel, one)
    if op not in ("eq", "ne") or made is None or made.op != "where" or isinstance(other, Ref):
        return None
    sides = [_number(kernel, a) for a in made.args[1:]]
    if None in sides:
        return None
    equal = [(a == other) is (op == "eq") for a in sides]
    return (made.args[0], equal[0]) if equal[0] is not equal[1] else None


def _solved(
    kernel: Kernel, one: Argument, other: Argument, op: str, keys: tuple[Var, ...], sign: int = 1
) -> Bound | None:
    """The bound of `sign · one op other` on the one variable of the keys."""
    left, right = _sum(kernel, one, keys), _sum(kernel, other, keys)
    if left is None or right is None or len(keys) != 1 or op == "ne":
        return None
    both = Sum().plus(left, sign).plus(right, -1)
    factor = both.affine.coef(keys[0])
    if factor not in (1, -1):
        return None
    rest = Sum(both.affine + Affine.of(keys[0]).scale(-factor), both.values)
    place = Sum().plus(rest, -factor)  # key op place, or place op key
    op = op if factor == 1 else TURNED[op]
    if op in ("gt", "ge"):
        return "first", place.shift(op == "gt")
    return "end", place.shift(op == "le")


def _sum(kernel: Kernel, value: Argument, keys: tuple[Var, ...]) -> Sum | None:
    """An integer as a sum; None if it depends on the key in another way."""
    if not isinstance(value, Ref):
        return Sum(Affine((), int(value))) if value == int(value) else None
    instr = kernel.instrs[value.id]
    if instr.type not in INTEGERS:
        return None
    if instr.op == "iota":
        return Sum(instr.offset)
    if not instr.vars & {*keys}:
        return Sum(ZERO, {instr.id: 1})
    made: Sum | None = None
    parts = [_sum(kernel, a, keys) for a in instr.args]
    if instr.op in ("as", "cast_int64", "cast_int32"):
        made = parts[0]
    elif instr.op in ("add", "sub") and parts[0] is not None and parts[1] is not None:
        made = parts[0].plus(parts[1], 1 if instr.op == "add" else -1)
    elif instr.op == "neg" and parts[0] is not None:
        made = Sum().plus(parts[0], -1)
    # What memory holds may be any number: with it, an integer of 32 bits may wrap, and no sum does.
    return None if made is not None and made.values and instr.type == "int32" else made
