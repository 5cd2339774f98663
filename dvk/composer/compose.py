"""Compose a candidate from a captured graph and a plan: rewrite, lower, fuse, render, write.

A `Plan` is data: the recipes to apply and a schedule per kernel. It determines the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dvk.composer import recipes
from dvk.composer.capture.export import CannotCompose, CapturedGraph
from dvk.composer.codegen.base import Codegen, KernelSet, codegen
from dvk.composer.dropin import facts, forward, layouts, source_file
from dvk.composer.fusion import (
    attention_chains,
    column_sums,
    crossing,
    matmul_rules,
    moving_averages,
    recompute,
    siblings,
)
from dvk.composer.fusion.allowed import allowed
from dvk.composer.fusion.build import build
from dvk.composer.fusion.groups import FusionGroup, Partition, output_bases
from dvk.composer.fusion.matmul_rules import is_product, may_join, reads_memory
from dvk.composer.fusion.partition import partition
from dvk.composer.ir.attention_kernel import FAMILY
from dvk.composer.ir.layers import layer_of
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.nodes import IRNode, View
from dvk.composer.ir.recurrence import Recurrence
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.ir.time_scan import TimeScan
from dvk.composer.lowering import convolution
from dvk.composer.lowering.whole_graph import PrimGraph, lower
from dvk.composer.occasion import is_static
from dvk.composer.rewrites import own_places
from dvk.records import Candidate, Graph, Task


@dataclass(frozen=True)
class Plan:
    """Instructions for one candidate: recipe names in order, and a schedule by kernel name (the default if missing)."""

    recipes: tuple[str, ...]
    schedules: Mapping[str, Schedule] = field(default_factory=dict)

    @classmethod
    def of(cls, candidate: Candidate, recipes: tuple[str, ...] | None = None) -> Plan:
        """The plan that a candidate of the composer executes.

        Args:
            recipes: instead of the candidate's.

        Raises:
            UsageError: a schedule is none of the back end's; it names the choices.
        """
        parse = codegen(candidate.backend).parse
        schedules = {name: parse(printed, name) for name, printed in candidate.schedule.items()}
        return cls(candidate.recipes if recipes is None else recipes, schedules)


@dataclass(frozen=True)
class Composition:
    """A graph fused under some recipes, before schedules are chosen."""

    graph: Graph
    prims: PrimGraph
    part: Partition
    kernels: dict[int, Kernel]
    """Kernels by identity of their group."""
    back: Composition | None = None
    """The backward program of a training step."""

    @property
    def every(self) -> dict[int, Kernel]:
        """Kernels by identity of their group, the backward's included."""
        return self.kernels | (self.back.kernels if self.back is not None else {})

    @property
    def recurrences(self) -> list[Recurrence | TimeScan]:
        """Recurrent layers and loops over time steps, each with a function next to the kernels."""
        return [
            layer
            for step in self.part.schedule
            if isinstance(step, IRNode) and (layer := layer_of(step)) is not None
        ]

    @property
    def ordered(self) -> list[Kernel]:
        """Kernels in launch order."""
        mine = [
            self.kernels[id(step)] for step in self.part.schedule if isinstance(step, FusionGroup)
        ]
        return mine + (self.back.ordered if self.back is not None else [])


def fuse(task: Task, captured: CapturedGraph, names: tuple[str, ...]) -> Composition:
    """Apply the graph recipes among `names`, lower and partition."""
    tf32 = task.precision == "tf32"
    if (training := captured.training) is None:
        return fuse_graph(captured.graph, names, task.device, tf32)
    made = fuse_graph(training.forward, names, task.device, tf32, join=True)
    first = len(made.kernels)
    back = fuse_graph(training.backward, names, task.device, tf32, first, join=True)
    return replace(made, back=back)


def fuse_graph(
    graph: Graph,
    names: tuple[str, ...],
    device: str,
    tf32: bool = False,
    first: int = 0,
    join: bool = False,
) -> Composition:
    """Fuse like `fuse`, from a graph alone; kernels are numbered from `first`. With `join`, small ones side by side are one."""
    if recipes.OWN_ATTENTION not in names or device != "cuda":
        return _fused(recipes.rewrite(graph, names, device), names, device, tf32, first, join)
    # As a call of the library, an added mask is first checked for rows without a key. The kernels of this back end need no call.
    found = []
    for called in dict.fromkeys((False, "attention" in names)):
        some = names if called else tuple(n for n in names if n != "attention")
        own = own_places.rewrite(recipes.rewrite(graph, some, device))
        made = _fused(own, some, device, tf32, first, join)
        found.append((sum(k.family == FAMILY for k in made.kernels.values()), made))
    return max(found, key=lambda one: one[0])[1]


def _fused(
    graph: Graph,
    names: tuple[str, ...],
    device: str,
    tf32: bool,
    first: int,
    join: bool,
    again: bool = False,
) -> Composition:
    """Fuse a rewritten graph; `again`: some of it is computed twice already."""
    how = allowed(graph, names), names.__contains__, tf32
    prims = lower(graph, *how, device=device)
    if repeated := matmul_rules.repeated(prims):
        prims = lower(graph, *how, repeated, device)
    merge = partial(_may_merge, names, device)
    strides = layouts.layouts(graph, prims)
    fixed = {v.base for v in prims.values.values() if isinstance(v, View)} | output_bases(prims)
    if recipes.COLUMN_SUMS in names:
        part = column_sums.partitioned(prims, merge, device)
    else:
        part = partition(prims, merge)
        if device == "cuda" and (apart := crossing.kept_apart(part, strides, fixed)):
            part = partition(
                prims, lambda a, b, v: merge(a, b, v) and not crossing.is_between(apart, a, b)
            )
    if not matmul_rules.are_whole(part):
        names = tuple(n for n in names if n not in convolution.PRODUCTS)
        return _fused(graph, names, device, tf32, first, join, again)
    if device == "cuda" and not join and not again:
        twice = recompute.recomputed(graph, prims, part)
        if twice is not None:
            return _fused(twice, names, device, tf32, first, join, again=True)
    if join:
        part = siblings.joined(prims, part)
    strides |= layouts.layouts_as_read(part, strides, fixed)
    kernels: dict[int, Kernel] = {}
    for step in part.schedule:
        if isinstance(step, FusionGroup):
            kernels[id(step)] = build(step, part, f"k{first + len(kernels)}", strides)
    if recipes.OWN_ATTENTION in names and device == "cuda":
        part, kernels = attention_chains.joined(part, kernels, output_bases(prims))
        kernels = {k: replace(v, name=f"k{first + n}") for n, (k, v) in enumerate(kernels.items())}
    part, kernels = moving_averages.updated_inside(
        prims, part, kernels, strides, output_bases(prims)
    )
    return Composition(graph, prims, part, kernels)


def _may_merge(
    names: tuple[str, ...], device: str, first: FusionGroup, second: FusionGroup, value: IRNode
) -> bool:
    if reads_memory(second, value):
        return False
    if is_product(first) or is_product(second):
        gathers = reads_elsewhere(first) or reads_elsewhere(second)
        return (device == "cuda" or not gathers) and may_join(first, second, value)
    if (first.is_windowed or second.is_windowed) and (
        reads_elsewhere(first) or reads_elsewhere(second)
    ):
        return False
    if is_codegen(first) or is_codegen(second):
        return True
    if first.reduced or second.reduced:
        return "fuse_rowwise" in names
    return "fuse_pointwise" in names or "fuse_epilogue" in names


def is_codegen(group: FusionGroup) -> bool:
    """The group has work of a family that a separate recipe allowed."""
    return any(p.attrs.get("own") or p.op == "bounded" for p in group.members)


def reads_elsewhere(group: FusionGroup) -> bool:
    """The group reads at computed indices, which loops of windows do not support, and those of matmuls on a GPU alone."""
    return any(p.op == "gather" for p in group.members)


@dataclass(frozen=True)
class Part:
    """A graph fused and scheduled: the program for one set of inputs."""

    task: Task
    captured: CapturedGraph
    composition: Composition
    plan: Plan
    ranges: facts.Ranges = ()
    """Dimensions whose sizes the program reads at run time (`capture.sizes`), and all sizes that the drop-in serves."""
    within: facts.Ranges = ()
    """The sizes that this part serves."""

    def schedule(self, kernel: Kernel, backend: str) -> Schedule:
        """The schedule of one of the composition's kernels.

        Raises:
            CannotCompose: the plan's cannot run it.
        """
        schedule = self.plan.schedules.get(kernel.name) or codegen(backend).default_schedule(kernel)
        schedule.require_family(kernel.family)
        return schedule

    @property
    def may_write_over(self) -> bool:
        """Kernels may store results over the result of a call."""
        return "inplace_epilogue" in self.plan.recipes

    def inplace(self, kernel: Kernel, writer: Codegen) -> dict[int, int]:
        """Output index → index of the input that it overwrites."""
        made = self.composition
        if made.back is not None and any(kernel is one for one in made.back.kernels.values()):
            made = made.back
        pairs = (
            forward.inplace_pairs(
                kernel, made.part, made.prims, output_bases(made.prims), writer.splits_rows
            )
            if self.may_write_over
            else {}
        )
        return pairs | kernel.updated


def compose(
    task: Task,
    captured: CapturedGraph,
    plan: Plan,
    backend: str,
    *,
    skills: tuple[str, ...] = (),
    title: str = "",
) -> Candidate:
    """Write a candidate that executes the plan."""
    return write(
        task,
        captured,
        fuse(task, captured, plan.recipes),
        plan,
        backend,
        skills=skills,
        title=title,
    )


def write(
    task: Task,
    captured: CapturedGraph,
    composition: Composition,
    plan: Plan,
    backend: str,
    *,
    skills: tuple[str, ...] = (),
    title: str = "",
) -> Candidate:
    """Write a candidate from a graph already fused."""
    return join([Part(task, captured, composition, plan)], backend, skills=skills, title=title)


def join(
    parts: Sequence[Part], backend: str, *, skills: tuple[str, ...] = (), title: str = ""
) -> Candidate:
    """Write one candidate that runs, for each part's inputs, that part's plan. Kernels common to two parts are written once.

    Raises:
        CannotCompose: the parts belong to different modules, or the back end has no kernel for some operator.
    """
    task = parts[0].task
    if not any(
        part.plan.recipes or part.composition.every or part.composition.recurrences
        for part in parts
    ):
        title = title or "as it is"
        return Candidate(
            source=source_file.unchanged(task, title),
            backend=backend,
            proposer="composer",
            title=title,
            skills=skills,
        )
    writer = codegen(backend)
    named = distinct(parts, backend)
    kernels = {kernel.name: kernel for of_part in named for kernel in of_part.values()}
    chosen = {
        of_part[key].name: part.schedule(kernel, backend)
        for part, of_part in zip(parts, named, strict=True)
        for key, kernel in part.composition.every.items()
    }
    programs = _Programs()
    for part, of_part in zip(parts, named, strict=True):
        programs.add(part, of_part, writer, chosen)
    recurrences = programs.recurrences
    for layer in recurrences:
        if not isinstance(layer, writer.layer_types):
            what = "loops over time steps" if isinstance(layer, TimeScan) else "recurrent layers"
            raise CannotCompose(f"the {backend} backend has no kernels for {what}")
    applied = tuple(dict.fromkeys(name for part in parts for name in part.plan.recipes))
    layers = {name: layer for layer, name in recurrences.items()}
    module = writer.module(
        KernelSet(tuple(kernels.values()), chosen, programs.inplace, layers, frozenset(applied))
    )
    title = title or f"{len(kernels) + len(layers)} fused kernels" + facts.whom(parts)
    source = source_file.write(
        task,
        programs.fused,
        kernels=module.text,
        runtime=module.runtime,
        load=list(module.load),
        title=title,
        header=module.header,
    )
    return Candidate(
        source=source,
        backend=backend,
        proposer="composer",
        title=title,
        skills=skills,
        recipes=applied,
        schedule={name: schedule.printed() for name, schedule in chosen.items()},
    )


@dataclass
class _Programs:
    """The host programs of the parts of one drop-in, and what they ask of its kernels."""

    fused: list[facts.Fused] = field(default_factory=list)
    inplace: dict[str, dict[int, int]] = field(default_factory=dict)
    """Kernel name → output index → index of the input that it overwrites."""
    recurrences: forward.Recurrences = field(default_factory=dict)
    _makers: forward.Makers = field(default_factory=dict)
    _hosts: list[forward.HostWriter] = field(default_factory=list)
    """Kept: derived values are named by the identity of their host."""

    def add(
        self,
        part: Part,
        kernels: dict[int, Kernel],
        writer: Codegen,
        chosen: Mapping[str, Schedule],
    ) -> None:
        """Write the host program of a part.

        Args:
            kernels: the part's, by identity of their group.
            chosen: schedules by kernel name.
        """
        recipes_of = part.plan.recipes
        program = self._program(part, part.composition, kernels, writer, chosen)
        back = part.composition.back
        backward = None if back is None else self._program(part, back, kernels, writer, chosen)
        replayed = "cuda_graph" in recipes_of and part.task.device == "cuda"
        # Only some rewrites take out of a graph what waits for the device.
        replayed &= is_static(part.captured.graph) or is_static(part.composition.graph)
        fused = facts.Fused(part.captured, program, replayed, backward, part.ranges, part.within)
        whole = self.fused[-1].joined(fused) if self.fused else None
        self.fused[-1:] = [whole] if whole is not None else [*self.fused[-1:], fused]

    def _program(
        self,
        part: Part,
        made: Composition,
        kernels: dict[int, Kernel],
        writer: Codegen,
        chosen: Mapping[str, Schedule],
    ) -> forward.ForwardProgram:
        host = forward.HostWriter(
            made.graph,
            made.prims,
            made.part,
            kernels,
            lambda k, i, o: writer.launch(k, chosen[k.name], i, o),
            part.may_write_over,
            part.task.device,
            self._makers,
            self.recurrences,
            part.plan.recipes,
            writer.splits_rows,
            made is part.composition.back,
            writer.launch_layer,
        )
        self._hosts.append(host)
        program = host.program()
        if part.captured.training is not None and program.may_go_back:
            raise CannotCompose("a training step cannot stop halfway and run the original")
        self.inplace |= program.inplace
        return program


def distinct(parts: Sequence[Part], backend: str) -> list[dict[int, Kernel]]:
    """Each part's kernels by identity of their group, named as in one drop-in: kernels of earlier parts keep their names."""
    if len(parts) == 1:
        return [parts[0].composition.every]
    writer = codegen(backend)
    known: dict[object, str] = {}
    result: list[dict[int, Kernel]] = []
    number = 0
    for part in parts:
        named: dict[int, Kernel] = {}
        mine: dict[object, str] = {}
        for key, kernel in part.composition.every.items():
            schedule = part.schedule(kernel, backend)
            plain = replace(kernel, name="k")
            text = writer.render(plain, schedule, part.inplace(kernel, writer))
            same = (text, str(kernel.num_rows), str(kernel.row_length), schedule)
            if (name := known.get(same)) is None:
                name, number = f"k{number}", number + 1
            mine.setdefault(same, name)
            named[key] = replace(kernel, name=name)
        known = {**mine, **known}
        result.append(named)
    return result
