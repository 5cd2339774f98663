"""`dvk eval`: how often a policy is right and fast, over a suite of tasks; two evaluations side by side."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dvk.cli.options import INTERRUPTED, AnyJudge, Backend, Conf, Engine, OnDevice, Settings, Train
from dvk.errors import UsageError


def command(
    suite: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of task files (sub-folders are levels), a checkout of a known benchmark, a .parquet of problems, "
            "or a folder of definitions in FlashInfer-Bench's or SOL-ExecBench's layout."
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="composer, nano:PATH, hf:PATH, endpoint:MODEL; a strategy of dvk optimize with its model, as in auto:nano; "
            "episodes:FILE or kernelbench:RUN judge what exists."
        ),
    ] = "composer",
    turns: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Attempts a conversation; of a strategy, the composer too: candidates a task, times --samples.",
        ),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            min=1,
            help="Conversations a task; one is greedy, several are sampled. A strategy always samples, as in dvk optimize.",
        ),
    ] = 1,
    iterations: Annotated[
        int,
        typer.Option(
            min=1,
            help="Test-time scaling: number of times that a full conversation continues from its best window.",
        ),
    ] = 1,
    window: Annotated[
        int | None,
        typer.Option(min=1, help="Turns of that window (default: 4, less than --turns)."),
    ] = None,
    library: Annotated[
        Path | None,
        typer.Option(
            help="Skill library to select from; without it a model is given no skills, the composer those of the usual one."
        ),
    ] = None,
    no_skills: Annotated[
        bool, typer.Option("--no-skills", help="Give no skills even where there is a library.")
    ] = False,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            help="Also time against compile, max-autotune or graph, once a task, and report the portfolio: the faster of "
            "own kernels and these; may be given several times."
        ),
    ] = None,
    claim: Annotated[
        bool,
        typer.Option("--claim", help="Time winners again at the claim tier, in fresh processes."),
    ] = False,
    backend: Backend = "auto",
    device: OnDevice = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Play this task alone; may be given several times.")
    ] = None,
    eval_mode: Annotated[
        bool, typer.Option("--eval", help="Call .eval() on the modules first.")
    ] = False,
    train: Train = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Candidates judged at a time (default: rollout.judges)."),
    ] = None,
    hygiene: Annotated[
        bool,
        typer.Option(
            "--hygiene", help="Probe the tasks first: constant outputs, ignored inputs, ranges."
        ),
    ] = False,
    kernelbench: Annotated[
        Path | None, typer.Option(help="Also leave the results here in KernelBench's layout.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="A B",
            help="Instead of playing: what evaluation B has over A, paired by task; with --out as a page, too.",
        ),
    ] = None,
    show: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Instead of playing: the tables of a run folder as it is, also of a run that was stopped or is not finished.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default: runs/eval-NAME-TIME).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    judge: AnyJudge = None,
    engine: Engine = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for programs.")
    ] = False,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Play every task of a suite and print fast_p: the share of tasks with a correct candidate faster than p times eager."""
    if [suite, compare, show].count(None) != 2:
        raise UsageError(
            "give a suite, --compare A B or --show RUN",
            "dvk eval data/tasks/examples, or dvk eval --compare runs/a runs/b",
        )
    if show is not None:
        _alone(
            {"--out": out, "--kernelbench": kernelbench, "--baseline": baseline, "--resume": resume}
        )
        from dvk.pipelines.eval.results import show as shown

        _print(shown(show), as_json)
        return
    if compare is not None:
        _compare(compare, out, as_json)
        return
    assert suite is not None
    _check(device, baseline or [])

    from dvk import config as configuration
    from dvk.pipelines.eval import EvalRequest, EvalStopped, evaluate

    over: Any = tuple(b for b in baseline or () if b != "eager")
    request = EvalRequest(
        suite=suite,
        policy=policy,
        turns=turns,
        samples=samples,
        iterations=iterations,
        window=window,
        library=library,
        no_skills=no_skills,
        baselines=over,
        claim=claim,
        backend=backend,
        device=device,
        only=tuple(only or ()),
        workers=workers,
        eval_mode=eval_mode,
        train=train,
        hygiene=hygiene,
        kernelbench=kernelbench,
        out=out,
        resume=resume,
        argv=tuple(sys.argv),
    )
    given = configuration.load(
        config, settings or [], {"remote.judge": judge, "remote.engine": engine}
    )
    try:
        _print(evaluate(request, given), as_json)
    except EvalStopped as stopped:
        _print(stopped.summary, as_json)
        raise typer.Exit(INTERRUPTED) from None


def _print(summary: dict[str, Any], as_json: bool) -> None:
    print(json.dumps(summary) if as_json else "\n".join(lines(summary)))


def _alone(given: dict[str, Any]) -> None:
    """Refuse options that `--show` would ignore."""
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(
            f"{wrong[0]} does not go with --show", "dvk eval --show RUN prints the tables of a run"
        )


def _check(device: str | None, baseline: list[str]) -> None:
    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")
    if unknown := [b for b in baseline if b not in ("eager", "compile", "max-autotune", "graph")]:
        raise UsageError(
            f"unknown baseline: `{unknown[0]}`",
            "choose compile, max-autotune or graph (eager is always timed)",
        )


def _compare(runs: tuple[Path, Path], out: Path | None, as_json: bool) -> None:
    from dvk.pipelines.eval.comparing import compare

    comparison = compare(*runs, out, tuple(sys.argv))
    print(json.dumps(comparison) if as_json else "\n".join(differences(comparison)))


# ---------------------------------------------------------------- for people

OTHERS = {"compile": "torch.compile", "max-autotune": "max-autotune", "graph": "CUDA graph"}


def lines(summary: dict[str, Any]) -> list[str]:
    """The tables, then notes on them."""
    return [
        f"{summary['policy']} on {_many(summary['num_tasks'])}",
        "",
        *_shares(summary),
        *_notes(summary),
        *_left(summary),
        f"run: {summary['run']}",
    ]


def _left(summary: dict[str, Any]) -> list[str]:
    """What a run that is not finished has not done yet, and which times its tables are of."""
    if summary.get("finished", True):
        return []
    left, counted = summary["num_left"], summary["counted"]
    said = []
    if counted["times"] == "first":
        said.append("first times: no winner has been timed again yet, and no baseline counts")
    elif waiting := counted["num_waiting"]:
        said.append(
            f"second times: {_many(waiting)} with winners that are not timed again yet left out, and {counted['num_left_out']} of the "
            "others, the same share"
        )
    what = f": {_many(left)} left" if left else ""
    return [
        *said,
        f"not finished{what}; the same command with --resume --out {summary['run']} continues",
    ]


def _shares(summary: dict[str, Any]) -> list[str]:
    """fast_p overall, by turn and by kind of task."""
    thresholds = list(summary["fast_p"])

    def shares(name: str, of: dict[str, Any]) -> str:
        return f"{name[:22]:<22}" + "".join(f"{100 * of[t]:>8.1f}%" for t in thresholds)

    def row(name: str, table: dict[str, Any], mean: str = "geomean_kept") -> str:
        of = table[mean]
        return shares(name, table["fast_p"]) + (f"{of:>8.2f}×" if of else "")

    def ratio(name: str, table: dict[str, Any]) -> str:
        """Against something else than the original, where a loss is one: there is nothing to keep."""
        return row(name, table, "geomean")

    head = "".join(f"{'fast_' + t:>9}" for t in thresholds)
    lines = [f"{'':<22}{head}  geomean", row("all", summary)]
    if summary["samples"] > 1:
        lines.append(row("best sample", summary["best_of"]))
    lines += [ratio(f"over {name}", summary[key]) for key, name in OTHERS.items() if key in summary]
    if whole := summary.get("portfolio"):
        lines.append(row("portfolio", whole))
        lines += [ratio(f"portfolio/{OTHERS[n]}", of) for n, of in whole["over"].items()]
        lines += [ratio(f"{OTHERS[n]} alone", of) for n, of in whole["lines"].items()]
    clean = summary.get("hygiene", {}).get("clean")
    if clean:
        lines.append(row(f"without {summary['hygiene']['num_flagged']} flagged", clean))
    turns = summary.get("by_turn", {})
    if 1 < len(turns) <= 16:
        first = "by the first timing of each attempt; above, winners were timed again:"
        lines += ["", "by attempt, unknown plans as wrong:" if summary.get("table") else first]
        lines += [shares(f"best by turn {turn}", of) for turn, of in turns.items()]
        if summary.get("cost", {}).get("model_s") is not None:
            alone = summary["per_turn"].items()
            lines += ["", *(shares(f"turn {turn} alone", of) for turn, of in alone)]
    for dimension, tables in summary["groups"].items():
        if len(tables) > 1:
            lines.append("")
            lines += [
                row(f"{dimension} {v} ({one['num_tasks']})", one) for v, one in tables.items()
            ]
    return lines


def _notes(summary: dict[str, Any]) -> list[str]:
    """Intervals, cost, claims, and tasks that were flagged or failed."""
    from dvk.pipelines.eval.tables import measured_notes, mixed

    ends = ", ".join(
        f"fast_{t} [{100 * e[0]:.1f}, {100 * e[1]:.1f}]"
        for t, e in summary["fast_p_interval"].items()
        if e
    )
    lines = ["", f"95 % intervals over tasks: {ends or 'one task has none'}"]
    lines += [*measured_notes(summary), *_told(summary)]
    if (number := summary.get("num_in_train_mode")) and not summary.get("table"):
        lines.append(
            f"{_many(number)} judged in train mode, which layers of {'it' if number == 1 else 'them'} depend on: "
            "--eval judges for inference"
        )
    if note := mixed(summary):
        lines.append(note)
    if summary.get("num_claims"):  # absent in finished runs of an older dvk
        lines.append(
            f"claims: {summary['num_held']} of {summary['num_claims']} winners are faster than eager beyond doubt"
        )
    flagged = summary.get("hygiene", {}).get("flagged", {})
    lines += [f"flagged: {name}: {'; '.join(why)}" for name, why in list(flagged.items())[:10]]
    lines += [
        f"not timed: {OTHERS[name]} of {task}: {why}"
        for name, of in (summary.get("portfolio") or {}).get("not_timed", {}).items()
        for task, why in list(of.items())[:5]
    ]
    lines += [f"failed: {name}: {why}" for name, why in list(summary["failed"].items())[:10]]
    if len(summary["failed"]) > 10:
        lines.append(f"and {len(summary['failed']) - 10} more; all are in {summary['run']}")
    if summary.get("weighted"):
        lines += _weighted(summary)
    return lines + [f"KernelBench's layout: {path}" for path in summary.get("kernelbench", [])]


def _weighted(summary: dict[str, Any]) -> list[str]:
    """The gain by launches, and where solutions and traces are."""
    whole = summary["weighted"]
    lines = []
    if whole["speedup"] is not None:
        lines.append(
            f"by launches: {whole['reference_ms']:.4g} → {whole['ms']:.4g} ms, {whole['speedup']:.3f}× "
            + ", ".join(f"{n} {one['speedup']:.3f}×" for n, one in whole["by_kind"].items())
        )
    if summary.get("trace_set"):
        lines.append(f"{summary['num_solutions']} solutions with traces: {summary['trace_set']}")
    return lines


def _told(summary: dict[str, Any]) -> list[str]:
    """Format roofline and cost, one line each."""
    result = []
    reached = summary.get("roofline") or {}
    if reached.get("num_tasks"):
        result.append(
            f"roofline: right candidates reach {100 * reached['mean']:.0f} % of the measured ceilings on average, "
            f"{100 * reached['over_half']:.0f} % of them more than half ({reached['num_tasks']} tasks)"
        )
    elif summary.get("roofline") is not None and not summary.get("table"):
        result.append("roofline: no ceilings known for these tasks (dvk doctor measures them)")
    spent = summary.get("cost")
    if spent:
        told = f"cost: {spent['wall_s']:.0f} s, of judging {spent['judge_s']:.0f} s, {spent['num_candidates']} candidates"
        if spent["model_s"] is not None:
            told += f", of the model {spent['model_s']:.0f} s"
            told += (
                f", {spent['prompt_tokens']:,} tokens read, {spent['completion_tokens']:,} written"
            )
        result.append(told + (f", ${spent['usd']:.2f}" if spent["usd"] is not None else ""))
    return result


def differences(found: dict[str, Any]) -> list[str]:
    """Format a comparison: one line per score, with both sides and the difference with its interval."""
    from dvk.pipelines.eval.compare_page import shown, unlike

    sides = [found["first"], found["second"]]
    said = [f"{letter}: {side['policy'] or ''} {side['run']}" for letter, side in zip("AB", sides)]
    said += [
        f"{found['num_shared']} tasks in both; {found['num_only_first']} only in A, {found['num_only_second']} only in B",
        "",
        f"{'':<20}{'A':>9}{'B':>9}   B against A, 95 % interval over tasks",
    ]
    for name, gap in found["differences"].items():
        values = ["", ""]
        if name.startswith("fast_"):
            values = [f"{100 * side['fast_p'][name.removeprefix('fast_')]:.1f}%" for side in sides]
        elif name == "speedup":
            values = [f"{side['geomean_kept'] or 1:.3f}×" for side in sides]
        label = name if name.startswith("fast_") else name.replace("_", " ")
        said.append(f"{label:<20}{values[0]:>9}{values[1]:>9}   {shown(name, gap)}")
    for title, gaps in [
        ("best sample", found["best_of"]),
        ("over torch.compile", found["compile"]),
        *found["levels"].items(),
    ]:
        if gaps:
            said.append(
                f"{title[:20]:<38}   fast_1 {shown('fast_1', gaps['fast_1'])}, speedup {shown('speedup', gaps['speedup'])}"
            )
    said += unlike(found)
    for word in ("gained", "lost"):
        said += [
            f"{word}: {one['task']}: {_speedup(one['first'])} to {_speedup(one['second'])}"
            for one in found[word]
        ]
    return said


def _many(tasks: int) -> str:
    return f"{tasks} task" + "s" * (tasks != 1)


def _speedup(value: float | None) -> str:
    return f"{value:.2f}×" if value is not None else "not right or not timed"
