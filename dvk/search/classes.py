"""The measurements of one search by class of kernels (`dvk.composer.kernel_classes`)."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from dvk.composer import codegen, fuse
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import PrintedSchedule
from dvk.composer.kernel_classes import class_of, group_equal_kernels
from dvk.composer.recipes import RECIPES
from dvk.records import Candidate, Interval, Verdict
from dvk.search import SearchProblem
from dvk.search.tunings import Known, ObservedGain, TunedSchedule

WIDE = 0.07
"""Half of a gain's 95 % interval, in logarithms, from which on it says nothing: both times are known to about 5 % then, and the luckiest
of a kernel's schedules looks that much better than it is. On a GPU it is 0.01, on a quiet CPU several times that."""


def measurements(
    problem: SearchProblem, tried: Sequence[tuple[Candidate, Verdict]]
) -> list[ObservedGain]:
    """Measurements of kernels from verdicts: those of candidates that differ in the schedule of one (and of its like) from one with the
    default there.

    Args:
        tried: the composer's candidates with their verdicts; untimed ones are skipped, and those timed too roughly (`WIDE`).
    """
    captured, writer = problem.captured, codegen(problem.backend)
    assert captured is not None

    def defaults(group: list[Kernel]) -> dict[str, PrintedSchedule]:
        return {k.name: writer.default_schedule(k, problem.target).printed() for k in group}

    timed = [
        (structure(c), c.schedule, v.timing)
        for c, v in tried
        if v.timing is not None and v.tier == "search"
    ]
    speeds = {
        (_key(recipes, schedule), timing.regime): timing.speedup
        for recipes, schedule, timing in timed
    }
    groups = {
        recipes: group_equal_kernels(fuse(problem.task, captured, recipes).ordered)
        for recipes in {recipes for recipes, _, _ in timed}
    }
    logs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for recipes, schedule, timing in timed:
        for group in groups[recipes]:
            base = speeds.get((_key(recipes, {**schedule, **defaults(group)}), timing.regime))
            mine = [json.dumps(schedule.get(k.name), sort_keys=True) for k in group]
            if (
                base
                and len(set(mine)) == 1
                and (width := math.hypot(_width(timing.speedup), _width(base))) <= WIDE
            ):
                logs[class_of(group[0]), mine[0]].append(
                    (math.log(timing.speedup.value / base.value), width)
                )
    return [
        ObservedGain(
            kind,
            json.loads(text),
            math.exp(sum(log for log, _ in found) / len(found)),
            math.hypot(*(width for _, width in found)) / len(found),
        )
        for (kind, text), found in logs.items()
    ]


def carried_over(pairs: Sequence[tuple[Kernel, Kernel]], found: Sequence[ObservedGain]) -> Known:
    """A search's measurements for kernels of another search that do the same at other sizes: schedules that gained, by class of the
    latter. Losing schedules are left out: they may well win at other sizes.

    Args:
        pairs: a kernel of the search, and its counterpart.
        found: what the search measured.
    """
    known: Known = {}
    for kernel, other in pairs:
        gains = sorted(
            (o for o in found if o.kernel == class_of(kernel) and o.gain > 1), key=lambda o: -o.gain
        )
        if gains:
            known[class_of(other)] = tuple(
                TunedSchedule(o.schedule, o.gain, 1, o.width) for o in gains
            )
    return known


def counterparts(ones: Sequence[Kernel], others: Sequence[Kernel]) -> list[tuple[Kernel, Kernel]]:
    """Kernels at the same place in two programs of one module, if they do the same."""
    if len(ones) != len(others):
        return []
    return [
        (a, b)
        for a, b in zip(ones, others)
        if [(i.op, i.type) for i in a.instrs] == [(i.op, i.type) for i in b.instrs]
    ]


def structure(candidate: Candidate) -> tuple[str, ...]:
    """Its recipes without schedules."""
    return tuple(r for r in candidate.recipes if r in RECIPES and RECIPES[r].kind != "schedule")


def _width(speedup: Interval) -> float:
    """Half of the interval, in logarithms."""
    return math.log(speedup.hi / speedup.lo) / 2


def _key(recipes: tuple[str, ...], schedule: Mapping[str, PrintedSchedule]) -> str:
    return json.dumps([recipes, schedule], sort_keys=True)
