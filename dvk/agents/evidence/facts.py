"""Facts of a table's tasks: from the table where it has them, else from the captured graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dvk import crashes
from dvk.composer.capture.batch import trace_quickly
from dvk.composer.codegen.base import takes_time_loops
from dvk.composer.plan_change import graph_facts
from dvk.composer.plan_space import PlanSpace
from dvk.records.measured import MeasuredTask
from dvk.records.skill_block import GraphFacts


def with_facts(rows: Iterable[MeasuredTask]) -> Iterator[MeasuredTask]:
    """The rows with facts; without those of tasks that cannot be captured here."""
    for row in rows:
        if row.facts is None:
            captured = crashes.run_guarded("capturing a task of a table", _captured, row)
            if isinstance(captured, crashes.Crashed):
                continue
            row = row.model_copy(update={"facts": captured})
        yield row


def _captured(row: MeasuredTask) -> GraphFacts:
    task = row.task
    rolls = takes_time_loops(row.backend)
    captured = trace_quickly(task.model_copy(update={"device": "cpu"}), task.device, rolls=rolls)
    return facts_of(row, PlanSpace(task, captured, row.backend))


def facts_of(row: MeasuredTask, space: PlanSpace) -> GraphFacts:
    """A row's facts, with the machine and the regime of its default plan."""
    verdict = row.default.verdict if row.default is not None else None
    machine = verdict.machine if verdict is not None else ""
    regime = verdict.timing.regime if verdict is not None and verdict.timing is not None else ""
    return graph_facts(space, machine, regime)
