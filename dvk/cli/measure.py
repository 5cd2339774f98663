"""`dvk measure`: a table of measured plans."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dvk.cli.options import Backend, Conf, OnDevice, Settings


def command(
    tasks: Annotated[
        list[Path] | None, typer.Argument(help="Folders of task files.", show_default=False)
    ] = None,
    generated: Annotated[
        int, typer.Option(min=0, help="Tasks of the generator's training split to measure, too.")
    ] = 0,
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", help="Add what other runs measured: run folders or tables. Repeatable."
        ),
    ] = None,
    again: Annotated[
        list[Path] | None,
        typer.Option(help="Tables whose plans are timed again, on this machine. Repeatable."),
    ] = None,
    best: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of --again: each task's default and so many fastest plans alone."
        ),
    ] = None,
    plans: Annotated[int, typer.Option(min=1, help="Most plans per task.")] = 24,
    budget_s: Annotated[
        float | None,
        typer.Option(
            min=1, help="Seconds of measuring; --resume continues with the plans that are left."
        ),
    ] = None,
    backend: Backend = "auto",
    device: OnDevice = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Candidates judged at a time.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default: runs/measure-BACKEND-TIME).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for programs.")
    ] = False,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Measure many plans of many tasks, and keep them as a table.

    A plan is what the composer can do for a task: recipes, and an algorithm and schedule for each kernel. The table answers for a judge
    with `--judge table:FILE`, so that learning needs no GPU.
    """
    from dvk import config as configuration
    from dvk.errors import UsageError
    from dvk.pipelines.measure import MeasureRequest, measure

    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")
    if best is not None and not again:
        raise UsageError("--best is about plans that are timed again", "add --again TABLE")
    request = MeasureRequest(
        tasks=tuple(tasks or ()),
        generated=generated,
        merge=tuple(merge or ()),
        again=tuple(again or ()),
        best=best,
        plans=plans,
        budget_s=budget_s,
        backend=backend,
        device=device,
        workers=workers,
        out=out,
        resume=resume,
        argv=tuple(sys.argv),
        quiet=as_json,
    )
    summary = measure(request, configuration.load(config, settings or []))
    print(json.dumps(summary) if as_json else "\n".join(lines(summary)))


def lines(found: dict[str, Any]) -> list[str]:
    """The end of a run for people."""
    from dvk.pipelines.report.units import many

    result = [
        f"{many(found['tasks'], 'task')}, {many(found['plans'], 'plan')}, {found['timed']} timed"
    ]
    if found["best"] is not None:
        result.append(
            f"geometric mean over eager: default plan {found['default']:.2f}x, best plan {found['best']:.2f}x"
        )
    if found["left"]:
        result.append(
            f"tasks left when the budget ended: {found['left']}; --resume continues with their plans"
        )
    return [*result, f"table: {found['table']}"]
