"""Packed operands: words of memory that hold several elements each, and the loop variable that counts the elements of a word.

A weight of four bits is `(words[n, k // 8] >> 4 * (k % 8)) & 15`, or the nibbles of bytes side by side or one half after the other. The
variable of `k % 8`, the digit, occurs in no read of the words. With a kernel for each value of the digit, in which the digit is a number,
a word is read once, and conditions on the digit are decided here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dvk.composer.ir.affine import ZERO, Affine, Var
from dvk.composer.ir.loops import Argument, Bound, Instr, Kernel, Ref
from dvk.composer.ir.matmul_form import MatmulForm, form_of
from dvk.composer.ir.nodes import INTS

MOST_DIGITS = 16
"""Elements of the fullest word: two bits each of 32."""
_FOLDED: dict[str, Callable[..., bool | int]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.not_,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "as": int,
}
"""Operations on numbers of the digit, which are too small to wrap."""


@dataclass(frozen=True)
class PackedForm:
    """A matmul whose long operand is packed."""

    kernel: Kernel
    form: MatmulForm
    digit: Var
    places: tuple[Kernel, ...]
    """The kernel at each value of the digit; instructions keep their ids."""
    same: frozenset[int]
    """Instructions that are equal in all of them."""
    wide: bool
    """The packed operand is that of the columns."""
    words: tuple[Instr, ...]
    """Reads of the packed words."""
    across: bool
    """Words that are neighbours in memory belong to different results."""

    @property
    def is_summed(self) -> bool:
        """The digit counts elements of k, not results."""
        return self.digit in self.kernel.reduced


def packed_form(kernel: Kernel) -> PackedForm | None:
    """The packed form of a matmul; None for others, and for sizes that are known at run time."""
    if kernel.family != "product" or kernel.size_arguments:
        return None
    kernel = _split_at_bounds(kernel)
    form = form_of(kernel)
    if form is None or form.batch or any(t.reduce.type != "float32" for t in form.terms):
        return None
    _, num_rows, num_columns = form.sizes
    wide = num_columns >= num_rows
    long = frozenset(form.columns if wide else form.rows)
    sides = [(t.right if wide else t.left).id for t in form.terms]
    for digit in (*kernel.reduced, *(v for v in kernel.rows if v in long)):
        if not 1 < digit.size <= MOST_DIGITS or not long - {digit}:
            continue
        places = tuple(at_number(kernel, digit, number) for number in range(digit.size))
        reads = [_words(place, sides, long) for place in places]
        kept = [{(i.buffer, i.offset) for i in found} for found in reads]
        if kept[0] and all(found == kept[0] for found in kept):
            same, words = _same(places), tuple(reads[0])
            across = all(_fastest(i.offset) in long for i in words)
            return PackedForm(kernel, form, digit, places, same, wide, words, across)
    return None


def _words(kernel: Kernel, sides: list[int], long: frozenset[Var]) -> list[Instr]:
    """Reads of integers that differ along both the long side and k, of the widest of them all."""
    reduced = frozenset(kernel.reduced)
    found = [
        i
        for i in (kernel.instrs[id_] for id_ in sorted(needed(kernel, sides)))
        if i.op == "load"
        and kernel.inputs[i.buffer].dtype in INTS
        and i.offset.vars & long
        and i.offset.vars & reduced
    ]
    most = max((math.prod(v.size for v in i.offset.vars) for i in found), default=0)
    return [i for i in found if math.prod(v.size for v in i.offset.vars) == most]


def _fastest(offset: Affine) -> Var:
    return min(offset.terms, key=lambda term: abs(term[1]))[0]


def needed(kernel: Kernel, targets: list[int]) -> set[int]:
    """Instructions that some values are computed from, themselves included."""
    found: set[int] = set()
    pending = list(targets)
    while pending:
        if (id_ := pending.pop()) not in found:
            found.add(id_)
            pending += [a.id for a in kernel.instrs[id_].args if isinstance(a, Ref)]
    return found


def _same(places: tuple[Kernel, ...]) -> frozenset[int]:
    found: set[int] = set()
    for instr in places[0].instrs:
        others = [place.instrs[instr.id] for place in places[1:]]
        made = all(a.id in found for a in instr.args if isinstance(a, Ref))
        if made and all(other == instr for other in others):
            found.add(instr.id)
    return frozenset(found)


# ------------------------------------------------------------------ one value of a variable


def at_number(kernel: Kernel, var: Var, number: int) -> Kernel:
    """The kernel with a loop variable replaced by a number, and what this decides left out."""
    kernel = _substituted(kernel, {var: Affine((), number)})
    known: dict[int, Argument] = {}
    instrs: list[Instr] = []
    for one in kernel.instrs:
        args = tuple(known.get(a.id, a) if isinstance(a, Ref) else a for a in one.args)
        instr = replace(one, args=args, bounds=tuple(b for b in one.bounds if not _holds(b)))
        decided = _decided(instr, instrs)
        if decided is not None:
            known[instr.id] = decided
            instr = replace(
                instr, op="as", args=(decided,), compute=instr.type, offset=ZERO, bounds=()
            )
        instrs.append(instr)
    stores = []
    for store in kernel.stores:
        value = known.get(store.value)
        stores.append(replace(store, value=value.id) if isinstance(value, Ref) else store)
    return replace(kernel, instrs=tuple(instrs), stores=tuple(stores))


def _holds(bound: Bound) -> bool:
    low, high = bound[0].span()
    return low >= 0 and high < bound[1]


def _fails(bound: Bound) -> bool:
    low, high = bound[0].span()
    return high < 0 or low >= bound[1]


def _compared(instr: Instr, made: list[Instr]) -> bool | None:
    """The result of a comparison of a place with a number that is the same at every place; None if it is not."""
    place, number = instr.args if len(instr.args) == 2 else (0, Ref(0))
    if instr.op not in ("lt", "ge") or not isinstance(place, Ref) or isinstance(number, Ref):
        return None
    source = made[place.id]
    while source.op == "as" and source.type in INTS and isinstance(source.args[0], Ref):
        source = made[source.args[0].id]
    if source.op != "iota":
        return None
    low, high = source.offset.span()
    if high < number:
        return instr.op == "lt"
    return instr.op == "ge" if low >= number else None


def _decided(instr: Instr, made: list[Instr]) -> Argument | None:
    """What an instruction is once some of its operands are numbers; None if it is still to be computed."""
    if any(_fails(bound) for bound in instr.bounds):
        return instr.fill
    if instr.op == "iota" and not instr.offset.terms:
        return instr.offset.const
    if instr.op == "bounded" and not instr.bounds:
        return instr.args[0]
    if instr.op == "where" and not isinstance(instr.args[0], Ref):
        return instr.args[1] if instr.args[0] else instr.args[2]
    if (known := _compared(instr, made)) is not None:
        return known
    numbers = [a for a in instr.args if not isinstance(a, Ref)]
    if instr.op in _FOLDED and instr.args and len(numbers) == len(instr.args):
        if instr.type in INTS or instr.type == "bool":
            return _FOLDED[instr.op](*numbers)
    return None


def _split_at_bounds(kernel: Kernel) -> Kernel:
    """Split a variable where bounds cut it into equal parts: k of two halves of nibbles becomes (half, place in it)."""
    for instr in kernel.instrs:
        for part, count in instr.bounds:
            if not part.terms:
                continue
            var, step = max(part.terms, key=lambda term: abs(term[1]))
            for border in (-part.const, count - part.const):
                size, rest = divmod(border, step)
                if rest or not 0 < size < var.size or var.size % size:
                    continue
                outer, inner = Var(var.size // size), Var(size)
                if outer.size > MOST_DIGITS:
                    continue
                return _substituted(kernel, {var: Affine.build({outer: size, inner: 1})})
    return kernel


def _substituted(kernel: Kernel, mapping: Mapping[Var, Affine]) -> Kernel:
    """The kernel with loop variables written in others."""

    def through(variables: tuple[Var, ...]) -> tuple[Var, ...]:
        parts = [
            [v for v, _ in sorted(mapping[var].terms, key=lambda t: -t[1])]
            if var in mapping
            else [var]
            for var in variables
        ]
        return tuple(v for part in parts for v in part)

    instrs = tuple(
        replace(
            i,
            vars=frozenset(through(tuple(i.vars))),
            offset=i.offset.substitute(mapping),
            bounds=tuple((part.substitute(mapping), count) for part, count in i.bounds),
        )
        for i in kernel.instrs
    )
    stores = tuple(replace(s, offset=s.offset.substitute(mapping)) for s in kernel.stores)
    return replace(
        kernel,
        rows=through(kernel.rows),
        reduced=through(kernel.reduced),
        instrs=instrs,
        stores=stores,
    )
