"""`dvk measure`: a table of measured plans, from which learning, ablations and tests work without a GPU.

    tasks (folders, the generator) → captured → plans that cover what the composer can do → judge → one line a task

All of a task's plans are judged in one visit. A task's line is on disk before the next is counted; a killed run resumes with the others,
and one whose budget ended with the plans that have no verdict.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dvk
from dvk import backends, crashes, machine, target
from dvk.agents.preparing import prepare
from dvk.agents.task_context import TaskContext
from dvk.composer import CannotCompose, Plan
from dvk.composer.codegen.base import codegen
from dvk.config import Config
from dvk.errors import DvkError, UsageError
from dvk.harness.placement import num_workers
from dvk.harness.queue import JudgeQueue, default_contract
from dvk.harness.remote.table import known_tasks
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.learn.spread import spread
from dvk.pipelines import tracebacks
from dvk.pipelines.measure.merging import from_runs
from dvk.pipelines.report.counted import WordCount
from dvk.pipelines.wording import all_worded, worded, words_of
from dvk.records import PROTOCOL, BackendName, Candidate, Device, Verdict
from dvk.records.measured import MeasuredPlan, MeasuredTask, measured, plan_key, write_table
from dvk.runs import RunFolder
from dvk.search import SearchProblem
from dvk.search.ahead import prepared_ahead
from dvk.search.composer import Planner
from dvk.search.stratified import plans
from dvk.taskgen import generate

ROWS = "rows.jsonl"
TABLE = "table.jsonl.gz"
IN_FLIGHT = 2
"""Tasks open per worker: enough that one is always ready."""
PLANNERS = 16
"""Most processes that write plans."""
PREPARED_FIRST, PREPARED = 8, 64
"""Tasks prepared together, at first and at most: few at first, so that judging begins soon."""


@dataclass(frozen=True, kw_only=True)
class MeasureRequest:
    """The command line's request."""

    tasks: tuple[Path, ...] = ()
    generated: int = 0
    merge: tuple[Path, ...] = ()
    again: tuple[Path, ...] = ()
    """Tables whose plans are timed again."""
    best: int | None = None
    """Of these plans each task's default and so many fastest ones; None: all."""
    plans: int = 24
    budget_s: float | None = None
    """Seconds after which judging ends; tasks in progress keep the plans that were judged."""
    backend: str = "auto"
    device: str | None = None
    workers: int | None = None
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()
    quiet: bool = False


@dataclass(frozen=True)
class TaskFile:
    """A task to measure."""

    name: str
    path: Path
    groups: dict[str, str]
    plans: tuple[MeasuredPlan, ...] | None = None
    """Plans to time again; None: new ones."""
    before: tuple[MeasuredPlan, ...] = ()
    """Those that this run has judged, before its budget ended."""


class OpenTask:
    """A task whose plans are being judged."""

    def __init__(
        self,
        groups: dict[str, str],
        subject: TaskContext,
        asked: list[tuple[str, Candidate]],
        before: Sequence[MeasuredPlan] = (),
    ):
        self.groups, self.subject, self.asked = groups, subject, asked
        self.words = words_of(subject, [(one.recipes, one.schedule) for _, one in asked])
        known = {plan.key: plan for plan in before}
        keys = [plan_key(one.recipes, one.schedule) for _, one in asked]
        self.judged = {place: known[key] for place, key in enumerate(keys) if key in known}

    @property
    def left(self) -> list[int]:
        """Places of the plans without a verdict."""
        return [place for place in range(len(self.asked)) if place not in self.judged]

    def add(self, place: int, verdict: Verdict) -> None:
        """Keep a plan's verdict."""
        kind, candidate = self.asked[place]
        self.judged[place] = measured(candidate, verdict, kind)

    @property
    def is_of_use(self) -> bool:
        """Whether the verdicts that there are tell something: of the default and of another plan."""
        return 0 in self.judged and len(self.judged) > 1

    def row(self) -> MeasuredTask:
        """The task with the plans that were judged."""
        judged = sorted(self.judged)
        texts = [self.words["texts"][n] for n in judged]
        row = MeasuredTask(
            task=self.subject.task.model_copy(update={"path": None}),
            backend=self.subject.backend,
            groups=self.groups,
            dvk=dvk.__version__,
            protocol=PROTOCOL,
            plans=tuple(self.judged[n] for n in judged),
            left=len(self.left),
        )
        return worded(row, {**self.words, "texts": texts})


def measure(request: MeasureRequest, config: Config) -> dict[str, Any]:
    """Run the command; `--json` prints the returned summary.

    Raises:
        UsageError: there is nothing to measure; no such folder.
        DvkError: the user can fix it.
    """
    if not (request.tasks or request.generated or request.merge or request.again):
        raise UsageError(
            "no tasks",
            "give folders of task files, --generated NUMBER, --again TABLE or --from RUN",
        )
    device: Device = request.device or backends.default_device()  # type: ignore[assignment]  # checked by the command
    backend = backends.pick(request.backend, device)
    with RunFolder.open(
        request.out,
        command="measure",
        name=backend,
        argv=request.argv,
        config=config,
        resume=request.resume,
    ) as run:
        files = left_files(request, run, config, device, backend)
        left = judged(files, request, run, config, device, backend) if files else 0
        measured_here = rows_of(run).values()
        rows = all_worded(
            from_runs(request.merge, measured_here), request.workers or machine.num_cores()
        )
        write_table(run.path / TABLE, rows)
        run.finish("interrupted" if left else "done")
    return {**summary(run.path / TABLE, rows), "left": left}


def rows_of(run: RunFolder) -> dict[str, MeasuredTask]:
    """The run's rows by task name; the last of a task counts, since it holds the plans of those before."""
    rows = [MeasuredTask.model_validate(row) for row in run.read(ROWS)]
    return {row.task.name: row for row in rows}


def left_files(
    request: MeasureRequest, run: RunFolder, config: Config, device: Device, backend: BackendName
) -> list[TaskFile]:
    """The tasks that have plans without a verdict."""
    known = rows_of(run)
    files = []
    for one in task_files(request, run, config, device, backend):
        row = known.get(one.name)
        done = {plan.key for plan in row.plans} if row is not None else set()
        if row is None or row.left or any(plan.key not in done for plan in one.plans or ()):
            files.append(replace(one, before=row.plans if row is not None else ()))
    return files


def task_files(
    request: MeasureRequest, run: RunFolder, config: Config, device: Device, backend: BackendName
) -> Iterator[TaskFile]:
    """The tasks of the folders, then the generated ones and those of tables, whose files are written to the run.

    Raises:
        UsageError: a folder has none; a table cannot be read, or has no plan of the back end.
    """
    for suite in request.tasks:
        paths = sorted(path for path in suite.rglob("*.py") if not path.name.startswith("_"))
        if not paths:
            raise UsageError(f"no task files in `{suite}`", "give a folder of files with a Model")
        for path in paths:
            yield TaskFile(path.stem, path, {"suite": suite.name})
    tables = [of_backend(table, backend) for table in request.again]  # errors before the first file
    folder = run.path / "tasks"
    folder.mkdir(exist_ok=True)
    for made in generate(config.seed + 1, request.generated, device=device):
        path = folder / f"{made.name}.py"
        if not path.exists():
            path.write_text(made.source)
        groups = {"level": made.level, "category": made.category, "suite": "generated"}
        yield TaskFile(made.name, path, groups)
    for row in joined(row for rows in tables for row in rows):
        path = folder / f"{row.task.name}.py"
        path.write_text(row.task.source)
        yield TaskFile(row.task.name, path, row.groups, fastest(row, request.best))


def joined(rows: Iterable[MeasuredTask]) -> list[MeasuredTask]:
    """Each task once, with the plans of all its rows; of a plan in several the first."""
    found: dict[str, MeasuredTask] = {}
    for row in rows:
        earlier = found.setdefault(row.task.id, row)
        plans = {plan.key: plan for plan in (*row.plans, *earlier.plans)}
        known = dict.fromkeys(plan.key for plan in (*earlier.plans, *row.plans))
        whole = tuple(plans[key] for key in known)
        found[row.task.id] = earlier.model_copy(update={"plans": whole})
    return list(found.values())


def fastest(row: MeasuredTask, count: int | None) -> tuple[MeasuredPlan, ...]:
    """The default and the `count` fastest right plans of a task, in the table's order; None: all."""
    if count is None:
        return row.plans
    right = [plan for plan in row.plans if plan.speedup]
    timed = sorted(right, key=lambda plan: -(plan.speedup or 0.0))[:count]
    return tuple(plan for plan in row.plans if plan.kind == "default" or plan in timed)


def of_backend(table: Path, backend: BackendName) -> list[MeasuredTask]:
    """The tasks of a table with plans of a back end.

    Raises:
        UsageError: it cannot be read, or has none.
    """
    rows = known_tasks(table)
    chosen = [row for row in rows if row.backend == backend]
    if not chosen:
        others = sorted({row.backend for row in rows})
        raise UsageError(
            f"`{table}` holds no plan of {backend}", f"give --backend {' or '.join(others)}"
        )
    return chosen


def judged(
    files: Sequence[TaskFile],
    request: MeasureRequest,
    run: RunFolder,
    config: Config,
    device: Device,
    backend: BackendName,
) -> int:
    """Measure the tasks; their rows are in the run's folder as each ends. A task that cannot be measured is left out, with a traceback.

    Returns:
        How many tasks have plans without a verdict: the budget ended first.
    """
    workers = request.workers or num_workers(config, device)
    spec = JudgeSpec(contract=default_contract(device))
    open_: list[OpenTask] = []
    left = len(files)
    queue: JudgeQueue[tuple[OpenTask, int]] = JudgeQueue(workers, config, spec=spec)
    ends = time.monotonic() + (request.budget_s or math.inf)
    coming = prepared(files, request, run, config, device, backend)
    counting = WordCount("tasks", quiet=request.quiet, budget_s=request.budget_s)
    with counting as shown, queue, prepared_ahead(coming) as ready:
        line = shown.add_task("measure", total=len(files), completed=0)
        while (open_ or not ready.ended) and time.monotonic() < ends:
            while len(open_) < IN_FLIGHT * workers:
                if (opened := ready.take(0.0 if open_ else None)) is None:
                    break
                if isinstance(opened, str):
                    left -= 1
                    shown.advance(line)
                    continue
                open_.append(opened)
                for place in opened.left:
                    queue.submit((opened, place), opened.subject.task, opened.asked[place][1])
            for (opened, place), verdict in queue.results(wait=True):
                opened.add(place, verdict)
            for opened in [one for one in open_ if not one.left]:
                open_.remove(opened)
                run.append(ROWS, opened.row())
                left -= 1
                shown.advance(line)
        for opened in open_:  # the budget has ended
            if opened.is_of_use:
                run.append(ROWS, opened.row())
    return left


def prepared(
    files: Sequence[TaskFile],
    request: MeasureRequest,
    run: RunFolder,
    config: Config,
    device: Device,
    backend: BackendName,
) -> Iterator[OpenTask | str]:
    """Tasks captured, with their plans; for one that cannot be measured here its traceback, which may be empty."""
    planned = partial(
        with_plans, count=request.plans, config=config, where=target.of_machine(device)
    )
    for one, found in spread(
        planned, captured(files, config, device, backend), min(PLANNERS, machine.num_cores())
    ):
        if isinstance(found, str):
            tracebacks.keep(run, one.name, [found] if found else [])
        yield found


def captured(
    files: Sequence[TaskFile], config: Config, device: Device, backend: BackendName
) -> Iterator[tuple[TaskFile, TaskContext | DvkError]]:
    """Each file with what examining and capturing it found."""
    first, count = 0, PREPARED_FIRST
    while some := files[first : first + count]:
        found = prepare([one.path for one in some], device, backend, config, kept=True)
        yield from zip(some, found, strict=True)
        first, count = first + count, min(2 * count, PREPARED)


def with_plans(
    given: tuple[TaskFile, TaskContext | DvkError],
    *,
    count: int,
    config: Config,
    where: target.Target,
) -> tuple[TaskFile, OpenTask | str]:
    """The file, and its task with plans, or a traceback, which may be empty."""
    one, subject = given
    if isinstance(subject, DvkError) or subject.captured is None:
        error = subject if isinstance(subject, DvkError) else subject.cannot
        return one, getattr(error, "traceback", "")
    problem = SearchProblem(
        subject.task, subject.captured, subject.backend, (), config, target=where
    )
    try:
        asked = plans(problem, count, config.seed) if one.plans is None else listed(problem, one)
        return one, OpenTask(one.groups, subject, asked, one.before)
    except (DvkError, CannotCompose):
        return one, ""
    except Exception as error:  # noqa: BLE001 - the fence: see dvk.crashes
        return one, crashes.traceback_text(error)


def listed(problem: SearchProblem, one: TaskFile) -> list[tuple[str, Candidate]]:
    """The plans that a table names."""
    planner, parse = Planner(problem), codegen(problem.backend).parse
    rows = []
    for plan in one.plans or ():
        schedules = {name: parse(printed, name) for name, printed in plan.schedule.items()}
        rows.append((plan.kind, planner.candidate(Plan(plan.recipes, schedules), plan.kind)))
    return rows


def summary(path: Path, rows: Sequence[MeasuredTask]) -> dict[str, Any]:
    """Counts, the machines that measured, and the geometric means of default and best plans over tasks on which both were timed."""
    pairs = [
        (default.speedup, best.speedup)
        for row in rows
        if (default := row.default) is not None
        and default.speedup
        and (best := row.best) is not None
        and best.speedup
    ]
    plans_of = [plan for row in rows for plan in row.plans]

    def mean(values: list[float]) -> float | None:
        return math.exp(sum(map(math.log, values)) / len(values)) if values else None

    return {
        "table": str(path),
        "machine": "; ".join(sorted({plan.verdict.machine for plan in plans_of} - {""})),
        "tasks": len(rows),
        "plans": len(plans_of),
        "timed": sum(plan.speedup is not None for plan in plans_of),
        "default": mean([default for default, _ in pairs]),
        "best": mean([best for _, best in pairs]),
    }
