"""Examples from a table of measured plans: for each task the composer's default and the plans that are as fast as the best.

A rejection-sampling fit: nothing that measured slower is imitated, and among plans within `SHARE` of the best none is preferred, since
their order is noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dvk import crashes
from dvk.agents import dialects
from dvk.agents.dialects.plan import space_of
from dvk.agents.task_context import TaskContext
from dvk.composer import CannotCompose, Plan
from dvk.composer.capture.batch import trace_quickly
from dvk.composer.codegen.base import codegen
from dvk.config import AgentsConfig
from dvk.errors import DvkError
from dvk.learn.examples import Example, ExampleTask
from dvk.records.measured import MeasuredPlan, MeasuredTask, read_table

TABLE = "table:"
"""How the origin of such examples begins; the version of dvk follows."""
SHARE = 0.98
"""A plan is as fast as the best if its speedup is at least this share of the best's: two timings of one program differ by as much."""
MOST = 4
"""Most answers per task, the fastest first."""


def examples(path: Path, problems: list[Any]) -> Iterator[Example]:
    """The examples of a table, in the dialect of plans.

    Args:
        problems: receives the tasks that cannot be captured here, with the reason.
    """
    for row in read_table(path):
        made = crashes.run_guarded("reading its plans", _of_task, row)
        if isinstance(made, crashes.Crashed):
            problems.append(f"{row.task.name}: {made.message}")
        elif isinstance(made, str):
            problems.append(f"{row.task.name}: {made}")
        else:
            yield from made


def worth_imitating(row: MeasuredTask) -> list[MeasuredPlan]:
    """The fastest plans, by speedup; without any that was timed none."""
    timed = sorted(
        (plan for plan in row.plans if plan.speedup), key=lambda plan: -(plan.speedup or 0.0)
    )
    return [plan for plan in timed if (plan.speedup or 0.0) >= SHARE * (timed[0].speedup or 0.0)][
        :MOST
    ]


def _of_task(row: MeasuredTask) -> list[Example] | str:
    """The task's examples, or the reason why there are none."""
    chosen = worth_imitating(row)
    if not chosen:
        return "no plan of it was timed"
    try:
        captured = trace_quickly(row.task.model_copy(update={"device": "cpu"}), row.task.device)
    except (CannotCompose, DvkError) as error:
        return str(error)
    subject = TaskContext(row.task, captured, row.backend)
    asked = dialects.get("plan").policy(subject, (), AgentsConfig())
    about = ExampleTask(
        id=row.task.id,
        name=row.task.name,
        source=row.task.source,
        category=row.groups.get("category"),
        level=row.groups.get("level"),
    )
    parse = codegen(row.backend).parse
    found = []
    for plan in chosen:
        schedules = {name: parse(printed, name) for name, printed in plan.schedule.items()}
        text = space_of(subject).text(Plan(plan.recipes, schedules))
        assert plan.verdict.timing is not None, "it was timed"
        found.append(
            Example.new(
                kind="policy",
                messages=(*asked.messages, {"role": "assistant", "content": text}),
                task=about,
                signature=captured.graph.signature(),
                backend=row.backend,
                code=text,
                speedup=plan.speedup,
                lo=plan.verdict.timing.speedup.lo,
                quality={"family": plan.kind},
                origin=f"{TABLE}{row.dvk}",
                verified=True,
            )
        )
    return found
