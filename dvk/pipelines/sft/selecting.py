"""Examples of choosing and following skills, from a table of measured plans: no episode was played for them.

For a task and the skills that the library offers for it, the right choice is what the table says (`agents.evidence.labels`), an empty one
included. Each chosen skill gives a second example: with that skill, the measured plan that follows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dvk import crashes
from dvk.agents import dialects, selection
from dvk.agents.dialects.plan import space_of
from dvk.agents.evidence.facts import with_facts
from dvk.agents.evidence.gains import treatments
from dvk.agents.evidence.labels import label, selection_example
from dvk.agents.evidence.standing import relevant
from dvk.agents.task_context import TaskContext
from dvk.composer import Plan
from dvk.composer.capture.batch import trace_quickly
from dvk.composer.codegen.base import codegen, takes_time_loops
from dvk.config import AgentsConfig
from dvk.learn.examples import Example, ExampleTask
from dvk.records import Skill
from dvk.records.measured import MeasuredPlan, MeasuredTask, read_table
from dvk.skills import Library

DIALECT = "plan"
ORIGIN = "table:"


def examples(path: Path, library: Path | None, problems: list[Any]) -> Iterator[Example]:
    """The examples of a table.

    As many empty choices as others, at most: on most tasks no skill pays, and a model that never chooses would be right there.

    Args:
        library: what offers skills; None takes the default one.
        problems: receives the tasks that cannot be captured here, with the reason.
    """
    with Library.open(library) as opened:
        skills = [skill for skill in opened.skills() if skill.block is not None]
        empty = chosen = 0
        for row in with_facts(read_table(path)):
            labelled = label(relevant(skills, row.facts), row, 1) if row.facts is not None else None
            if labelled is None or not (labelled.right or empty < chosen):
                continue
            made = crashes.run_guarded("reading its skills", _of_task, row, opened)
            if isinstance(made, crashes.Crashed):
                problems.append(f"{row.task.name}: {made.message}")
                continue
            empty += any(one.kind == "selection" and not one.chosen for one in made)
            chosen += any(one.kind == "selection" and bool(one.chosen) for one in made)
            yield from made


def _of_task(row: MeasuredTask, library: Library) -> list[Example]:
    settings, dialect = AgentsConfig(), dialects.get(DIALECT)
    device = row.task.device
    rolls = takes_time_loops(row.backend)
    captured = trace_quickly(row.task.model_copy(update={"device": "cpu"}), device, rolls=rolls)
    subject = TaskContext(row.task, captured, row.backend)
    offered = selection.candidates(subject, library, settings)
    asked = selection_example(dialect, subject, offered, row, settings)
    if asked is None:
        return []
    conversation, answer = asked
    right = label(offered, row, settings.num_chosen).right
    by_name = {skill.name: skill for skill in offered}
    found = [
        _example(
            row, captured.graph.signature(), "selection", conversation.messages, answer
        ).model_copy(update={"skills": tuple(by_name), "chosen": right})
    ]
    for name in right:
        given = by_name[name]
        best = _best(given, row)
        if best is not None:
            question = dialect.policy(subject, (given,), settings).messages
            text = _text(subject, best)
            made = _example(
                row, captured.graph.signature(), "policy_with_skills", question, text, (name,)
            )
            timing = best.verdict.timing
            assert timing is not None, "it is the fastest"
            told = {"code": text, "speedup": timing.speedup.value, "lo": timing.speedup.lo}
            found.append(made.model_copy(update=told))
    return [one.model_copy(update={"id": one.content_id()}) for one in found]


def _best(skill: Skill, row: MeasuredTask) -> MeasuredPlan | None:
    """The fastest measured plan that follows a skill."""
    assert skill.block is not None, "it has a label"
    timed = [plan for plan in treatments(skill.block, row) if plan.speedup is not None]
    return max(timed, key=lambda plan: plan.speedup or 0.0, default=None)


def _text(subject: TaskContext, plan: MeasuredPlan) -> str:
    parse = codegen(subject.backend).parse
    schedules = {name: parse(printed, name) for name, printed in plan.schedule.items()}
    return space_of(subject).text(Plan(plan.recipes, schedules))


def _example(
    row: MeasuredTask,
    signature: Sequence[str],
    kind: str,
    asked: Sequence[Any],
    answer: str,
    skills: tuple[str, ...] = (),
) -> Example:
    about = ExampleTask(
        id=row.task.id,
        name=row.task.name,
        source=row.task.source,
        category=row.groups.get("category"),
        level=row.groups.get("level"),
    )
    best = row.best
    return Example.new(
        kind=kind,
        messages=(*asked, {"role": "assistant", "content": answer}),
        task=about,
        signature=tuple(signature),
        backend=row.backend if kind != "selection" else "",
        skills=skills,
        speedup=best.speedup if best is not None else None,
        origin=f"{ORIGIN}{row.dvk}",
        verified=True,
    )
