"""One-pass forms of two dependent reductions: softmax's maximum and sum, and a variance's mean and squares.

Every lane keeps separate partial results and corrects them as it proceeds, so the row is read once where the definition reads it twice. The
result is exact up to rounding for finite rows. A row of −inf alone has an exp-sum of NaN, as with two passes; a row with an infinity has
mean NaN where two passes give infinity, and its variance is NaN either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from dvk.composer.ir.loops import Instr, Kernel, Ref
from dvk.composer.ir.primitives import propagates_nan


@dataclass(frozen=True)
class SoftmaxPair:
    """max(x) and the sum of exp(x − max)."""

    first: Instr
    second: Instr

    def step(self, x: str, mask: str, tiles: str) -> list[str]:
        """Lines that add one more tile to `acc…`; `tiles` counts them from 1."""
        del tiles
        top, total = self.first.id, self.second.id
        return [
            f"top{top} = " + (f'tl.where({mask}, {x}, float("-inf"))' if mask else x),
            f"peak = tl.maximum(acc{top}, top{top})",
            # A lane that has seen only -inf would compute -inf - (-inf).
            'shift = tl.where(peak == float("-inf"), 0.0, peak)',
            f"acc{total} = acc{total} * tl.exp(acc{top} - shift) + tl.exp(top{top} - shift)",
            f"acc{top} = peak",
        ]

    def partial(self, reduce: Instr, prefix: str, count: str, length: str, piece: bool) -> str:
        """Lines that turn the sum (or maximum) over lanes or slices into the value of the row, or of a `piece` of it."""
        del count, length
        top = self.first.id
        if reduce is self.first:
            return f"{prefix}{top}"
        # The sum of a row of -inf alone is NaN; a slice of -inf alone adds nothing to its row.
        shift = f'tl.where(v{top} == float("-inf"), 0.0, v{top})' if piece else f"v{top}"
        return f"{prefix}{self.second.id} * tl.exp({prefix}{top} - {shift})"


@dataclass(frozen=True)
class VariancePair:
    """sum(x) and the sum of (x − mean)²: Welford's update in a lane, Chan's formula between lanes and slices."""

    first: Instr
    second: Instr
    shifted: bool = False
    """The sum is one of differences from the row's first element."""

    def step(self, x: str, mask: str, tiles: str) -> list[str]:
        """Lines that add one more tile; the sum's accumulator holds the mean over each lane."""
        total, squares = self.first.id, self.second.id
        gap = f"{x} - acc{total}"
        lines = [f"gap = tl.where({mask}, {gap}, 0.0)" if mask else f"gap = {gap}"]
        if tiles == "1":
            return [*lines, f"acc{total} += gap"]
        return [
            *lines,
            f"step = gap * (1.0 / ({tiles}))",
            f"acc{total} += step",
            f"acc{squares} += gap * (gap - step)",
        ]

    def partial(self, reduce: Instr, prefix: str, count: str, length: str, piece: bool) -> str:
        """Merge partial results like softmax; each covers `count` elements, and all of them `length`."""
        del piece
        total, squares = f"{prefix}{self.first.id}", f"{prefix}{self.second.id}"
        if reduce is self.first:
            return f"{total} * {count}" if prefix == "acc" else total
        mean = total if prefix == "acc" else f"{total} / tl.maximum({count}, 1)"
        away = f"({mean} - v{self.first.id} / {length})"
        return f"{squares} + {count} * {away} * {away}"


Pair = SoftmaxPair | VariancePair


def online_pair(kernel: Kernel) -> Pair | None:
    """The first pair of reductions in the kernel that one pass can compute."""
    for second in kernel.instrs:
        if second.op == "reduce_sum" and second.type == "float32":
            pair = _softmax(kernel, second) or _variance(kernel, second)
            if pair is not None:
                return pair
    return None


def _softmax(kernel: Kernel, second: Instr) -> SoftmaxPair | None:
    power = _operand(kernel, second, 0)
    shifted = _operand(kernel, power, 0) if power is not None and power.op == "exp" else None
    top = _operand(kernel, shifted, 1) if shifted is not None and shifted.op == "sub" else None
    if shifted is None or top is None or top.op != "reduce_max" or top.args != shifted.args[:1]:
        return None
    if not _is_single(kernel, top):
        return None
    return SoftmaxPair(top, second)


def _variance(kernel: Kernel, second: Instr) -> VariancePair | None:
    square = _operand(kernel, second, 0)
    if square is None or square.op != "mul" or square.args[0] != square.args[1]:
        return None
    gap = _operand(kernel, square, 0)
    mean = _operand(kernel, gap, 1) if gap is not None and gap.op == "sub" else None
    shifted = mean is not None and mean.op == "add"
    part = _operand(kernel, mean, 1) if shifted else mean
    total = _operand(kernel, part, 0) if part is not None and part.op == "mul" else None
    if gap is None or mean is None or part is None or total is None or total.op != "reduce_sum":
        return None
    if shifted:  # as `centred` writes it
        moved = _operand(kernel, total, 0)
        around = moved is not None and moved.op == "sub"
        if not around or moved is None or moved.args != (gap.args[0], mean.args[0]):
            return None
    elif total.args != gap.args[:1]:
        return None
    weight = part.args[1]
    if (
        isinstance(weight, Ref)
        or abs(weight * kernel.row_length - 1.0) > 1e-6
        or not _is_single(kernel, total)
    ):
        return None
    return VariancePair(total, second, shifted)


def _is_single(kernel: Kernel, reduce: Instr) -> bool:
    """A float32 reduction of a float32 value that varies along the row."""
    x = _operand(kernel, reduce, 0)
    return x is not None and x.type == reduce.type == "float32" and not kernel.is_row_value(x)


def _operand(kernel: Kernel, instr: Instr | None, position: int) -> Instr | None:
    if instr is None or len(instr.args) <= position:
        return None
    argument = instr.args[position]
    return kernel.instrs[argument.id] if isinstance(argument, Ref) else None


def nan_shows_anyway(kernel: Kernel, top: Instr) -> bool:
    """A NaN in the row reaches every output that uses the maximum through the exp-sum: the maximum may ignore it."""
    pairs = [_softmax(kernel, i) for i in kernel.instrs if i.op == "reduce_sum"]
    pair = next((p for p in pairs if p is not None and p.first is top), None)
    if pair is None:
        return False
    tainted: set[int] = {pair.second.id}
    exposed: set[int] = {top.id}
    for instr in kernel.instrs:
        args = {a.id for a in instr.args if isinstance(a, Ref)}
        if instr.id in tainted or (args & tainted and propagates_nan(instr.op)):
            tainted.add(instr.id)
        elif args & exposed:
            if instr.op not in ("sub", "exp"):
                return False
            exposed.add(instr.id)
    return not any(s.value in exposed for s in kernel.stores)


def of_magnitudes(kernel: Kernel, top: Instr) -> bool:
    """The maximum of absolute values in float32, whose bits, NaN's included, are ordered as integers."""
    source = top.args[0]
    while isinstance(source, Ref) and kernel.instrs[source.id].op == "as":
        source = kernel.instrs[source.id].args[0]
    is_float = top.op == "reduce_max" and top.type == "float32"
    return is_float and isinstance(source, Ref) and kernel.instrs[source.id].op == "abs"


class DependentPair(Protocol):
    """Two reductions that one pass accumulates, the second of which needs the first."""

    @property
    def first(self) -> Instr: ...

    @property
    def second(self) -> Instr: ...


def pass_reduces(
    kernel: Kernel, stage: int, pair: DependentPair | None, is_apart: Callable[[Instr], bool]
) -> list[Instr]:
    """Reductions that the pass of a stage accumulates; the second of a pair is accumulated with the first.

    Args:
        is_apart: the reduction needs no pass over the row.
    """
    return [
        instr
        for instr in kernel.instrs
        if instr.op.startswith("reduce_")
        and not is_apart(instr)
        and (pair.first if pair is not None and instr is pair.second else instr).stage == stage + 1
    ]


def pass_operands(reduces: Iterable[Instr], pair: DependentPair | None) -> list[int]:
    """Values that accumulating the reductions reads."""
    follower = pair.second if pair is not None else None
    return [a.id for r in reduces if r is not follower for a in r.args if isinstance(a, Ref)]


def online_recipes(kernel: Kernel, online: bool | str) -> set[str]:
    """The recipe that a schedule with this value of `online` amounts to, if any."""
    return {"online_softmax"} if online and isinstance(online_pair(kernel), SoftmaxPair) else set()
