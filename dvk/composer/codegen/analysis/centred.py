"""A mean that is subtracted from its own operand, computed around the row's first element.

    m = k + Σ(x − k) / n        instead of        m = Σx · (1/n)

Rows whose mean is much larger than their spread keep their digits: rounding errors have the order of the spread. In a row of equal elements
x − m is 0, as in PyTorch, whose kernels update the mean as they go. The rewrite adds one subtraction to the pass that sums, and a few
instructions once per row; every back end renders its result like any other kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dvk.composer.ir.affine import ZERO
from dvk.composer.ir.loops import Argument, Bound, Instr, Kernel, Ref

FAR = 1e37
"""Skip the shift for a first element that is larger, infinite or NaN: differences could overflow where sums do not."""


def centred(kernel: Kernel) -> Kernel:
    """Return the kernel with such means computed around the first element of each row."""
    means = means_of(kernel) if kernel.family in ("row", "column", "row_sums") else {}
    return _Centring(kernel, means).kernel() if means else kernel


def means_of(kernel: Kernel) -> dict[int, int]:
    """Means that are subtracted from their operand: index of the mean → index of the sum."""
    result = {}
    for instr in kernel.instrs:
        mean = _behind(kernel, instr, 1) if instr.op == "sub" else None
        total = _behind(kernel, mean, 0) if mean is not None and mean.op == "mul" else None
        if (
            mean is None
            or total is None
            or total.op != "reduce_sum"
            or total.args != instr.args[:1]
        ):
            continue
        weight, x = mean.args[1], _behind(kernel, total, 0)
        if (
            x is None
            or kernel.is_row_value(x)
            or not x.type == total.type == mean.type == "float32"
        ):
            continue
        if not isinstance(weight, Ref) and abs(weight * kernel.row_length - 1.0) < 1e-6:
            result[mean.id] = total.id
    return result


class _Centring:
    """State of the rewrite: the new instructions, and where the old ones went."""

    def __init__(self, kernel: Kernel, means: dict[int, int]):
        self.old, self.means = kernel, means
        self.new: list[Instr] = []
        self.places: dict[int, int] = {}
        self.shifts: dict[int, tuple[int, int]] = {}
        """Old sum → the new sum of differences, the first element."""

    def kernel(self) -> Kernel:
        totals = set(self.means.values())
        for instr in self.old.instrs:
            if instr.id in self.means:
                total, first = self.shifts[self.means[instr.id]]
                part = self._like(instr, "mul", (Ref(total), instr.args[1]))
                self.places[instr.id] = self._like(instr, "add", (Ref(first), Ref(part)))
            elif instr.id in totals:
                self._sum(instr)
            else:
                self.places[instr.id] = self._put(replace(instr, args=self._moved(instr.args)))
        stores = tuple(replace(s, value=self.places[s.value]) for s in self.old.stores)
        return replace(self.old, instrs=tuple(self.new), stores=stores)

    def _sum(self, total: Instr) -> None:
        """Sum differences from the first element; the sum itself only if something other than means needs it."""
        operand = total.args[0]
        assert isinstance(operand, Ref), "a mean's operand varies along the row"
        x = self.new[self.places[operand.id]]
        first = self._first(operand.id)
        gap = self._put(
            replace(
                self.new[first],
                op="sub",
                args=(Ref(x.id), Ref(first)),
                vars=x.vars | self.new[first].vars,
            )
        )
        shifted = self._put(replace(total, args=(Ref(gap),)))
        self.shifts[total.id] = shifted, first
        uses = [i for i in self.old.instrs if Ref(total.id) in i.args and i.id not in self.means]
        if uses or any(s.value == total.id for s in self.old.stores):
            row = self._like(total, "mul", (Ref(first), self.old.row_length))
            self.places[total.id] = self._like(total, "add", (Ref(shifted), Ref(row)))

    def _first(self, value: int) -> int:
        """The value at the start of the row, 0 if it is not of ordinary size; the instructions behind it are repeated there."""
        start = {var: ZERO for var in self.old.reduced}
        needed, pending = set[int](), [value]
        while pending:
            instr = self.old.instrs[pending.pop()]
            if instr.id not in needed and not self.old.is_row_value(instr):
                needed.add(instr.id)
                pending.extend(a.id for a in instr.args if isinstance(a, Ref))
        there: dict[int, int] = {}
        for id_ in sorted(needed):
            instr = self.old.instrs[id_]
            args = self._moved(instr.args, there)
            bounds = [(index.substitute(start), n) for index, n in instr.bounds]
            # Bounds that hold at the start of every row are no conditions: their texts would be empty.
            bounds = [one for one in bounds if not _holds(one)]
            if instr.op == "bounded" and not bounds and isinstance(args[0], Ref):
                there[id_] = args[0].id
                continue
            there[id_] = self._put(
                replace(
                    instr,
                    args=args,
                    vars=instr.vars - start.keys(),
                    offset=instr.offset.substitute(start),
                    bounds=tuple(bounds),
                )
            )
        x = self.new[there[value]]
        plain = replace(
            x, op="abs", args=(Ref(x.id),), compute="float32", buffer=-1, offset=ZERO, bounds=()
        )
        size = self._put(replace(plain, places=(), prim=None, view=None, call=None, fill=0))
        near = self._put(replace(self.new[size], op="lt", args=(Ref(size), FAR), type="bool"))
        return self._put(replace(self.new[size], op="where", args=(Ref(near), Ref(x.id), 0.0)))

    def _like(self, instr: Instr, op: str, args: tuple[Argument, ...]) -> int:
        """A value once per row, of the type and stage of `instr`."""
        vars_ = frozenset(v for a in args if isinstance(a, Ref) for v in self.new[a.id].vars)
        return self._put(replace(instr, op=op, args=args, vars=vars_, prim=None))

    def _moved(
        self, args: Sequence[Argument], there: dict[int, int] | None = None
    ) -> tuple[Argument, ...]:
        places = {**self.places, **(there or {})}
        return tuple(Ref(places[a.id]) if isinstance(a, Ref) else a for a in args)

    def _put(self, instr: Instr) -> int:
        self.new.append(replace(instr, id=len(self.new)))
        return len(self.new) - 1


def _holds(bound: Bound) -> bool:
    """Whether the index is inside for all values of its variables."""
    index, count = bound
    least, most = index.span()
    return 0 <= least and most < count


def _behind(kernel: Kernel, instr: Instr, position: int) -> Instr | None:
    argument = instr.args[position]
    return kernel.instrs[argument.id] if isinstance(argument, Ref) else None
