"""The skills offered for a task: those whose condition holds, with their evidence."""

from __future__ import annotations

from collections.abc import Sequence

from dvk import machine
from dvk.agents.evidence.standing import Standing, ranked, relevant, standing
from dvk.agents.task_context import TaskContext
from dvk.composer import CannotCompose
from dvk.composer.plan_change import graph_facts
from dvk.composer.plan_space import PlanSpace
from dvk.records import Skill
from dvk.records.skill_block import GraphFacts


def offered(subject: TaskContext, skills: Sequence[Skill]) -> list[Skill]:
    """Those whose condition holds, by their gain on this machine, else in their order."""
    if all(skill.block is None for skill in skills):
        return list(skills)
    facts = facts_here(subject)
    if facts is None:
        return list(skills)
    return ranked(relevant(skills, facts), _here(subject), subject.backend)


def facts_here(subject: TaskContext) -> GraphFacts | None:
    """A task's facts on this machine; None without a graph."""
    if subject.captured is None:
        return None
    try:
        space = PlanSpace(subject.task, subject.captured, subject.backend)
        return graph_facts(space, _here(subject))
    except CannotCompose:
        return None


def shown(subject: TaskContext, skill: Skill) -> str:
    """A skill's evidence for a selection prompt: `14 tasks x1.09 [1.04, 1.15]`, on another machine with its name; empty without any."""
    here = standing(skill, _here(subject), subject.backend)
    if here is not None:
        return here.text()
    other: Standing | None = standing(skill, "", subject.backend)
    return f"{other.text()} on {other.device}" if other is not None else ""


def _here(subject: TaskContext) -> str:
    return machine.fingerprint(subject.task.device)
