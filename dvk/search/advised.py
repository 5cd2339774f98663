"""What skills advise for a task, weighed by their evidence on this machine; and what a search measured of them.

Advice only orders: a recipe whose skill gained elsewhere is proposed before others, one that lost after them, and a kernel begins with the
schedule of a skill that is known to pay. No plan is left out for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dvk.agents.evidence.gains import gain_of
from dvk.agents.evidence.standing import chosen, ranked, relevant, standing
from dvk.composer.codegen.base import codegen
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.plan_change import kernel_facts
from dvk.composer.plan_space import FUSED, MEASURED
from dvk.records import Candidate, Skill, Task, Verdict
from dvk.records.measured import MeasuredTask, measured
from dvk.records.skill_block import GraphFacts
from dvk.skills.searched import SearchedGain

MOST = 8
"""Skills that give a kernel its first schedule, at most."""


class Advisers:
    """The skills whose condition holds for a task.

    Args:
        skills: in the order of retrieval.
        facts: of the task.
        machine: whose evidence counts.
    """

    def __init__(self, skills: Sequence[Skill], facts: GraphFacts, machine: str, backend: str):
        self.machine, self.backend, self.facts = machine, backend, facts
        self.relevant = relevant(skills, facts)
        self.skills = [s for s in self.relevant if s.block is not None]
        self.paying = [
            skill
            for skill in chosen(self.skills, facts, machine, MOST)
            if skill.block is not None and not skill.block.do.recipes
        ]
        self.tag = codegen(backend).schedule_types[0].tag

    def ordered(self, recipes: Sequence[str]) -> list[str]:
        """Recipes with those that must be measured in the order of their skills' gains; the others keep their places."""
        worth: dict[str, float] = {}
        for skill in ranked(self.skills, self.machine, self.backend):
            record = standing(skill, self.machine, self.backend)
            assert skill.block is not None
            for recipe in skill.block.do.added:
                worth.setdefault(recipe, record.shrunken if record is not None else 1.0)
        measured_ = sorted((r for r in recipes if r in MEASURED), key=lambda r: -worth.get(r, 1.0))
        coming = iter(measured_)
        return [next(coming) if r in MEASURED else r for r in recipes]

    def first(self, kernel: Kernel, options: Sequence[Schedule]) -> Schedule | None:
        """The schedule of a paying skill for a kernel, of those that are listed; None without one."""
        for skill in self.paying:
            assert skill.block is not None
            if skill.block.when.covers(kernel_facts(kernel)):
                for option in options:
                    if skill.block.do.is_schedule(option.printed(), self.tag):
                        return option
        return None

    def behind(
        self, recipes: Sequence[str], schedule: Mapping[str, Mapping[str, object]]
    ) -> list[str]:
        """Names of the skills whose change, or else whose recipe, is in a program; of those with the same change the first."""
        reasons: dict[str, str] = {}
        for skill in self.relevant:
            block = skill.block
            if block is None:
                if skill.recipe in recipes:
                    reasons.setdefault(f"+{skill.recipe}", skill.name)
                continue
            if block.do.recipes:
                said = bool(block.do.added) and block.do.is_in(recipes)
            else:
                kernels = block.when.kernels(self.facts)
                said = any(
                    name in schedule and block.do.is_schedule(schedule[name], self.tag)
                    for name in kernels
                )
            if said:
                reasons.setdefault(str(block.do), skill.name)
        return list(reasons.values())


def searched(
    task: Task,
    backend: str,
    facts: GraphFacts,
    tried: Iterable[tuple[Candidate, Verdict]],
    skills: Iterable[Skill],
) -> list[SearchedGain]:
    """What a search measured of skills, as a table would: a plan against that plan with a skill's change.

    The plan is the search's first, or the composer's own, which on a GPU comes last (`PlanSpace.proposals`).

    Args:
        tried: the composer's candidates in the order of the search.
    """
    known = list(tried)
    own = [n for n, (one, _) in enumerate(known) if n and one.title.startswith(FUSED)]
    tables = []
    for default in (0, *own[:1]):
        rows = []
        for number, (candidate, verdict) in enumerate(known):
            alone = "structure" if candidate.title.startswith("with ") else ""
            rows.append(measured(candidate, verdict, "default" if number == default else alone))
        tables.append(MeasuredTask(task=task, backend=backend, facts=facts, plans=tuple(rows)))
    hits = []
    for skill in skills:
        gains = [gain_of(skill.block, table) for table in tables] if skill.block is not None else []
        gain = next((one for one in gains if one is not None), None)
        if gain is not None:
            hits.append(SearchedGain(skill.name, gain.log, gain.clock))
    return hits
