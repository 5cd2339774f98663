"""Moves from one plan of the composer to the next: kinds and regions.

    region `graph`    `with own_matmul`, `without channels_last`: a recipe more, or one less
    a kernel          `row split`, `product dot`: another way to compute it, for all kernels that do the same; the plan's own
                      way while there are numbers (blocks, chunks, warps) that were not tried

A move says what to do. The composer decides which of an algorithm's numbers are worth measuring, and writes the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from dvk.agents import notes
from dvk.agents.planning import GRAPH, Move, PlanRegion
from dvk.composer import Plan
from dvk.composer.codegen.analysis.work import does
from dvk.composer.fusion.groups import FusionGroup
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.kernel_classes import group_equal_kernels, work_of
from dvk.composer.recipes import RECIPES
from dvk.composer.rewrites.edit import packet
from dvk.nanolang import algorithms, name_of
from dvk.records import BackendName, Candidate
from dvk.search.composer import Planner, differences

PLAIN = ("pointwise", "row", "column")
"""Families whose algorithms have separate names; those of others are named by their schedules."""


@dataclass(frozen=True)
class PlanAttempt:
    """One program that a move leads to."""

    plan: Plan
    candidate: Candidate
    changed: str
    """Numbers that the composer chose; empty if it had no choice."""


class ProposedPlans:
    """Programs that a search has proposed so far, so that no move leads there again."""

    def __init__(self) -> None:
        self._plans: set[object] = set()
        self._programs: set[str] = set()

    def add(self, plan: Plan, candidate: Candidate) -> bool:
        """Record a plan; returns whether its program is new."""
        self._plans.add(_key(plan))
        new = candidate.id not in self._programs
        self._programs.add(candidate.id)
        return new

    def __contains__(self, known: Plan | Candidate) -> bool:
        return _key(known) in self._plans if isinstance(known, Plan) else known.id in self._programs


class PlanPosition:
    """A plan, and the moves that lead on from it.

    Args:
        planner: writes candidates.
        plan: kernels without a schedule in it get the first.
        proposed: programs to avoid; attempts are recorded there.
    """

    def __init__(self, planner: Planner, plan: Plan, proposed: ProposedPlans):
        self.planner, self.proposed = planner, proposed
        self.composition = planner.fused(plan.recipes)
        self.kernels = self.composition.ordered
        self.plan = Plan(
            plan.recipes,
            {k.name: plan.schedules.get(k.name) or planner.first(k) for k in self.kernels},
        )
        self.groups = {group[0].name: group for group in group_equal_kernels(self.kernels)}
        self._ways = {name: algorithms_of(planner, group[0]) for name, group in self.groups.items()}
        self._toggled = self._toggles()

    # ------------------------------------------------------------ legal moves

    @property
    def legal(self) -> dict[str, dict[str, list[Plan]]]:
        """Region → kind → plans it leads to that were not proposed; regions without any are left out."""
        found = {GRAPH: {kind: [plan] for kind, plan in self._toggled.items()}}
        for name, group in self.groups.items():
            found[name] = {
                way: [self._scheduled(group, option) for option in options]
                for way, options in self._ways[name].items()
            }
        fresh = {
            region: {
                kind: left
                for kind, plans in kinds.items()
                if (left := [plan for plan in plans if plan not in self.proposed])
            }
            for region, kinds in found.items()
        }
        return {region: kinds for region, kinds in fresh.items() if kinds}

    def refusal(self, move: Move) -> str:
        """Why a move cannot be made here, in a line; empty if it can."""
        region = self._region(move.region)
        if region is None:
            return (
                f"there is no such region; there are {notes.line(', '.join([GRAPH, *self.groups]))}"
            )
        kinds = self.legal.get(region, {})
        if move.kind in kinds:
            return ""
        return (
            f"not legal there; legal are {', '.join(f'`{kind}`' for kind in kinds)}"
            if kinds
            else "nothing is left to try there"
        )

    def attempts(self, move: Move, most: int) -> list[PlanAttempt]:
        """New programs that a legal move leads to, the likeliest first, recorded as proposed; empty if all are known."""
        region = self._region(move.region)
        assert region is not None, "the move is legal"
        result: list[PlanAttempt] = []
        for plan in self.legal[region][move.kind]:
            if len(result) == most:
                break
            changed = (
                differences(self.plan.schedules[region], plan.schedules[region])
                if region != GRAPH
                else ""
            )
            candidate = self.planner.candidate(plan, "")
            if self.proposed.add(plan, candidate):
                title = f"{move.kind} on {region}" + (f": {changed}" if changed else "")
                result.append(
                    PlanAttempt(plan, candidate.model_copy(update={"title": title}), changed)
                )
        return result

    def _region(self, name: str) -> str | None:
        """The region a name stands for: any kernel of a group stands for the group."""
        if name == GRAPH:
            return name
        return next(
            (
                first
                for first, group in self.groups.items()
                if name in (kernel.name for kernel in group)
            ),
            None,
        )

    def _scheduled(self, group: list[Kernel], schedule: Schedule) -> Plan:
        return Plan(
            self.plan.recipes,
            {**self.plan.schedules, **{kernel.name: schedule for kernel in group}},
        )

    def _toggles(self) -> dict[str, Plan]:
        """The plan with each recipe that it lacks, and without each that it has, if that gives a new program."""
        held = {work_of(kernel): self.plan.schedules[kernel.name] for kernel in self.kernels}
        result = {}
        for recipe in self.planner.order:
            if RECIPES[recipe].kind == "schedule":
                continue
            chosen = set(self.plan.recipes) ^ {recipe}
            recipes = tuple(name for name in self.planner.order if name in chosen)
            kernels = self.planner.fused(recipes).ordered
            plan = Plan(
                recipes, {k.name: held.get(work_of(k)) or self.planner.first(k) for k in kernels}
            )
            if self.planner.candidate(plan, "") not in self.proposed:
                result[f"with {recipe}" if recipe in chosen else f"without {recipe}"] = plan
        return result

    # ------------------------------------------------------------ facts

    def regions(self, most: int) -> list[PlanRegion]:
        """The graph, then at most so many kernels: those with moves left that touch most bytes."""
        legal = self.legal
        groups = sorted(
            (name for name in self.groups if name in legal),
            key=lambda name: -sum(k.num_bytes for k in self.groups[name]),
        )
        shown = [self._kernels(name, legal[name]) for name in groups[:most]]
        return [
            PlanRegion(
                GRAPH,
                self._whole(len(groups) - len(shown)),
                {kind: self._why(kind) for kind in legal.get(GRAPH, {})},
            ),
            *shown,
        ]

    def _whole(self, hidden: int) -> str:
        calls = Counter(
            packet(step.node)
            for step in self.composition.part.schedule
            if not isinstance(step, FusionGroup)
            and step.kind == "extern"
            and step.node is not None
            and packet(step.node)
        )
        recipes = [name for name in self.plan.recipes if RECIPES[name].kind != "schedule"]
        told = [
            f"recipes: {', '.join(recipes) or 'none'}",
            _counted(len(self.kernels), "kernel") + " of our own",
        ]
        told.append(
            "left to PyTorch: "
            + (
                ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in calls.items())
                or "nothing"
            )
        )
        return "; ".join(
            [
                *told,
                *(
                    [_counted(hidden, "kind") + " of kernel that move less are not listed"]
                    if hidden
                    else []
                ),
            ]
        )

    def _why(self, kind: str) -> str:
        """A recipe kind's requirements, and when it pays by the best skill that has it."""
        recipe = kind.partition(" ")[2]
        skill = next(
            (skill for skill in self.planner.problem.skills if skill.recipe == recipe), None
        )
        return RECIPES[recipe].condition + (
            f"; pays: {notes.note(skill).when}" if skill is not None else ""
        )

    def _kernels(self, name: str, kinds: Mapping[str, list[Plan]]) -> PlanRegion:
        group = self.groups[name]
        kernel, schedule = group[0], self.plan.schedules[name]
        backend, every = self.planner.problem.backend, sum(k.num_bytes for k in self.kernels) or 1
        touched = sum(k.num_bytes for k in group)
        size = (
            f"{kernel.num_rows:,} rows of {kernel.row_length:,}"
            if kernel.reduced
            else f"{kernel.num_rows:,} elements"
        )
        facts = [
            f"{' '.join(dict.fromkeys((kernel.family, does(kernel))))}, {size}",
            f"computes {notes.line(self._computed(kernel))}",
            f"{touched / 1e6:.3g} MB, {touched / every:.0%} of what all kernels move",
            f"now `{algorithm_of(kernel, schedule, backend)}` ({_numbers(schedule)})",
        ]
        if len(group) > 1:
            facts.append(f"{len(group)} alike: {notes.line(', '.join(k.name for k in group))}")
        return PlanRegion(
            name,
            "; ".join(facts),
            {kind: _counted(len(plans), "schedule") + " to try" for kind, plans in kinds.items()},
        )

    def _computed(self, kernel: Kernel) -> str:
        """The listing's values that are made in a kernel, and by which operations."""
        origins = self.composition.prims.origins
        group = next(
            s
            for s in self.composition.part.schedule
            if isinstance(s, FusionGroup) and self.composition.kernels[id(s)] is kernel
        )
        values = dict.fromkeys(origins[prim] for prim in group.members if prim in origins)
        return f"{', '.join(values)} ({kernel.summary or 'a copy'})"


def algorithms_of(planner: Planner, kernel: Kernel) -> dict[str, list[Schedule]]:
    """Ways to compute a kernel, each with its schedules: those that the composer would measure first, then all other right ones."""
    backend = planner.problem.backend
    options = list(planner.options(kernel))
    if backend != "cuda" and kernel.family in PLAIN:
        options += [
            option
            for some in algorithms(kernel, backend, planner.problem.target).values()
            for option in some
        ]
    result: dict[str, list[Schedule]] = {}
    for option in options:
        schedules = result.setdefault(algorithm_of(kernel, option, backend), [])
        if option not in schedules:
            schedules.append(option)
    return result


def algorithm_of(kernel: Kernel, schedule: Schedule, backend: BackendName) -> str:
    """The algorithm of a schedule: `row looped online`, `product dot`, `window unrolled`."""
    if backend != "cuda" and kernel.family in PLAIN:
        return name_of(kernel, schedule, backend)
    printed = schedule.printed()
    words = [*kernel.family.split("_"), *str(printed.get("kind", "")).split("_")]
    words += [str(printed.get(key, "")) for key in ("dot", "form", "walk")]
    split = printed.get("splits", 1) != 1 or printed.get("parallel") == "inner"
    words += ["split"] if split else []
    words += [word for word in ("unrolled", "unroll", "online") if printed.get(word)]
    words += ["persistent"] if printed.get("programs") else []
    return " ".join(dict.fromkeys(word for word in words if word))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _numbers(schedule: Schedule) -> str:
    printed = schedule.printed()
    return ", ".join(f"{name} {value}" for name, value in printed.items() if type(value) is int)


def _key(plan: Plan) -> object:
    return frozenset(plan.recipes), frozenset(plan.schedules.items())
