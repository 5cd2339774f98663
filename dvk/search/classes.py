"""Classes of kernels that a schedule treats alike, and the measurements of one search by class.

A class holds the facts that decide between schedules: the kind of work, the widest type, how many large tensors are read, whether reading
runs across memory, and the sizes to the nearest power of two. Operators are not in it: a pointwise kernel's arithmetic hardly
matters compared with its reads.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from dvk.composer import codegen, fuse
from dvk.composer.codegen.analysis.work import does
from dvk.composer.ir.conv_form import direct_form
from dvk.composer.ir.loops import READS, Kernel
from dvk.composer.ir.matmul_form import MatmulForm, form_of
from dvk.composer.ir.nodes import BYTES
from dvk.composer.ir.schedules.base import PrintedSchedule
from dvk.composer.recipes import RECIPES
from dvk.records import Candidate, Interval, Verdict
from dvk.search import SearchProblem
from dvk.search.tunings import Known, ObservedGain, TunedSchedule

MANY = 4
"""Maximal count of large tensors read in a class name; more are treated alike."""
WIDE = 0.07
"""Half of a gain's 95 % interval, in logarithms, from which on it says nothing: both times are known to about 5 % then, and the luckiest
of a kernel's schedules looks that much better than it is. On a GPU it is 0.01, on a quiet CPU several times that."""


def class_of(kernel: Kernel) -> str:
    """As text, for people too: `row softmax float32, 1 read, 2^13 rows of 2^10`."""
    form = form_of(kernel) if kernel.family == "product" else None
    if form is not None:
        return _product(kernel, form)
    largest = max((b.numel for b in kernel.inputs), default=0)
    reads = min(sum(4 * b.numel >= largest for b in kernel.inputs), MANY)
    widest = max(
        (b.dtype for b in (*kernel.inputs, *kernel.outputs)),
        key=lambda dtype: BYTES[dtype],
        default="none",
    )
    crossing = ", across" if kernel.family == "pointwise" and _crosses(kernel) else ""
    kind = kernel.family if kernel.family == "pointwise" else f"{kernel.family} {does(kernel)}"
    length = f" of 2^{round(math.log2(max(kernel.row_length, 1)))}" if kernel.reduced else ""
    return f"{kind} {widest}, {reads} read{crossing}, 2^{round(math.log2(max(kernel.num_rows, 1)))} rows{length}"


def _product(kernel: Kernel, form: MatmulForm) -> str:
    """`product bfloat16, 2^12 × 2^12 of 2^10`: rows, columns and k decide, and which of an operand's dimensions memory walks first."""
    batch, rows, columns = (round(math.log2(max(size, 1))) for size in form.sizes)
    k = kernel.reduced[-1]
    lies = "".join(
        "k" if i.op == "load" and abs(i.offset.coef(k)) == 1 else "-"
        for i in (form.terms[0].left, form.terms[0].right)
    )
    many = (
        f"2^{batch} of " if batch else ""
    ) + f"2^{rows} × 2^{columns} of 2^{round(math.log2(kernel.row_length))}"
    terms = f", {len(form.terms)} at once" if len(form.terms) > 1 else ""
    return f"{does(kernel)} {'tf32' if form.tf32 else form.dtype}, {lies}, {many}{terms}"


def _crosses(kernel: Kernel) -> bool:
    """Whether two accesses walk memory by different variables."""
    offsets = [i.offset for i in kernel.instrs if i.op in READS] + [s.offset for s in kernel.stores]
    return len({min(o.terms, key=lambda term: abs(term[1]))[0] for o in offsets if o.terms}) > 1


def group_equal_kernels(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Groups of kernels that do the same on the same sizes and types; in the order of their first."""
    result: dict[object, list[Kernel]] = {}
    for kernel in kernels:
        result.setdefault(work_of(kernel), []).append(kernel)
    return list(result.values())


def work_of(kernel: Kernel) -> object:
    """Key of kernels that do the same on the same sizes and types: one schedule suits all of them."""
    sizes = tuple(v.size for v in (*kernel.rows, *kernel.reduced))
    does_ = tuple((i.op, i.type, i.compute) for i in kernel.instrs)
    return class_of(kernel), sizes, does_, _walks(kernel)


def _walks(kernel: Kernel) -> object:
    """Memory layout of a convolution's windows: some layouts and strides have separate schedules."""
    form = direct_form(kernel)
    lane = form.lane if form is not None else None
    return lane and (
        lane.stride,
        lane.dilation,
        lane.places,
        form.band is not None,  # type: ignore[union-attr]
        form.outputs is not None,  # type: ignore[union-attr]
    )


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
