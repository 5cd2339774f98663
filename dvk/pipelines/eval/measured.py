"""The tasks of a suite as a table of measured plans holds them, for `--judge table:FILE`.

Device, back end and dtype are those that were measured, and no task runs here: a GPU's table needs no GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk import machine
from dvk.agents import TaskContext
from dvk.agents.preparing import PER_CHILD
from dvk.composer import CannotCompose
from dvk.composer.capture.batch import capture_many
from dvk.composer.codegen.base import takes_time_loops
from dvk.errors import DvkError, UsageError
from dvk.harness.remote.table import PREFIX, known_tasks
from dvk.interop.flashinfer.dataset import is_dataset
from dvk.pipelines.eval.request import EvalRequest
from dvk.pipelines.eval.suites import SuiteTask
from dvk.records import BackendName, Device, Task
from dvk.records.measured import MeasuredTask
from dvk.tasks import beside, packages
from dvk.tasks.sourcetext import read_source

NO_TASK = "the table does not hold it"
OTHER_TEXT = "the table holds another text of it"


@dataclass(frozen=True)
class MeasuredSuite:
    """The tasks of a suite that a table holds.

    Attributes:
        table: the file.
        rows: the table's row of each such task, by its name in the suite.
        left_out: the other tasks, each with the reason.
        device, backend: of all rows.
    """

    table: Path
    rows: dict[str, MeasuredTask]
    left_out: dict[str, str]
    device: Device
    backend: BackendName

    def subjects(self, names: Sequence[str]) -> Iterator[TaskContext | DvkError]:
        """Tasks as measured, captured here, or the reason why they cannot be.

        A policy that chooses among plans chooses among the table's.
        """
        rows = [self.rows[name] for name in names]
        found = capture_many(
            (row.task for row in rows),
            num_workers=machine.num_cores(),
            per_child=PER_CHILD,
            rolls=takes_time_loops(self.backend),
        )
        for row, (_, captured) in zip(rows, found):
            if isinstance(captured, CannotCompose):
                why = f"it cannot be captured on this machine: {captured}"
                yield DvkError(why, "some layouts are known on the table's device alone")
            else:
                yield TaskContext(row.task, captured, self.backend, answers=row.answers)

    @property
    def machines(self) -> list[str]:
        """Fingerprints of the machines that measured the tasks."""
        plans = [plan for row in self.rows.values() for plan in row.plans]
        return sorted({plan.verdict.machine for plan in plans} - {""})

    def record(self) -> dict[str, Any]:
        """What readers of the results have to know."""
        return {"file": str(self.table), "machines": self.machines, "left_out": self.left_out}


def find(
    problems: Sequence[SuiteTask], request: EvalRequest, judge: str | None
) -> MeasuredSuite | None:
    """The tasks of a suite that the judge's table holds; None if the judge is no table.

    A task is found by its text, its mode, and the device and the back end if they were named.

    Raises:
        UsageError: the table cannot be read, holds none of the tasks, or holds them on several devices; the request needs more
            than a table.
    """
    if judge is None or not judge.startswith(PREFIX):
        return None
    _check(request)
    path = Path(judge.removeprefix(PREFIX)).expanduser()
    by_text, names = defaultdict[str, list[MeasuredTask]](list), set[str]()
    for row in known_tasks(path):
        by_text[row.task.source].append(row)
        names.add(row.task.name)
    held, left_out = dict[str, MeasuredTask](), dict[str, str]()
    for problem in problems:
        same = [row for row in by_text[_text(problem)] if _reads(row.task, problem.path)]
        fitting = [row for row in same if _fits(row, request)]
        if fitting:
            named = (row for row in fitting if row.task.name == problem.path.stem)
            held[problem.name] = next(named, fitting[0])
        elif same:
            left_out[problem.name] = f"measured otherwise: {_how(same[0])}"
        else:
            left_out[problem.name] = OTHER_TEXT if problem.path.stem in names else NO_TASK
    if not held:
        name, why = min(left_out.items(), key=lambda one: (NO_TASK, OTHER_TEXT).count(one[1]))
        raise UsageError(
            f"`{path}` holds no task of `{request.suite}`; {name}: {why}",
            "give the suite and the options with which the table was measured",
        )
    places = sorted({(row.task.device, row.backend) for row in held.values()})
    if len(places) > 1:
        told = " and ".join(f"{backend} on {device}" for device, backend in places)
        raise UsageError(f"`{path}` holds tasks of {told}", "choose with --device and --backend")
    ((device, backend),) = places
    return MeasuredSuite(path, held, left_out, device, backend)


def _check(request: EvalRequest) -> None:
    asked = {
        "--claim": request.claim,
        "--baseline": bool(request.baselines),
        "--hygiene": request.hygiene,
        f"`{request.suite}`, whose solutions are judged,": is_dataset(request.suite),
    }
    for name, given in asked.items():
        if given:
            raise UsageError(
                f"{name} does not go with --judge {PREFIX}FILE: a table times nothing new",
                "leave one of them out",
            )


def _text(problem: SuiteTask) -> str:
    """The task's text; empty if it cannot be read."""
    if problem.source is not None:
        return problem.source
    try:
        return read_source(problem.path)
    except (OSError, UnicodeDecodeError):
        return ""


def _reads(task: Task, path: Path) -> bool:
    """Whether the files that the task imports are still those that were measured."""
    return beside.has_files(packages.base_of(path, task.package), task.beside)


def _fits(row: MeasuredTask, request: EvalRequest) -> bool:
    task = row.task
    return (
        task.device == (request.device or task.device)
        and row.backend == (row.backend if request.backend == "auto" else request.backend)
        and (task.eval_mode, task.train) == (request.eval_mode, request.train)
    )


def _how(row: MeasuredTask) -> str:
    flags = [" --eval"] * row.task.eval_mode + [" --train"] * row.task.train
    return f"--backend {row.backend} --device {row.task.device}{''.join(flags)}"
