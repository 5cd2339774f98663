"""What an evaluation's folder holds as rows and tables: of one that ended, was stopped, was killed or still runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dvk.errors import DvkError, UsageError
from dvk.pipelines import tracebacks
from dvk.pipelines.eval import hygiene, retime, suites, tables
from dvk.pipelines.eval.launches import weighted
from dvk.pipelines.eval.request import (
    AGAIN,
    EPISODES,
    FACTS,
    LINES,
    SUMMARY,
    UNPLAYED,
    EvalRequest,
    Unplayed,
)
from dvk.pipelines.eval.rows import EvalRow, rows_for
from dvk.pipelines.eval.spending import Meter
from dvk.records import Episode, Verdict
from dvk.run_places import read_manifest
from dvk.runs import RunFolder


class EvalStopped(KeyboardInterrupt):
    """The user stopped an evaluation.

    Attributes:
        summary: of what was measured until then; its `num_left` tasks are left for `--resume`.
    """

    def __init__(self, summary: dict[str, Any]):
        super().__init__()
        self.summary = summary


def known_again(run: RunFolder) -> dict[tuple[str, int], Verdict]:
    """The second verdicts in the folder, by (task, sample)."""
    return {
        (row["task"], row["sample"]): Verdict.model_validate(row["verdict"])
        for row in run.read(AGAIN)
    }


def episodes_of(run: RunFolder) -> list[Episode]:
    """The episodes in the folder."""
    return [Episode.model_validate(row) for row in run.read(EPISODES)]


def unplayed_of(run: RunFolder) -> list[Unplayed]:
    """The tasks that could not be loaded."""
    return [Unplayed.model_validate(row) for row in run.read(UNPLAYED)]


def rows_on_disk(
    run: RunFolder, problems: Sequence[suites.SuiteTask], request: EvalRequest
) -> list[EvalRow]:
    """The rows of all tasks that the folder holds."""
    return rows_for(
        episodes_of(run),
        unplayed_of(run),
        known_again(run),
        {p.name: p.groups for p in problems},
        {row["name"]: row for row in run.read(FACTS)},
        run.read(LINES),
        request.baselines,
    )


def stopped(
    request: EvalRequest,
    run: RunFolder,
    problems: Sequence[suites.SuiteTask],
    device: str,
    backend: str,
) -> dict[str, Any] | None:
    """The summary of a run that has not ended; None if it has no results.

    A task counts once its winner has been timed again. Where none has been, first times count, and no baseline does.
    """
    rows, again = rows_on_disk(run, problems, request), known_again(run)
    waiting = {e.task.name for e in episodes_of(run) if retime.num_wanted([e], again, request)}
    settled = [row for row in rows if row.task not in waiting]
    if not settled:
        request = replace(request, baselines=())
    if not rows:
        return None
    return summarised(request, run, settled or rows, problems, device, backend)


def summarised(
    request: EvalRequest,
    run: RunFolder,
    rows: Sequence[EvalRow],
    problems: Sequence[suites.SuiteTask],
    device: str,
    backend: str,
) -> dict[str, Any]:
    """The tables of a run's rows, what was asked, and what it cost."""
    return {
        **tables.summarise(
            rows, baselines=request.baselines, flagged=hygiene.hygiene_flags(rows, run)
        ),
        "policy": request.policy,
        "suite": str(request.suite),
        "samples": request.samples,
        "turns": request.turns,
        "iterations": request.iterations,
        "device": device,
        "backend": backend,
        "cost": Meter(run).total(rows),
        "run": str(run.path),
        "tracebacks": tracebacks.count(run),
        "eval_mode": request.eval_mode,
        "train": request.train,
        "num_in_train_mode": sum(
            bool(row.get("depends"))
            for row in {row["name"]: row for row in run.read(FACTS)}.values()
        ),
        "num_left": len({p.name for p in problems} - {row.task for row in rows}),
        **weighted(rows, problems),
    }


def show(place: Path) -> dict[str, Any]:
    """The summary of an evaluation's folder as it is; `num_left` counts tasks that are not played yet.

    Raises:
        UsageError: it holds no results of an evaluation.
    """
    manifest: Mapping[str, Any] = {}
    try:
        manifest = read_manifest(place) or {}
        run = RunFolder.beside(place)
        episodes = episodes_of(run)
        request = _asked(manifest)
        said = run.read(SUMMARY)
        device = episodes[0].task.device if episodes else request.device or ""
        made = [t.candidate for e in episodes for trace in e.traces for t in trace.turns]
        backend = next((c.backend for c in made if c is not None), request.backend)
        found = (
            {"num_left": 0, **said[-1], "run": str(place)}
            if said and manifest.get("status") == "done"
            else stopped(request, run, _problems(request), device, backend)
        )
    except (DvkError, OSError, ValidationError, KeyError, TypeError):
        found = None
    if found is None or manifest.get("command") != "eval":
        raise UsageError(f"no results in `{place}`", "give the run folder of a dvk eval")
    return found


def _asked(manifest: Mapping[str, Any]) -> EvalRequest:
    """The request that a run was started with."""
    asked: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in manifest["asked"].items()
    }
    return EvalRequest(**{**asked, "suite": Path(asked["suite"])})


def _problems(request: EvalRequest) -> Sequence[suites.SuiteTask]:
    """The suite's tasks; none if it has been moved."""
    try:
        return suites.read(request.suite, request.only, ())
    except DvkError:
        return ()
