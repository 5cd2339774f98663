"""Verdicts of other runs as rows of a table, so that nothing measured is thrown away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

import dvk
from dvk.errors import UsageError
from dvk.records import PROTOCOL, Candidate, Episode, Task, Verdict
from dvk.records.measured import MeasuredPlan, MeasuredTask, measured, read_table

EPISODES = ("episodes*.jsonl", "episodes/*.jsonl")
"""Where runs of `optimize`, `eval`, `train` and `sft` keep their episodes."""
TABLES = ("table.jsonl.gz", "rows.jsonl")


def from_runs(runs: Sequence[Path], rows: Iterable[MeasuredTask]) -> list[MeasuredTask]:
    """Rows with those of other runs added; of equal plans of one task the first counts.

    Args:
        runs: run folders of any command, or table files.
        rows: those that there are.

    Raises:
        UsageError: a folder holds no composed candidate with a verdict.
    """
    merged: dict[tuple[str, str], MeasuredTask] = {}
    for row in rows:
        merged[row.task.id, row.backend] = _joined(merged.get((row.task.id, row.backend)), row)
    for run in runs:
        if not run.exists():
            raise UsageError(f"no such run or table: `{run}`", "give a run folder or a table")
        measured = list(_table(run)) or list(_played(run))
        if not measured:
            raise UsageError(
                f"`{run}` holds no measured plan",
                "give a run of optimize, eval, train, sft or measure",
            )
        for row in measured:
            merged[row.task.id, row.backend] = _joined(merged.get((row.task.id, row.backend)), row)
    return list(merged.values())


def _joined(before: MeasuredTask | None, more: MeasuredTask) -> MeasuredTask:
    if before is None:
        before = more.model_copy(update={"plans": ()})
    plans = {plan.key: plan for plan in more.plans} | {plan.key: plan for plan in before.plans}
    left = min(before.left, more.left)
    return before.model_copy(update={"plans": tuple(plans.values()), "left": left})


def _table(run: Path) -> Iterator[MeasuredTask]:
    paths = [run] if run.is_file() else [path for name in TABLES if (path := run / name).is_file()]
    if paths:
        try:
            yield from read_table(paths[0])
        except UsageError:  # a folder's rows may end in a line cut by a kill
            if run.is_file():
                raise


def _played(run: Path) -> Iterator[MeasuredTask]:
    for pattern in EPISODES:
        for path in sorted(run.glob(pattern)):
            for line in path.read_text().splitlines():
                try:
                    episode = Episode.model_validate(json.loads(line))
                except (ValueError, ValidationError):  # another record, or a line cut by a kill
                    continue
                yield from _rows(episode.task, _judged(episode), run.name)


def _judged(episode: Episode) -> list[tuple[Candidate, Verdict]]:
    """Composed candidates with their verdicts: others have no plan."""
    return [
        (turn.candidate, turn.verdict)
        for trace in episode.traces
        for turn in trace.turns
        if turn.candidate is not None and turn.verdict is not None and turn.candidate.recipes
    ]


def _rows(task: Task, judged: list[tuple[Candidate, Verdict]], kind: str) -> Iterator[MeasuredTask]:
    by_backend: dict[str, list[MeasuredPlan]] = {}
    for candidate, verdict in judged:
        by_backend.setdefault(candidate.backend, []).append(measured(candidate, verdict, kind))
    for backend, plans in by_backend.items():
        kept = task.model_copy(update={"path": None})
        yield MeasuredTask(
            task=kept,
            backend=backend,
            groups={"suite": kind},
            dvk=dvk.__version__,
            protocol=PROTOCOL,
            plans=tuple(plans),
        )
