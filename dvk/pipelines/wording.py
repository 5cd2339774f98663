"""Words for measured plans: the question of a task and each plan as a model would write it.

With them a table is enough to learn from: nothing needs to be captured again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from dvk import crashes
from dvk.agents import dialects
from dvk.agents.dialects.plan import space_of
from dvk.agents.task_context import TaskContext
from dvk.composer import CannotCompose, Plan
from dvk.composer.capture.batch import trace_quickly
from dvk.composer.codegen.base import codegen, takes_time_loops
from dvk.composer.plan_change import graph_facts, machine_words
from dvk.config import AgentsConfig
from dvk.errors import DvkError
from dvk.learn.spread import spread
from dvk.records import Verdict
from dvk.records.measured import MeasuredTask
from dvk.records.skill_block import GraphFacts

BATCH = 8
"""Tasks sent to a process together."""


def words_of(
    subject: TaskContext, plans: Iterable[tuple[Iterable[str], Mapping[str, Any]]]
) -> dict[str, Any]:
    """The question, the signature, the facts and the texts of some plans (recipes, printed schedules); a plan without words has no text."""
    assert subject.captured is not None, "a plan needs a graph"
    asked = dialects.get("plan").policy(subject, (), AgentsConfig())
    space, parse = space_of(subject), codegen(subject.backend).parse
    texts = []
    for recipes, printed in plans:
        try:
            schedules = {name: parse(one, name) for name, one in printed.items()}
            texts.append(space.text(Plan(tuple(recipes), schedules)))
        except (DvkError, CannotCompose):
            texts.append("")
    return {
        "question": str(asked.messages[-1]["content"]),
        "signature": subject.captured.graph.signature(),
        "texts": texts,
        "facts": graph_facts(space),
    }


def worded(row: MeasuredTask, words: Mapping[str, Any]) -> MeasuredTask:
    """The row with its words."""
    plans = tuple(
        plan.model_copy(update={"text": text})
        for plan, text in zip(row.plans, words["texts"], strict=True)
    )
    told = {name: words[name] for name in ("question", "signature")}
    facts: GraphFacts = row.facts or words["facts"]
    if row.default is not None:
        facts = measured_on(facts, row.default.verdict)
    return row.model_copy(update={**told, "facts": facts, "plans": plans})


def measured_on(facts: GraphFacts, verdict: Verdict) -> GraphFacts:
    """The facts with the machine and the regime of a verdict."""
    regime = verdict.timing.regime if verdict.timing is not None else ""
    words = {"machine": machine_words(verdict.machine), "regime": (regime,) if regime else ()}
    return facts.model_copy(update={"words": {**facts.words, **words}})


def all_worded(rows: Sequence[MeasuredTask], workers: int) -> list[MeasuredTask]:
    """The rows, those without words captured again on this machine; what cannot be captured stays without."""
    missing = [row for row in rows if not row.question or row.facts is None]
    rows_by_task = {
        (row.task.id, row.backend): row
        for batch in spread(_of_batch, _batches(missing), workers)
        for row in batch
    }
    return [rows_by_task.get((row.task.id, row.backend), row) for row in rows]


def _batches(rows: Iterable[MeasuredTask]) -> Iterable[list[MeasuredTask]]:
    source = iter(rows)
    while batch := list(islice(source, BATCH)):
        yield batch


def _of_batch(rows: Sequence[MeasuredTask]) -> list[MeasuredTask]:
    worded = []
    for row in rows:
        made = crashes.run_guarded("wording its plans", _captured, row)
        worded.append(row if isinstance(made, crashes.Crashed) else made)
    return worded


def _captured(row: MeasuredTask) -> MeasuredTask:
    try:
        task, rolls = row.task.model_copy(update={"device": "cpu"}), takes_time_loops(row.backend)
        captured = trace_quickly(task, row.task.device, rolls=rolls)
    except (CannotCompose, DvkError):
        return row
    subject = TaskContext(row.task, captured, row.backend)
    return worded(row, words_of(subject, [(plan.recipes, plan.schedule) for plan in row.plans]))
