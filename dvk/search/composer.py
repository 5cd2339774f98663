"""The composer's own search: structure first, then one kernel's schedule at a time.

Skills steer it: the recipes of the skills that retrieval ranks for the task are proposed in their
order, the remaining applicable ones after them; each is kept if it measured faster. Then every
kernel's schedules are tried, the kernel that moves most bytes first, until nothing improves. Kernels
that do the same on the same sizes, as in repeated blocks of a network, are tried as one.

A call that replays its kernels as one CUDA graph is proposed once the structure is chosen, if all candidates are timed from end to
end, as in `dvk optimize` of long calls: it is kept if it measured faster, and schedules are tried in it, because a slow host would hide
their effect. If the others are timed on the device alone (`dvk.harness.session.judge_session`, contract `auto`), it is compared with
nothing here, and proposed after the schedules. Second times decide between the two.
Networks of many calls are graphs from the start: the host would hide what each recipe gains. Convolutions are tried in channels-last
memory first, and everything else upon the faster layout.

Earlier searches' measurements of kernels of the same class (`tunings`) steer it, too: a kernel starts with the schedule that was
best, others are tried in the order of their gains, and losing ones are left out.

Where nothing was shown to be faster, the last candidate is the model as it is (`as_it_is`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from dvk.composer import CannotCompose, Plan, codegen
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.kernel_classes import class_of, group_equal_kernels
from dvk.composer.plan_change import graph_facts
from dvk.composer.plan_space import AS_IT_IS, FIRST, MEASURED, PlanSpace
from dvk.records import Candidate, Status, Verdict
from dvk.records.skill_block import GraphFacts
from dvk.search import Proposals, SearchProblem, as_it_is, device_of
from dvk.search.advised import Advisers

ROUND_OTHERWISE = ("fold_batch_norm", "fold_batch_norm_finite")
"""Recipes that move factors into weights: equal in real numbers, and refused if TF32 matmuls round them too far apart."""
BETTER = 1.005
"""A change is kept when it measured this much faster: half a percent is what paired medians resolve in a search."""
LOST = 0.97
"""A schedule whose upper bound elsewhere is below this is not tried again."""
SETTLED = 3
"""Tasks with a schedule's measurements after which its class is known well enough to try only a few."""
FEW = 3
"""Schedules of a kernel that are tried if the class is known, the default among them: the others gain or lose against it."""


class Planner(PlanSpace):
    """The plans of a search: skills and their evidence order its recipes, earlier measurements its schedules.

    Raises:
        CannotCompose: there is no graph.
    """

    def __init__(self, problem: SearchProblem):
        if problem.captured is None:
            raise CannotCompose("there is no operator graph")
        super().__init__(
            problem.task,
            problem.captured,
            problem.backend,
            problem.target,
            inexact=problem.config.optimize.inexact,
        )
        self.problem, self.applicable = problem, self.order
        ranked = [s.recipe for s in problem.skills if s.recipe in self.applicable]
        self.order = list(dict.fromkeys([*(r for r in ranked if r is not None), *self.applicable]))
        machine = device_of(problem.config, problem.task.device)
        try:
            facts = graph_facts(self, machine)
        except CannotCompose:  # the search says so when it proposes
            facts = GraphFacts(words={}, numbers={}, kernels={})
        self.advisers = Advisers(problem.skills, facts, machine, problem.backend)
        if problem.config.library.learn:
            self.order = self.advisers.ordered(self.order)

    def candidate(self, plan: Plan, title: str) -> Candidate:
        """The drop-in that executes `plan`, with the skills whose change is in it."""
        made = super().candidate(plan, title)
        behind = self.advisers.behind(made.recipes, made.schedule)
        return made.model_copy(update={"skills": tuple(behind)})

    def unchanged(self) -> Candidate:
        """The model as it is."""
        return self.candidate(Plan(()), AS_IT_IS)

    def first(self, kernel: Kernel) -> Schedule:
        """The schedule to begin with: the best known, or else the composer's default."""
        return self.options(kernel)[0]

    def options(self, kernel: Kernel) -> list[Schedule]:
        """Schedules worth measuring, the best guess first.

        Schedules that gained elsewhere come first, then the default and untried ones. Losing ones are left out, and if
        searches of several tasks have tried the class, all but the first few are.
        """
        possible = [*codegen(self.problem.backend).schedules(kernel, self.problem.target)]
        tuned = self.problem.tunings.get(class_of(kernel), ())
        known = {o: one for o in possible for one in tuned if one.schedule == o.printed()}
        gain = {o: known[o].gain if o in known else 1.0 for o in possible}
        kept = [o for o in possible if o == possible[0] or o not in known or known[o].most > LOST]
        ranked = sorted(kept, key=lambda o: -gain[o] if gain[o] > BETTER else -1.0)
        settled = sum(one.num_tasks >= SETTLED for one in tuned) > len(possible) // 2
        if not known and self.problem.config.library.learn:
            advised = self.advisers.first(kernel, possible)
            ranked = ranked if advised is None else list(dict.fromkeys([advised, *ranked]))
        if not settled:
            return ranked
        return ranked[:FEW] if possible[0] in ranked[:FEW] else [*ranked[: FEW - 1], possible[0]]

    def replayed(self, plan: Plan) -> list[tuple[Plan, str]]:
        """The plan as a graph; and all that is left to torch, where everything would be: there a kernel stands in for a good library."""
        if "cuda_graph" not in self.order or "cuda_graph" in plan.recipes:
            return []
        result = [(Plan((*plan.recipes, "cuda_graph"), plan.schedules), "as a CUDA graph")]
        library = tuple(r for r in self.order if r not in MEASURED)
        if set(library) < set(plan.recipes) and not self.fused(library).ordered:
            result.append((Plan((*library, "cuda_graph")), "left to torch, as a CUDA graph"))
        return result

    def without(self, recipes: Sequence[str]) -> bool:
        """Drop some recipes; returns whether that changes anything."""
        before, self.order = self.order, [r for r in self.order if r not in recipes]
        return self.order != before


def search(problem: SearchProblem) -> Proposals:
    """See the module."""
    planner = Planner(problem)
    yield from as_it_is.last(_search(planner), planner.unchanged, problem.limit)


def _search(planner: Planner) -> Proposals:
    structures, verdicts, start = yield from _structures(planner)
    if structures:
        best, chosen = structures[start][0], verdicts[start]
        base = speedup_of(chosen)
        gains = [
            (s / base if base else s, plan, v)
            for (plan, _), v in zip(structures, verdicts, strict=True)
            if plan is not best and (s := speedup_of(v)) and comparable(v, chosen)
        ]
        helpful = dict.fromkeys(
            name
            for gain, plan, _ in sorted(gains, key=lambda g: -g[0])
            if gain > BETTER
            for name in plan.recipes
            if name not in best.recipes
        )
        if gains and (most := max(gains, key=lambda g: g[0]))[0] > (BETTER if base else 0):
            joint = Plan((*best.recipes, *helpful))
            _, best, chosen = most
            if helpful and set(joint.recipes) != set(best.recipes):
                (verdict,) = yield [planner.candidate(joint, "with " + ", ".join(helpful))]
                if speedup_of(verdict) > speedup_of(chosen) and comparable(verdict, chosen):
                    best, chosen = joint, verdict
        on_device = is_timed_on_device(chosen)
        if not on_device and (replays := planner.replayed(best)):
            graphed = yield [planner.candidate(plan, title) for plan, title in replays]
            for (plan, _), verdict in zip(replays, graphed, strict=True):
                if is_faster(verdict, chosen):
                    best, chosen = plan, verdict
        if best.recipes and 0 < speedup_of(chosen) < 1:
            yield [planner.candidate(Plan(()), AS_IT_IS)]  # so that leaving it is an answer
        tuned = yield from tune(planner, best, chosen)
        if on_device and (replays := planner.replayed(tuned)):
            yield [planner.candidate(plan, title) for plan, title in replays]


Structures = list[tuple[Plan, str]]
Tried = tuple[Structures, list[Verdict | None], int]


def _structures(planner: Planner) -> Generator[list[Candidate], list[Verdict | None], Tried]:
    """The structures that were proposed, their verdicts, and the place of the one that the others change: a layout is tried before them."""
    structures, verdicts, count, start = Structures(), list[Verdict | None](), 0, 0
    for again in (True, False):
        structures = planner.proposals()
        count = 2 if is_layout(structures) else len(structures)
        verdicts = yield [planner.candidate(plan, title) for plan, title in structures[:count]]
        if not again or not _is_mended(planner, structures, verdicts):
            break
    if count < len(structures):
        if is_faster(verdicts[1], verdicts[0]):
            structures, start = [*structures[:count], *upon(structures)], 1
        more = yield [planner.candidate(plan, title) for plan, title in structures[count:]]
        verdicts = [*verdicts, *more]
    return structures, verdicts, start


def _is_mended(planner: Planner, structures: Structures, verdicts: list[Verdict | None]) -> bool:
    """Whether they were refused for a recipe that is left out from now on."""
    first = verdicts[0] if verdicts else None
    if first is None:
        return False
    if first.status is Status.MISMATCH and planner.without(ROUND_OTHERWISE):
        return True
    replayed = "cuda_graph" in structures[0][0].recipes
    return replayed and not any(map(is_right, verdicts)) and planner.without(("cuda_graph",))


def is_layout(structures: Structures) -> bool:
    """The second structure is the first in another layout, and others follow."""
    if len(structures) < 3:
        return False
    (usual, _), (other, _) = structures[:2]
    return bool(set(FIRST) & (set(other.recipes) - set(usual.recipes)))


def upon(structures: Structures) -> Structures:
    """What follows the first two structures, with the recipes of the second; what leaves recipes of the first out stays as it is."""
    (usual, _), (layout, _), *others = structures
    named = " and ".join(r for r in FIRST if r in layout.recipes)
    result: Structures = []
    for plan, title in others:
        more = [r for r in plan.recipes if r not in usual.recipes]
        added = [r for r in more if r not in layout.recipes]
        if added:
            known = any(r in more for r in FIRST)
            title = title if known else title.replace("with ", f"with {named} and ", 1)
            plan = Plan((*layout.recipes, *added))
        result.append((plan, title))
    return result


def is_right(verdict: Verdict | None) -> bool:
    """Whether it passed every check."""
    return verdict is not None and verdict.status is Status.OK


def is_faster(one: Verdict | None, best: Verdict | None) -> bool:
    """Whether it measured enough faster to be kept."""
    return comparable(one, best) and speedup_of(one) > speedup_of(best) * BETTER


def comparable(one: Verdict | None, other: Verdict | None) -> bool:
    """Whether both were timed in the same way: on the device alone, or from end to end."""
    return (
        len({v.timing.regime for v in (one, other) if v is not None and v.timing is not None}) < 2
    )


def is_timed_on_device(verdict: Verdict | None) -> bool:
    """Whether the host's time is no part of what was measured."""
    return verdict is not None and verdict.timing is not None and verdict.timing.regime == "device"


def tune(
    planner: Planner, plan: Plan, best: Verdict | None
) -> Generator[list[Candidate], list[Verdict | None], Plan]:
    """Coordinate descent over the kernels' schedules, from a plan and its verdict; returns the best plan."""
    groups = group_equal_kernels(planner.fused(plan.recipes).ordered)
    for group in sorted(groups, key=lambda g: -sum(k.num_bytes for k in g)):
        kernel, names = group[0], ", ".join(k.name for k in group)
        current = plan.schedules.get(kernel.name) or planner.first(kernel)
        options = [o for o in planner.options(kernel) if o != current]
        plans = [
            Plan(plan.recipes, {**plan.schedules, **{k.name: option for k in group}})
            for option in options
        ]
        titles = [f"{names}: {differences(current, option)}" for option in options]
        verdicts = yield [planner.candidate(p, t) for p, t in zip(plans, titles, strict=True)]
        for option_plan, verdict in zip(plans, verdicts, strict=True):
            if is_faster(verdict, best):
                plan, best = option_plan, verdict
    return plan


def speedup_of(verdict: Verdict | None) -> float:
    """Speedup of a timed verdict, 0 for anything else."""
    return (
        verdict.timing.speedup.value if verdict is not None and verdict.timing is not None else 0.0
    )


def differences(old: Schedule, new: Schedule) -> str:
    """A schedule's changes, as text."""
    before, after = old.printed(), new.printed()
    keys = dict.fromkeys([*before, *after])
    return " ".join(f"{k}={after.get(k)}" for k in keys if before.get(k) != after.get(k))
