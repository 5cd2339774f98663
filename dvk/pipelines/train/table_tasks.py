"""Tasks of a table of measured plans, to play with `--judge table:FILE`: a fifth of them is kept for validation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dvk.agents import TaskContext
from dvk.composer import CannotCompose
from dvk.composer.capture.batch import capture_many
from dvk.composer.codegen.base import takes_time_loops
from dvk.errors import UsageError
from dvk.harness.remote.table import known_tasks
from dvk.records.measured import MeasuredTask

HELD_OUT = 5
"""Every fifth task is never trained on…"""
LEAST_TASKS = 10
"""…if the table has as many; the tasks of a smaller one are also validated on."""


@dataclass(frozen=True)
class TableTasks:
    """The tasks to train on and those to validate on."""

    train: list[TaskContext]
    validation: list[TaskContext]


def read(path: Path, workers: int) -> TableTasks:
    """The tasks of a table that can be captured here and have two timed plans or more.

    Args:
        workers: captures at a time. No task runs, so a GPU's table needs no GPU.

    Raises:
        UsageError: there is no such table, or none of its tasks can be played.
    """
    rows = [
        row for row in known_tasks(path) if sum(plan.speedup is not None for plan in row.plans) > 1
    ]
    found = [
        TaskContext(rows[index].task, captured, rows[index].backend, answers=rows[index].answers)
        for index, captured in capture_many(
            (row.task for row in rows),
            num_workers=workers,
            rolls=[takes_time_loops(row.backend) for row in rows],
        )
        if not isinstance(captured, CannotCompose)
    ]
    if not found:
        raise UsageError(
            f"no task of `{path}` can be played: each needs two timed plans, and must be captured here",
            "measure more with `dvk measure`",
        )
    if len(found) < LEAST_TASKS:
        return TableTasks(found, found)
    held = {row.task.id for row in held_out(rows)}
    return TableTasks(
        [one for one in found if one.task.id not in held],
        [one for one in found if one.task.id in held],
    )


def held_out(rows: list[MeasuredTask]) -> list[MeasuredTask]:
    """Every fifth task in the order of their ids, which are hashes: the same ones in whatever order a table has them."""
    return sorted(rows, key=lambda row: row.task.id)[::HELD_OUT]
