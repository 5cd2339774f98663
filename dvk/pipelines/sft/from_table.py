"""Examples from a table of measured plans: for each task the plans that are as fast as the best.

A rejection-sampling fit: nothing that measured slower is imitated, and among plans within `SHARE` of the best none is preferred, since
their order is noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dvk import machine
from dvk.agents.dialects.nano import ask
from dvk.learn.examples import Example, ExampleTask
from dvk.pipelines.wording import all_worded
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
    rows = list(read_table(path))
    if not all(row.question for row in rows):
        rows = all_worded(rows, machine.num_cores())
    for row in rows:
        chosen = worth_imitating(row)
        if not row.question:
            problems.append(f"{row.task.name}: it cannot be captured")
        elif not chosen:
            problems.append(f"{row.task.name}: no plan of it was timed")
        for plan in chosen if row.question else ():
            yield _example(row, plan)


def worth_imitating(row: MeasuredTask) -> list[MeasuredPlan]:
    """The fastest plans, by speedup; without any that was timed none."""
    timed = sorted(
        (plan for plan in row.plans if plan.speedup), key=lambda plan: -(plan.speedup or 0.0)
    )
    return [plan for plan in timed if (plan.speedup or 0.0) >= SHARE * (timed[0].speedup or 0.0)][
        :MOST
    ]


def _example(row: MeasuredTask, plan: MeasuredPlan) -> Example:
    assert plan.verdict.timing is not None, "it was timed"
    about = ExampleTask(
        id=row.task.id,
        name=row.task.name,
        source=row.task.source,
        category=row.groups.get("category"),
        level=row.groups.get("level"),
    )
    return Example.new(
        kind="policy",
        messages=(*ask(row.question).messages, {"role": "assistant", "content": plan.text}),
        task=about,
        signature=row.signature,
        backend=row.backend,
        code=plan.text,
        speedup=plan.speedup,
        lo=plan.verdict.timing.speedup.lo,
        quality={"family": plan.kind},
        origin=f"{TABLE}{row.dvk}",
        verified=True,
    )
