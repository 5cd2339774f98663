"""`dvk eval`: play every task of a suite with one policy, and report how often it is right and fast.

    read the suite → play each task (a strategy, the agents on a model, a record) → rows → tables
                       └▶ time its winner again while others are searched (claims, on a CPU: after all)

    request.py    the request, the run's files         rows.py           one row a sample: its results
    results.py    rows and tables of a folder, of a stopped run, too
    suites.py     folders, checkouts, tables           tables.py         fast_p and all other figures, from rows
    layouts.py    other benchmarks' files              spending.py       tokens and seconds
    playing.py    policies                             hygiene.py        tasks whose speedup means nothing
    recorded.py   candidates that exist already        retime.py         second times of winners
    progress.py   lines on stderr                      comparing.py      two evaluations, paired by task
    kernelbench_ids.py   KernelBench's numbers          page.py    report.html; compare_page.py, of a comparison
    lines.py      PyTorch's own lines, once a task     definitions.py    FlashInfer-Bench's folders, solutions and traces
    launches.py   gains weighted by launches      alongside.py       second times while others are searched
    measured.py   tasks of a table of measured plans

Every episode is on disk as it ends, so a killed run resumes with the remaining tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

from dvk import backends, search
from dvk.agents import writers
from dvk.backbone import BACKBONES, is_supported
from dvk.config import Config
from dvk.errors import UsageError
from dvk.harness.timing import roofline
from dvk.interop.flashinfer.dataset import is_dataset
from dvk.interop.kernelbench import results as kernelbench_results
from dvk.interop.kernelgym import remote
from dvk.pipelines import tracebacks
from dvk.pipelines.eval import (
    definitions,
    hygiene,
    measured,
    page,
    playing,
    recorded,
    retime,
    suites,
)
from dvk.pipelines.eval.alongside import Alongside
from dvk.pipelines.eval.kernelbench_ids import results_by_id
from dvk.pipelines.eval.lines import judge_lines
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.request import (
    AGAIN,
    EPISODES,
    FACTS,
    LINES,
    MEASURED,
    ROWS,
    SUMMARY,
    UNPLAYED,
    EvalRequest,
    Unplayed,
)
from dvk.pipelines.eval.results import (
    EvalStopped,
    episodes_of,
    known_again,
    rows_on_disk,
    stopped,
    summarised,
    unplayed_of,
)
from dvk.pipelines.eval.rows import reason, tries, winner
from dvk.pipelines.eval.spending import Meter
from dvk.pipelines.report.units import many
from dvk.records import BackendName, Device, Episode, Verdict
from dvk.runs import RunFolder

__all__ = ["EvalRequest", "EvalStopped", "evaluate"]


def evaluate(request: EvalRequest, config: Config) -> dict[str, Any]:
    """Run the command; `--json` prints the returned summary.

    Raises:
        DvkError: the user can fix it.
        EvalStopped: the user stopped it, and there are results.
    """
    check(request)
    defined = definitions.read(request.suite) if is_dataset(request.suite) else None
    problems = suites.read(request.suite, request.only, defined.tasks if defined else ())
    held = measured.find(problems, request, config.remote.judge)
    if held is not None:
        problems = [problem for problem in problems if problem.name in held.rows]
        place = held.device, held.backend
    else:
        place = _place(request, config)
    suite = request.suite.stem if request.suite.is_file() else request.suite.resolve().name
    name = f"{suite}-{request.policy.replace('/', '_').replace(':', '-')}"
    with RunFolder.open(
        request.out,
        command="eval",
        name=name,
        argv=request.argv,
        config=config,
        resume=request.resume,
    ) as run:
        if run.answered(request, config):
            return {**run.read(SUMMARY)[-1], **exported(run, problems, request)}
        problems, config = (
            suites.with_sources_on_disk(problems, run),
            writers.with_rollout_place(request.model, config),
        )
        try:
            results = _measured(run, problems, defined, request, config, place, held)
        except KeyboardInterrupt:
            if (found := stopped(request, run, problems, *place)) is None:
                raise
            run.finish("interrupted")
            raise EvalStopped(found) from None
        rows = rows_on_disk(run, problems, request)
        run.write_text(ROWS, "".join(row.model_dump_json() + "\n" for row in rows))
        summary = summarised(request, run, rows, problems, *place) | results
        run.append(SUMMARY, summary)
        page.write(run, [row for row in rows if row.known], summary)
        run.finish("done")
        return {**summary, **exported(run, problems, request)}


def _place(request: EvalRequest, config: Config) -> tuple[Device, BackendName]:
    """The device and the back end to play on, where no table says them.

    Raises:
        UsageError, MachineError: this machine, or the server, cannot.
    """
    if request.claim and config.remote.judge is not None:
        remote.require_ours(config, "--claim times winners at the claim tier")
    device: Device = request.device or backends.default_device()  # type: ignore[assignment]  # checked by the command
    return device, backends.pick(request.backend, device)


def _measured(
    run: RunFolder,
    problems: Sequence[suites.SuiteTask],
    defined: definitions.DefinitionSuite | None,
    request: EvalRequest,
    config: Config,
    place: tuple[Device, BackendName],
    held: measured.MeasuredSuite | None = None,
) -> dict[str, Any]:
    """Play all tasks and time what is to be timed; everything is in the run's folder as it is known. Returns where solutions are."""
    device, backend = place
    with (
        Progress(len(problems), file=StringIO() if request.quiet else None) as progress,
        Meter(run) as meter,
        playing.open_judges(request, config, device, progress) as judging,
    ):
        progress.say(
            f"{many(len(problems), 'task')} of {request.suite}, {request.policy}, {backend} on {device}, "
            f"{judging.workers} candidates at a time: {run.path}"
        )
        if held is not None:
            progress.say(
                f"judged by {held.table}: {many(len(held.left_out), 'other task')} left out"
            )
        ceilings = roofline.load(device) if held is None else None
        table = playing.EvalTable(
            request, config, device, backend, ceilings, progress, judging, held
        )
        again = known_again(run)
        with _second_times(run, again, table) as second:
            episodes = _played(run, problems, table, meter, second)
            if _on_own_cores(table):
                judging.judge_singly()
            left = second.num_left and retime.num_wanted(episodes, again, request)
            if left and held is None:
                progress.stage(f"timing {left} winners again")
            second.finish()
        for row in judge_lines(episodes, run.read(LINES), again, request, progress, judging):
            run.append(LINES, row)
        results = _with_solutions(run, defined, episodes, again, table)
        if (line := tracebacks.stderr_line(run)) is not None:
            progress.say(line)
        return results


def _played(
    run: RunFolder,
    problems: Sequence[suites.SuiteTask],
    table: playing.EvalTable,
    meter: Meter,
    second: Alongside,
) -> list[Episode]:
    """Every task's episode, those of an earlier process included; the tasks that cannot be loaded are noted in the folder."""
    request, progress = table.request, table.progress
    episodes = episodes_of(run)
    done = {e.task.name for e in episodes} | {u.name for u in unplayed_of(run)}
    progress.resumed(len(done))
    second.add(*episodes)
    if request.hygiene:
        hygiene.probe(problems, run, table.device, table.config, progress, request.eval_mode)
    left = [p for p in problems if p.name not in done]
    cannot: dict[str, str] = {}

    def write(file: str, row: Any) -> None:
        # Not earlier: a policy that is refused leaves no folder.
        if table.held is not None and not run.read(MEASURED):
            run.append(MEASURED, table.held.record())
        run.append(file, row)

    def found(row: dict[str, Any]) -> None:
        write(FACTS, row)
        cannot[row["name"]] = row.get("cannot", "")
        tracebacks.keep(run, row["name"], [row.get("traceback", "")])

    for result in playing.play_all(left, table, on_facts=found, on_usage=meter.of):
        if isinstance(result, Unplayed):
            write(UNPLAYED, result)
            tracebacks.keep(run, result.name, [result.traceback])
            told = summary_lines(result)
        else:
            write(EPISODES, result)
            episodes.append(result)
            second.add(result)
            tracebacks.keep(run, result.task.name, tracebacks.of_episode(result))
            told = summary_lines(result, cannot.get(result.task.name, ""))
        meter.note()
        progress.ended(told)
    return episodes


def _with_solutions(
    run: RunFolder,
    defined: definitions.DefinitionSuite | None,
    episodes: Sequence[Episode],
    again: dict[tuple[str, int], Verdict],
    table: playing.EvalTable,
) -> dict[str, Any]:
    """Write the winners of definitions as solutions, with traces; where they are, for the summary."""
    if defined is None:
        return {}
    chosen = {
        (row["task"], row["sample"]): row["candidate"]
        for row in run.read(AGAIN)
        if "candidate" in row
    }
    return definitions.write(run, defined, episodes, again, chosen, table.progress, table.judging)


def _second_times(
    run: RunFolder, again: dict[tuple[str, int], Verdict], table: playing.EvalTable
) -> Alongside:
    """What times winners again, and keeps each second verdict in `again` and in the run's folder as it comes."""

    def write(row: dict[str, Any]) -> None:
        run.append(AGAIN, row)
        again[row["task"], row["sample"]] = row["verdict"]
        tracebacks.keep(run, row["task"], [row["verdict"].traceback])
        table.progress.timed_again()

    known = dict(again)
    if table.held is not None:  # it has one time of a plan
        return Alongside(lambda some: iter(()), write, 1)
    return Alongside(
        lambda some: retime.time_again(some, known, table.request, table.progress, table.judging),
        write,
        table.judging.workers,
        at_once=not (table.request.claim or _on_own_cores(table)),
    )


def _on_own_cores(table: playing.EvalTable) -> bool:
    """Whether the search itself would disturb what is timed: tasks of this machine's CPU."""
    remote = table.config.remote
    return table.device == "cpu" and remote.judge is None and remote.engine is None


def check(request: EvalRequest) -> None:
    """Refuse choices that do not go together, before the work starts.

    Raises:
        UsageError: names them.
    """
    alone = request.strategy is not None or recorded.is_record(request.policy)
    if request.strategy in search.ASK_NONE and request.model:
        raise UsageError(
            f"{request.strategy} asks no language model",
            f"--policy {request.strategy}, or auto:{request.model}",
        )
    if request.strategy in search.ASK_A_MODEL and not request.model:
        raise UsageError(
            f"{request.strategy} asks a language model",
            f"name it, as in --policy {request.strategy}:nano",
        )
    if not recorded.is_record(request.policy) and request.model and not is_supported(request.model):
        raise UsageError(
            f"unknown policy: `{request.policy}`",
            f"choose {', '.join(sorted(search.STRATEGIES))} (as auto:nano where one asks a model), a model "
            f"({', '.join(sorted(BACKBONES))}, file.py:Name), episodes:FILE or kernelbench:RUN",
        )
    if request.strategy == "auto" and request.model and request.num_candidates < 2:
        raise UsageError(
            f"{request.policy} with one candidate a task is the composer alone",
            "say how many, as in --turns 8",
        )
    if alone and request.iterations > 1:
        raise UsageError(
            f"{request.policy} has no conversations to continue",
            "leave --iterations out, or name a model as --policy",
        )
    if request.window is not None and request.iterations == 1:
        raise UsageError(
            "--window goes with --iterations",
            "dvk eval SUITE --policy hf:PATH --turns 5 --iterations 10 --window 4",
        )


def exported(
    run: RunFolder, problems: Sequence[suites.SuiteTask], request: EvalRequest
) -> dict[str, Any]:
    """Write a finished evaluation in other layouts, if requested; returns the files, by layout."""
    if request.kernelbench is None:
        return {}
    episodes, again = episodes_of(run), known_again(run)
    chosen = {
        (row["task"], row["sample"]): row["candidate"]
        for row in run.read(AGAIN)
        if "candidate" in row
    }
    failed = {one.name: one.error for one in unplayed_of(run)}
    written = kernelbench_results.write(
        request.kernelbench, results_by_id(problems, episodes, failed, again, chosen)
    )
    return {"kernelbench": [str(path) for path in written]}


def summary_lines(result: Episode | Unplayed, cannot: str = "") -> str:
    """A line on a task that ended; `cannot`: why it has no graph."""
    if isinstance(result, Unplayed):
        return f"{result.name}: {result.error}"
    turns = [turn for one in tries(result) for turn in one]
    best = winner(turns)
    timing = best.verdict.timing if best is not None and best.verdict is not None else None
    if timing is None and any(
        turn.verdict is not None and turn.verdict.error is None for turn in turns
    ):
        return f"{result.task.name}: right, not timed"
    return f"{result.task.name}: {timing.speedup if timing is not None else reason(turns, cannot)}"
