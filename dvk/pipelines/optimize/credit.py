"""Credit in a search: the skills whose change of plan is in the winner, and each proposer's results. Only reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dvk.agents import TaskContext
from dvk.composer import RECIPES, CannotCompose, Part, Plan, fuse, join
from dvk.pipelines.optimize.summary import ranked
from dvk.records import Candidate, Skill, Status, Turn


def credited(subject: TaskContext, skills: Sequence[Skill], candidate: Candidate) -> list[str]:
    """The candidate's skills without which its text would differ; all that it names if the composer did not write it.

    A recipe may apply to a graph and change nothing, for example if another one has taken the operators already.
    """
    captured = subject.captured
    if captured is None or candidate.proposer != "composer":
        return list(candidate.skills)

    def text(recipes: tuple[str, ...]) -> str | None:
        try:
            part = Part(
                subject.task,
                captured,
                fuse(subject.task, captured, recipes),
                Plan.of(candidate, recipes),
            )
            return join([part], subject.backend).source
        except CannotCompose:  # the schedules are those of other kernels
            return None

    recipe_of = {skill.name: _recipe(skill) for skill in skills}
    result = []
    for name in candidate.skills:
        recipe = recipe_of.get(name)
        in_graph = (
            recipe in candidate.recipes and recipe in RECIPES and RECIPES[recipe].kind != "schedule"
        )
        if (
            not in_graph
            or text(tuple(one for one in candidate.recipes if one != recipe)) != candidate.source
        ):
            result.append(name)
    return result


def _recipe(skill: Skill) -> str | None:
    """The recipe that it adds, if it does."""
    if skill.block is None:
        return skill.recipe
    return skill.block.do.added[0] if skill.block.do.added else None


def arms(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """For each proposer, in the order they began: its fastest candidate (`title`, `speedup`, `lo`, `hi`, null if none was timed), how
    often each verdict was given, and the most frequent reason for a refusal."""
    rows: dict[str, dict[str, Any]] = {}
    refusals: dict[str, Counter[str]] = {}
    fastest = {}
    for turn, speedup in reversed(ranked(turns)):  # the fastest comes last and stays
        if turn.candidate is not None:
            fastest[turn.candidate.proposer] = turn.candidate.title, speedup
    for turn in turns:
        if turn.candidate is None or turn.verdict is None or turn.verdict.tier == "claim":
            continue
        name, verdict = turn.candidate.proposer, turn.verdict
        title, best = fastest.get(name, (None, None))
        row = rows.setdefault(
            name,
            {
                "name": name,
                "title": title,
                "speedup": best and best.value,
                "lo": best and best.lo,
                "hi": best and best.hi,
                "verdicts": {},
                "refused": None,
            },
        )
        row["verdicts"][verdict.status.value] = row["verdicts"].get(verdict.status.value, 0) + 1
        if verdict.status is not Status.OK:
            why = (verdict.error or "no reason was given").strip().partition("\n")[0]
            refusals.setdefault(name, Counter())[
                f"{verdict.status.value.replace('_', ' ')}: {why}"
            ] += 1
    for name, reasons in refusals.items():
        rows[name]["refused"] = reasons.most_common(1)[0][0]
    return list(rows.values())
