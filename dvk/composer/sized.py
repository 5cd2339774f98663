"""One drop-in for a range of sizes: parts of a `SizedGraph`, each with the schedules measured at one point.

Sizes are `SymbolicSize`s: their values decide (which loops are parallel, what is kept in a buffer), their names are written. A text whose
decisions hold at both ends of a stretch of the range serves all of it. Where they differ the stretch is cut in two, until they agree: the
cuts are the borders of the table that chooses at run time. A text into which a value has leaked differs everywhere, and is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from dvk.composer.capture.sizes import SizedGraph
from dvk.composer.codegen.base import codegen
from dvk.composer.compose import Part, Plan, fuse, join
from dvk.composer.dropin.facts import Ranges, joined
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.rewrites import packed_weights
from dvk.records import BackendName, Task
from dvk.tasks.dynamic import DynamicDim, is_prime, label

MAX_CUTS = 6
"""Cuts of the stretch around one measured point, one inside the other."""
NARROW = 0.25
"""Width of a stretch, as a share of its smallest size, in which it does not matter on which side of a border a size is."""
SIZE_BOUND_RECIPES = frozenset({"cuda_graph", packed_weights.RECIPE})
"""Recipes whose results hold for one size: oneDNN packs a weight for one shape of the operand."""

Box = dict[str, tuple[int, int]]
"""A stretch of the range: dimension → smallest and largest size."""
Point = Mapping[str, int]


@dataclass(frozen=True)
class SizedParts:
    """Makes the parts of one drop-in for all sizes of a graph.

    Attributes:
        task: of one of the sizes.
    """

    task: Task
    sized: SizedGraph
    backend: BackendName

    def parts(self, points: Sequence[Point], number: int, plan: Plan) -> list[Part]:
        """The parts that serve the sizes nearer to one of the points than to the others.

        Args:
            number: of the point.
            plan: measured there.

        Raises:
            CannotCompose: the plan's program holds for some sizes only.
        """
        box = boxes(self.sized.dims, points)[number]
        recipes = tuple(name for name in plan.recipes if name not in SIZE_BOUND_RECIPES)
        plan = Plan(recipes, plan.schedules)
        pieces = _joined(self._stretch(box, plan, dict(points[number]), MAX_CUTS))
        return [replace(piece.part, within=_ranges(piece.box)) for piece in pieces]

    def _stretch(self, box: Box, plan: Plan, point: dict[str, int], cuts: int) -> list[_Piece]:
        """Pieces for the sizes of a box, cut where decisions change."""
        at = {name: min(max(point[name], lo), hi) for name, (lo, hi) in box.items()}
        first = self._piece(at, plan, box)
        for name, (lo, hi) in box.items():
            ends = [self._piece({**at, name: end}, first.part.plan, box) for end in (lo, hi)]
            if all(end.text == first.text for end in ends):
                continue
            if hi - lo <= NARROW * lo + 2:
                return [self._either(first.part.plan, box)]
            if cuts == 0:
                raise CannotCompose(
                    f"the kernels for {name}={at[name]} do not serve {name}={lo} to {hi}, and no few borders tell where they end"
                )
            middle = min(max(math.isqrt(lo * hi), lo), hi - 1)
            return [
                *self._stretch({**box, name: (lo, middle)}, plan, point, cuts - 1),
                *self._stretch({**box, name: (middle + 1, hi)}, plan, point, cuts - 1),
            ]
        return [first]

    def _either(self, plan: Plan, box: Box) -> _Piece:
        """The text of a narrow box through which a border runs: that of its largest sizes, which serves the smaller ones too.

        Raises:
            CannotCompose: three sizes have three texts, so that a size stands in them as a number.
        """
        pieces: list[_Piece] = []
        at = {name: hi for name, (_, hi) in box.items()}
        for away in range(3):
            piece = self._piece(at, plan, box, skipped=away)
            if any(piece.text == other.text for other in pieces):
                return piece
            pieces.append(piece)
        raise CannotCompose(f"the kernels hold for {label(at)} alone")

    def _piece(self, at: Point, plan: Plan, box: Box, skipped: int = 0) -> _Piece:
        part = _fixed(self._part(at, plan, box, skipped), self.backend)
        return _Piece(part, join([replace(part, within=part.ranges)], self.backend).source, box)

    def _part(self, at: Point, plan: Plan, box: Box, skipped: int) -> Part:
        captured = self.sized.at(self._generic(at, skipped))
        return Part(
            self.task,
            captured,
            fuse(self.task, captured, plan.recipes),
            plan,
            tuple((dim.name, dim.lo, dim.hi) for dim in self.sized.dims),
            _ranges(box),
        )

    def _generic(self, at: Point, skipped: int) -> dict[str, int]:
        """Sizes nearby that no number of the graph equals or divides, so that a comparison is never true by chance: primes.

        They are not smaller, since what holds for larger sizes (64-bit offsets, sums in double) serves smaller ones too.

        Args:
            skipped: number of the nearest ones that are passed over.
        """
        taken = {abs(n) for n in self.sized.numbers()}
        chosen: dict[str, int] = {}
        for name, size in at.items():
            free = (
                n
                for n in range(max(size, 3), 4 * size + 10000)
                if is_prime(n)
                and n not in chosen.values()
                and not any(m % n == 0 for m in taken if m)
            )
            chosen[name] = next(islice(free, skipped, None))
        return chosen


@dataclass(frozen=True)
class _Piece:
    part: Part
    text: str
    box: Box


def _ranges(box: Box) -> Ranges:
    return tuple((name, *ends) for name, ends in box.items())


def _joined(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Pieces whose texts agree and whose boxes make one box, joined."""
    result: list[_Piece] = []
    for piece in pieces:
        last = result[-1] if result else None
        if last is not None and last.text == piece.text:
            whole = joined(_ranges(last.box), _ranges(piece.box))
            if whole is not None:
                result[-1] = replace(last, box={name: (lo, hi) for name, lo, hi in whole})
                continue
        result.append(piece)
    return result


def _fixed(part: Part, backend: BackendName) -> Part:
    """The part with the schedules that it would choose now written into its plan."""
    chosen = {
        k.name: _possible(k, part.schedule(k, backend), backend) for k in part.composition.ordered
    }
    return replace(part, plan=Plan(part.plan.recipes, chosen))


def _possible(kernel: Kernel, wanted: Schedule, backend: BackendName) -> Schedule:
    """The wanted schedule, or the first that can run the kernel at every size.

    Raises:
        CannotCompose: there is none.
    """
    if not kernel.size_arguments:
        return wanted
    writer = codegen(backend)
    for schedule in (wanted, *writer.schedules(kernel)):
        try:
            writer.render(kernel, schedule)
        except CannotCompose as error:
            why = error
        else:
            return schedule
    raise why


def boxes(dims: Sequence[DynamicDim], points: Sequence[Point]) -> list[Box]:
    """The stretch of sizes that is nearest to each point, on a logarithmic scale; points are a grid.

    The stretches cover the range and do not overlap.
    """
    result: list[Box] = []
    for point in points:
        box: Box = {}
        for dim in dims:
            steps = sorted({p[dim.name] for p in points})
            at = steps.index(point[dim.name])
            lo = dim.lo if at == 0 else border(steps[at - 1], steps[at]) + 1
            hi = dim.hi if at == len(steps) - 1 else border(steps[at], steps[at + 1])
            box[dim.name] = (lo, hi)
        result.append(box)
    return result


def border(below: int, above: int) -> int:
    """The largest size that is nearer to `below` than to `above`: their geometric mean."""
    return math.isqrt(below * above)
