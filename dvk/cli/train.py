"""`dvk train`: the co-evolution loop."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dvk.cli import recipes
from dvk.cli.options import AnyJudge, Backend, Conf, Engine, OnDevice, Settings


def command(
    start: Annotated[
        str, typer.Option("--from", help="What to train: nano, nano:PATH, hf:PATH-or-name.")
    ] = "nano",
    steps: Annotated[int, typer.Option(min=1, help="Steps of the whole run.")] = 100,
    tasks: Annotated[
        Path | None, typer.Option(help="Folder of task files to play (default: generated tasks).")
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(help="Folder of task files to validate on (default: generated ones)."),
    ] = None,
    library: Annotated[
        Path | None, typer.Option(help="What the run's own library begins as (default: your own).")
    ] = None,
    backend: Backend = "auto",
    device: OnDevice = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Candidates judged at a time.")] = None,
    ablate: Annotated[
        list[str] | None,
        typer.Option(help="Leave a part of the method out; see below. Repeatable."),
    ] = None,
    sweep: Annotated[
        Path | None,
        typer.Option(
            help="TOML file of variants to train one after the other and compare; see below."
        ),
    ] = None,
    rollouts: Annotated[
        str | None,
        typer.Option(
            help="Servers that sample: URL[,URL...] of vLLM, or local to start one (default: dvk's own engine)."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default: runs/train-NAME-TIME).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    judge: AnyJudge = None,
    engine: Engine = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"Settings by one name: {recipes.described('train')} (default: small for nano and its checkpoints, else none). "
            "--config and --set change them."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for programs.")
    ] = False,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Train selection, policy and summary together while the skill library grows; resumes after any kill.

    \b
    --ablate takes
      no-skills              every task is played without skills, in as many conversations
      bm25-only              no selection agent: the skills that BM25 ranks first are given
      frozen-library         the library stays as it begins
      no-summary-training    summaries are written and tried, and not learned from
      no-selection-training  selections are made, and not learned from
      grpo                   group-normalised advantages (GRPO) for leave-one-out ones (TRLOO)
      no-prs                 right turns that leave the work to PyTorch are learned from, too
      no-mrs                 answers that sampler and learner disagree on are learned from, too

    \b
    --sweep reads, for example
      seeds = [0, 1]
      [variants.full]
      [variants.no-skills]
      ablate = ["no-skills"]
      [variants.slow]
      set.train.rate = 5e-7
    and leaves comparison.md and comparison.json in the run folder: scores on the validation tasks with 95 % intervals,
    differences against the first variant paired by task.
    """
    from dvk import config as configuration
    from dvk.errors import UsageError
    from dvk.pipelines.train import TrainRequest, train
    from dvk.pipelines.train import sweep as sweeping
    from dvk.pipelines.train.ablations import settings_of

    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")
    request = TrainRequest(
        start=start,
        steps=steps,
        tasks=tasks,
        validation=validation,
        library=library,
        backend=backend,
        device=device,
        workers=workers,
        out=out,
        resume=resume,
        argv=tuple(sys.argv),
        quiet=as_json,
    )
    merged = configuration.load(
        config,
        settings or [],
        {
            **settings_of(ablate or ()),
            "remote.judge": judge,
            "remote.engine": engine,
            "served.rollouts": rollouts,
        },
        recipes.read("train", recipe or default_recipe(start)),
    )
    if sweep is not None:
        told = sweeping.sweep(sweep, request, merged)
        print(json.dumps(told) if as_json else f"{told['table']}\nrun: {told['run']}")
        return
    summary = train(request, merged)
    print(json.dumps(summary) if as_json else "\n".join(lines(summary)))


def default_recipe(start: str) -> str | None:
    """The recipe of a model whose training names none: `small` for those that dvk made, which have a `dvk.json`."""
    kind, _, folder = start.partition(":")
    own = kind == "nano" or (kind == "hf" and (Path(folder).expanduser() / "dvk.json").is_file())
    return "small" if own else None


def lines(summary: dict[str, Any]) -> list[str]:
    """Print the end of a run for people."""
    preferred, told = summary.get("preferred"), list[str]()
    if preferred == 0:
        told = [
            "on the validation tasks none is faster than the beginning by more than the standard error"
        ]
    elif preferred is not None:
        best = f"{summary['run']}/checkpoints/step_{preferred:06d}"
        told = [f"fastest on the validation tasks: {best}"]
    return [
        f"{summary['steps']} steps, {summary['skills']} skills",
        f"checkpoint: {summary['run']}/{summary['checkpoint']}",
        *told,
        f"library: {summary['run']}/skills.db",
        f"report: {summary['run']}/report.html",
    ]
