"""`dvk eval`: play every task of a suite with one policy, and report how often it is right and fast.

    read the suite → play each task (a strategy, the agents on a model, a record) → time the winners again → rows → tables

    request.py    the request, the run's files         rows.py           one row a sample: its results
    suites.py     folders, checkouts, tables           tables.py         fast_p and all other figures, from rows
    layouts.py    other benchmarks' files              spending.py       tokens and seconds
    playing.py    policies                             hygiene.py        tasks whose speedup means nothing
    recorded.py   candidates that exist already        retime.py         second times of winners
    progress.py   lines on stderr                      comparing.py      two evaluations, paired by task
    kernelbench_ids.py   KernelBench's numbers          page.py    report.html; compare_page.py, of a comparison
    lines.py      PyTorch's own lines, once a task     definitions.py    FlashInfer-Bench's folders, solutions and traces
    launches.py   gains weighted by launches

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
from dvk.pipelines.eval import definitions, hygiene, page, playing, recorded, retime, suites, tables
from dvk.pipelines.eval.kernelbench_ids import results
from dvk.pipelines.eval.launches import weighted
from dvk.pipelines.eval.lines import judge_lines
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.request import (
    AGAIN,
    EPISODES,
    FACTS,
    LINES,
    ROWS,
    SUMMARY,
    UNPLAYED,
    EvalRequest,
    Unplayed,
)
from dvk.pipelines.eval.rows import EvalRow, reason, rows_for, tries, winner
from dvk.pipelines.eval.spending import Meter
from dvk.pipelines.report.units import many
from dvk.records import Device, Episode, Verdict
from dvk.runs import RunFolder

__all__ = ["EvalRequest", "evaluate"]


def evaluate(request: EvalRequest, config: Config) -> dict[str, Any]:
    """Run the command; `--json` prints the returned summary.

    Raises:
        DvkError: the user can fix it.
    """
    check(request)
    if request.claim and config.remote.judge is not None:
        remote.require_ours(config, "--claim times winners at the claim tier")
    defined = definitions.read(request.suite) if is_dataset(request.suite) else None
    problems = suites.read(request.suite, request.only, defined.tasks if defined else ())
    device: Device = request.device or backends.default_device()  # type: ignore[assignment]  # checked by the command
    backend = backends.pick(request.backend, device)
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
        with (
            Progress(len(problems), file=StringIO() if request.quiet else None) as progress,
            Meter(run) as meter,
            playing.open_judges(request, config, device, progress) as judging,
        ):
            progress.say(
                f"{many(len(problems), 'task')} of {request.suite}, {request.policy}, {backend} on {device}, "
                f"{judging.workers} candidates at a time: {run.path}"
            )
            table = playing.EvalTable(
                request, config, device, backend, roofline.load(device), progress, judging
            )
            episodes, unplayed = _played(run, problems, table, meter)
            again = _timed_again(run, episodes, table)
            results = _with_solutions(run, defined, episodes, again, table)
            if (line := tracebacks.stderr_line(run)) is not None:
                progress.say(line)
        rows = rows_for(
            episodes,
            unplayed,
            again,
            {p.name: p.groups for p in problems},
            {row["name"]: row for row in run.read(FACTS)},
            run.read(LINES),
            request.baselines,
        )
        run.write_text(ROWS, "".join(row.model_dump_json() + "\n" for row in rows))
        summary = summarised(request, run, rows, meter, device, backend) | results
        summary |= weighted(rows, problems)
        run.append(SUMMARY, summary)
        page.write(run, rows, summary)
        run.finish("done")
        return {**summary, **exported(run, problems, request)}


def _played(
    run: RunFolder, problems: Sequence[suites.SuiteTask], table: playing.EvalTable, meter: Meter
) -> tuple[list[Episode], list[Unplayed]]:
    """Every task's episode, those of an earlier process included, and the tasks that could not be loaded."""
    request, progress = table.request, table.progress
    episodes = [Episode.model_validate(e) for e in run.read(EPISODES)]
    unplayed = [Unplayed.model_validate(u) for u in run.read(UNPLAYED)]
    done = {e.task.name for e in episodes} | {u.name for u in unplayed}
    progress.resumed(len(done))
    if request.hygiene:
        hygiene.probe(problems, run, table.device, table.config, progress, request.eval_mode)
    left = [p for p in problems if p.name not in done]
    cannot: dict[str, str] = {}

    def found(row: dict[str, Any]) -> None:
        run.append(FACTS, row)
        cannot[row["name"]] = row.get("cannot", "")
        tracebacks.keep(run, row["name"], [row.get("traceback", "")])

    for result in playing.play_all(left, table, on_facts=found, on_usage=meter.of):
        if isinstance(result, Unplayed):
            run.append(UNPLAYED, result)
            unplayed.append(result)
            tracebacks.keep(run, result.name, [result.traceback])
            told = summary_lines(result)
        else:
            run.append(EPISODES, result)
            episodes.append(result)
            tracebacks.keep(run, result.task.name, tracebacks.of_episode(result))
            told = summary_lines(result, cannot.get(result.task.name, ""))
        meter.note()
        progress.ended(told)
    return episodes, unplayed


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


def _timed_again(
    run: RunFolder, episodes: Sequence[Episode], table: playing.EvalTable
) -> dict[tuple[str, int], Verdict]:
    """The second verdicts of winners; PyTorch's own lines are judged after them, and go to the run's folder."""
    asked = table.request, table.progress, table.judging
    again = {
        (row["task"], row["sample"]): Verdict.model_validate(row["verdict"])
        for row in run.read(AGAIN)
    }
    for row in retime.time_again(episodes, again, *asked):
        run.append(AGAIN, row)
        again[row["task"], row["sample"]] = row["verdict"]
        tracebacks.keep(run, row["task"], [row["verdict"].traceback])
    for row in judge_lines(episodes, run.read(LINES), again, *asked):
        run.append(LINES, row)
    return again


def summarised(
    request: EvalRequest,
    run: RunFolder,
    rows: Sequence[EvalRow],
    meter: Meter,
    device: Device,
    backend: str,
) -> dict[str, Any]:
    """The tables of a run that has ended, what was asked, and what it cost."""
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
        "cost": meter.total(rows),
        "run": str(run.path),
        "tracebacks": tracebacks.count(run),
        "eval_mode": request.eval_mode,
        "train": request.train,
        "num_in_train_mode": sum(
            bool(row.get("depends"))
            for row in {row["name"]: row for row in run.read(FACTS)}.values()
        ),
    }


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
    episodes = [Episode.model_validate(row) for row in run.read(EPISODES)]
    again = {
        (row["task"], row["sample"]): Verdict.model_validate(row["verdict"])
        for row in run.read(AGAIN)
    }
    chosen = {
        (row["task"], row["sample"]): row["candidate"]
        for row in run.read(AGAIN)
        if "candidate" in row
    }
    failed = {row["name"]: row["error"] for row in run.read(UNPLAYED)}
    written = kernelbench_results.write(
        request.kernelbench, results(problems, episodes, failed, again, chosen)
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
