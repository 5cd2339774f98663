"""What an evaluation's folder holds as rows and tables: of one that ended, was stopped, was killed or still runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dvk.errors import DvkError, UsageError
from dvk.interop.flashinfer.dataset import is_dataset
from dvk.pipelines import tracebacks
from dvk.pipelines.eval import definitions, hygiene, retime, suites, tables
from dvk.pipelines.eval.launches import weighted
from dvk.pipelines.eval.request import (
    AGAIN,
    EPISODES,
    FACTS,
    LINES,
    MEASURED,
    SUMMARY,
    UNPLAYED,
    EvalRequest,
    Unplayed,
)
from dvk.pipelines.eval.rows import EvalRow, rows_for
from dvk.pipelines.eval.spending import Meter
from dvk.pipelines.report.units import many
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
    problems: Sequence[suites.SuiteTask] | None,
    device: str,
    backend: str,
) -> dict[str, Any] | None:
    """The summary of a run that has not ended; None if it has no results.

    Winners wait for their second time, failures do not: tables of what is settled alone would show too many failures. As long as no
    winner has been timed again, the first times of all tasks count, and no baseline does. After that, winners that were timed again
    count, and the same share of the other tasks.

    Args:
        problems: None if the suite cannot be read.

    Returns:
        see `summarised`; `num_left` is null if the suite cannot be read. `finished` is false. `counted` has `times`, first or second,
        `num_waiting`, winners' tasks to be timed again, and `num_left_out`, other tasks that are not in the tables.
    """
    rows, again = rows_on_disk(run, problems or (), request), known_again(run)
    if not rows:
        return None
    episodes = episodes_of(run) if not run.read(MEASURED) else []  # a table has one time of a plan
    won = {e.task.name for e in episodes if retime.num_wanted([e], {}, request)}
    waiting = {e.task.name for e in episodes if retime.num_wanted([e], again, request)}
    counted, done = rows, {row.task for row in rows}
    first = bool(waiting) and won == waiting
    left_out: set[str] = set()
    if first:
        request = replace(request, baselines=())
    elif waiting:
        others = list(dict.fromkeys(row.task for row in rows if row.task not in won))
        left_out = set(others[round(len(others) * (1 - len(waiting) / len(won))) :])
        counted = [row for row in rows if row.task not in waiting | left_out]
        done -= waiting
    return summarised(request, run, counted, problems or (), device, backend) | {
        "cost": Meter(run).total(rows),
        "num_left": None if problems is None else len({p.name for p in problems} - done),
        "finished": False,
        "counted": {
            "times": "first" if first else "second",
            "num_waiting": len(waiting),
            "num_left_out": len(left_out),
        },
    }


def summarised(
    request: EvalRequest,
    run: RunFolder,
    rows: Sequence[EvalRow],
    problems: Sequence[suites.SuiteTask],
    device: str,
    backend: str,
) -> dict[str, Any]:
    """The tables of a run's rows, what was asked, and what it cost.

    Raises:
        UsageError: a table judged, and holds no plan of any task.
    """
    known, measured = [row for row in rows if row.known], run.read(MEASURED)
    unknown = {row.task: row.error for row in rows if not row.known}
    if unknown and not known:
        name, why = next(iter(unknown.items()))
        raise UsageError(
            f"nothing is known of {many(len(unknown), 'task')}; {name}: {why}",
            "a table judges plans of the composer alone; give one that was measured with this version",
        )
    return {
        **tables.summarise(
            known, baselines=request.baselines, flagged=hygiene.hygiene_flags(known, run)
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
        **weighted(known, problems),
        **({"table": {**measured[-1], "unknown": unknown}} if measured else {}),
    }


def show(place: Path) -> dict[str, Any]:
    """The summary of an evaluation's folder as it is; see `stopped` for a run that is not finished.

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
            else stopped(request, run, _problems(request, run), device, backend)
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


def _problems(request: EvalRequest, run: RunFolder) -> Sequence[suites.SuiteTask] | None:
    """The suite's tasks, of which a table left some out; None if it has been moved or cannot be read any more."""
    try:
        found = definitions.read(request.suite).tasks if is_dataset(request.suite) else ()
        left_out = {name for measured in run.read(MEASURED) for name in measured["left_out"]}
        problems = suites.read(request.suite, request.only, found)
        return [problem for problem in problems if problem.name not in left_out]
    except (DvkError, OSError):
        return None
