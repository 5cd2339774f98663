"""Skills on plans: the facts that conditions are about, a plan with a change applied, and whether a plan follows a skill."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dvk.composer.algorithms import algorithms, elements
from dvk.composer.codegen.analysis.work import does
from dvk.composer.codegen.base import codegen
from dvk.composer.compose import Plan
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.plan_space import PlanSpace
from dvk.records.skill_block import Change, GraphFacts, SkillBlock

NAMED = ("cpp", "triton")
"""Back ends that list more schedules by algorithm than those worth measuring."""


def graph_facts(space: PlanSpace, machine: str = "", regime: str = "") -> GraphFacts:
    """What conditions are about, under the default plan.

    Args:
        machine: fingerprint of the device, as verdicts have it; empty if unknown.
        regime: how candidates are timed; empty if unknown.
    """
    graph, made = space.captured.graph, space.fused(space.default.recipes)
    dtypes = sorted({node.dtype for node in graph.nodes if node.dtype})
    words = {
        "backend": (space.backend,),
        "device": (space.task.device,),
        "machine": machine_words(machine),
        "regime": (regime,) if regime else (),
        "has": tuple(sorted(set(graph.signature()))),
        "dtype": tuple(dtypes),
        "applies": space.choosable(space.order),
    }
    numbers = {
        "kernels": len(made.ordered),
        "calls": sum(prim.kind == "extern" for prim in made.part.users),
        "bytes": sum(kernel.num_bytes for kernel in made.ordered),
    }
    return GraphFacts(
        words={name: found for name, found in words.items() if found},
        numbers=numbers,
        kernels={kernel.name: kernel_facts(kernel) for kernel in made.ordered},
    )


def machine_words(fingerprint: str) -> tuple[str, ...]:
    """`NVIDIA H100 80GB HBM3, torch 2.11.0` → nvidia, h100, 80gb, hbm3."""
    return tuple(dict.fromkeys(re.findall(r"[a-z0-9]+", fingerprint.partition(",")[0].lower())))


def kernel_facts(kernel: Kernel) -> dict[str, str | int]:
    """The facts of one kernel."""
    return {
        "does": does(kernel),
        "family": kernel.family,
        "row_length": int(kernel.row_length),
        "rows": int(kernel.num_rows),
        "elements": int(elements(kernel)),
    }


def applied(space: PlanSpace, plan: Plan, block: SkillBlock, facts: GraphFacts) -> Plan | None:
    """A plan with a skill's change; None where the condition does not hold or nothing can be changed.

    Args:
        facts: those of `graph_facts`.
    """
    if not block.when.holds(facts):
        return None
    change = block.do
    if change.recipes:
        if not set(change.added) <= set(space.order):
            return None
        wanted = {*plan.recipes, *change.added} - {*change.removed}
        recipes = tuple(r for r in dict.fromkeys([*plan.recipes, *space.order]) if r in wanted)
        return None if recipes == plan.recipes else Plan(recipes, plan.schedules)
    schedules = dict(plan.schedules)
    for kernel in _covered(space, plan, block):
        current = plan.schedules.get(kernel.name) or space.first(kernel)
        schedule = _wanted(space, kernel, current, change)
        if schedule is not None and schedule != current:
            schedules[kernel.name] = schedule
    return None if schedules == plan.schedules else replace(plan, schedules=schedules)


def follows(space: PlanSpace, plan: Plan, block: SkillBlock, facts: GraphFacts) -> bool:
    """Whether a plan is as a skill says, whose condition holds."""
    if not block.when.of_task(facts):
        return False
    if block.do.recipes:
        return block.when.holds(facts) and block.do.is_in(plan.recipes)
    tag = codegen(space.backend).schedule_types[0].tag
    kernels = list(_covered(space, plan, block))
    printed: Iterator[Mapping[str, object]] = (
        (plan.schedules.get(k.name) or space.first(k)).printed() for k in kernels
    )
    possible = [_wanted(space, k, space.first(k), block.do) is not None for k in kernels]
    fits = [block.do.is_schedule(one, tag) for one in printed]
    return any(fits) and all(fit or not can for fit, can in zip(fits, possible, strict=True))


def _covered(space: PlanSpace, plan: Plan, block: SkillBlock) -> Iterator[Kernel]:
    """The plan's kernels for which the terms on kernels hold."""
    for kernel in space.fused(plan.recipes).ordered:
        if block.when.covers(kernel_facts(kernel)):
            yield kernel


def _wanted(space: PlanSpace, kernel: Kernel, current: Schedule, change: Change) -> Schedule | None:
    """The first listed schedule that is as the change says, or the current one; None if the kernel has none."""
    writer = codegen(space.backend)
    tag = writer.schedule_types[0].tag
    if change.is_schedule(current.printed(), tag):
        return current
    listed = list(writer.schedules(kernel, space.target))
    if space.backend in NAMED:
        try:
            every = algorithms(kernel, space.backend, space.target)
        except CannotCompose:
            every = {}
        listed += [one for options in every.values() for one in options]
    fitting = [one for one in listed if change.is_schedule(one.printed(), tag)]
    return next(iter(fitting), None)
