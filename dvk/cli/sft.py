"""`dvk sft`: supervised fine-tuning, all stages or one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dvk.cli import recipes
from dvk.cli.help import HelpApp
from dvk.cli.options import Conf, Settings

FRESH = "nano-from-zero"
app = HelpApp(
    help="Teach a model the three roles: collect examples, filter and diversify them, fit.",
    invoke_without_command=True,
)

Out = Annotated[
    Path | None,
    typer.Option(help="Run folder, the same for all stages (default: runs/sft-sft-TIME)."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")]
Data = Annotated[
    list[Path] | None,
    typer.Option(
        "--data", help="Examples to learn from instead of the composer's: JSONL or parquet."
    ),
]
Teacher = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        help="Language model that teaches instead of the composer: it plays generated tasks, e.g. endpoint:MODEL.",
    ),
]
Backends = Annotated[
    list[str] | None,
    typer.Option("--backend", help="What the composer writes: triton, cpp (default: both)."),
]
Tasks = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Generated tasks to write texts for. No more than so many others are played, or --set collect.played=NUMBER.",
    ),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes (default: the cores).")]
Start = Annotated[str, typer.Option("--from", help="What to train: nano-from-zero, nano, hf:PATH.")]
Recipe = Annotated[
    str | None,
    typer.Option(
        help=f"Settings by one name: {recipes.described('sft')} (default: nano for a model from random weights, else none). "
        "--config and --set change them."
    ),
]
Epochs = Annotated[float | None, typer.Option(min=0.0, help="Passes over the examples.")]

Against = Annotated[
    list[Path] | None,
    typer.Option(help="Folder of evaluation tasks: similar examples are left out. Repeatable."),
]
BestSteps = Annotated[
    bool,
    typer.Option(
        "--best-steps", help="Fit on answers that improve on a measured predecessor alone."
    ),
]


@app.callback()
def everything(
    context: typer.Context,
    out: Out = None,
    resume: Resume = False,
    data: Data = None,
    backbone: Teacher = None,
    backend: Backends = None,
    tasks: Tasks = None,
    workers: Workers = None,
    start: Start = FRESH,
    epochs: Epochs = None,
    against: Against = None,
    best_steps: BestSteps = False,
    as_json: Json = False,
    recipe: Recipe = None,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """All stages in turn; each can also be run alone."""
    if context.invoked_subcommand is None:
        run(
            ("collect", "filter", "diversify", "fit"),
            out,
            resume,
            as_json,
            config,
            settings,
            data=data,
            backbone=backbone,
            backend=backend,
            tasks=tasks,
            workers=workers,
            start=start,
            epochs=epochs,
            against=against,
            best_steps=best_steps,
            recipe=recipe,
        )


@app.command()
def collect(
    out: Out = None,
    resume: Resume = False,
    data: Data = None,
    backbone: Teacher = None,
    backend: Backends = None,
    tasks: Tasks = None,
    workers: Workers = None,
    as_json: Json = False,
    recipe: Recipe = None,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Source of examples: the composer's programs for generated tasks, or given files."""
    run(
        ("collect",),
        out,
        resume,
        as_json,
        config,
        settings,
        data=data,
        backbone=backbone,
        backend=backend,
        tasks=tasks,
        workers=workers,
        recipe=recipe,
    )


@app.command("filter")
def keep(
    out: Out = None,
    resume: Resume = True,
    against: Against = None,
    workers: Workers = None,
    as_json: Json = False,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Keep what is right, fast enough and in no suite given; every row left out is kept with the reason."""
    run(("filter",), out, resume, as_json, config, settings, workers=workers, against=against)


@app.command()
def diversify(
    out: Out = None,
    resume: Resume = True,
    workers: Workers = None,
    as_json: Json = False,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Leave out what is doubled or too much of a kind; every row left out is kept with the reason."""
    run(("diversify",), out, resume, as_json, config, settings, workers=workers)


@app.command()
def fit(
    out: Out = None,
    resume: Resume = True,
    start: Start = FRESH,
    epochs: Epochs = None,
    best_steps: BestSteps = False,
    backend: Backends = None,
    as_json: Json = False,
    recipe: Recipe = None,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Train on what was kept, or on all that was collected; a killed fit resumes from its last checkpoint."""
    run(
        ("fit",),
        out,
        resume,
        as_json,
        config,
        settings,
        backend=backend,
        start=start,
        epochs=epochs,
        best_steps=best_steps,
        recipe=recipe,
    )


@app.command()
def choose(
    table: Annotated[
        list[Path],
        typer.Argument(help="Tables of measured plans to learn from: see `dvk measure`."),
    ],
    heldout: Annotated[
        list[Path] | None,
        typer.Option(help="Tables that only say how fast a choice is. Repeatable."),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="What to train: nano-from-zero, nano, hf:PATH.")
    ] = "nano",
    backend: Annotated[
        str | None, typer.Option(help="Learn the rows of one back end: triton, cuda, cpp.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default: runs/sft-choose-TIME).")
    ] = None,
    resume: Resume = False,
    as_json: Json = False,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Learn to choose plans from tables of measured ones: start, weighted fit, expected reward, with figures of each."""
    from dvk import config as configuration
    from dvk.pipelines.sft.choose import ChooseRequest, choose, table_lines

    request = ChooseRequest(
        tables=tuple(table),
        heldout=tuple(heldout or ()),
        start=start,
        backend=backend,
        out=out,
        resume=resume,
        argv=tuple(sys.argv),
    )
    told = choose(request, configuration.load(config, settings or []))
    print(json.dumps(told) if as_json else "\n".join([*table_lines(told), f"run: {told['run']}"]))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Run folder of `dvk sft` or `dvk train`.")],
    target: Annotated[Path, typer.Argument(help="Folder to write; it must not exist.")],
    measured: Annotated[
        list[Path] | None,
        typer.Option(help="What `dvk eval --json` printed, for the card. Repeatable."),
    ] = None,
    mean_with: Annotated[
        Path | None,
        typer.Option(help="Average the weights with this checkpoint's, e.g. the one begun from."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run's last checkpoint as a folder to give away: bfloat16, small files, a model card."""
    from dvk.pipelines.sft.export import export as write

    told = write(run, target, measured or (), mean_with)
    print(
        json.dumps(told)
        if as_json
        else "\n".join(f"{name}: {value}" for name, value in told.items())
    )


def run(
    stages: tuple[str, ...],
    out: Path | None,
    resume: bool,
    as_json: bool,
    config: Path | None,
    settings: list[str] | None,
    *,
    data: list[Path] | None = None,
    backbone: str | None = None,
    backend: list[str] | None = None,
    tasks: int | None = None,
    workers: int | None = None,
    start: str = FRESH,
    epochs: float | None = None,
    against: list[Path] | None = None,
    best_steps: bool = False,
    recipe: str | None = None,
) -> None:
    """Call the pipeline and print its result."""
    from dvk import config as configuration
    from dvk.errors import UsageError
    from dvk.pipelines.sft.stages import BACKENDS, SftRequest, sft

    unknown = [b for b in backend or [] if b not in BACKENDS]
    if unknown:
        raise UsageError(
            f"the composer has no short form for `{unknown[0]}`", "choose triton or cpp"
        )
    if backbone is not None and data:
        raise UsageError("--backbone plays tasks, --data brings examples", "give one of them")
    suites = [str(folder) for folder in against] if against else None
    merged = configuration.load(
        config,
        settings or [],
        {"collect.tasks": tasks, "fit.epochs": epochs, "diversity.suites": suites},
        recipes.read("sft", recipe or ("nano" if start == FRESH else None)),
    )
    chosen = tuple(backend or BACKENDS)
    request = SftRequest(
        stages=stages,
        data=tuple(data or ()),
        teacher=backbone,
        start=start,
        backends=chosen,
        best_steps=best_steps,
        workers=workers,
        out=out,
        resume=resume,
        argv=tuple(sys.argv),
    )
    told = sft(request, merged)
    print(json.dumps(told) if as_json else "\n".join(lines(told)))


def lines(told: dict[str, Any]) -> list[str]:
    """Print the figures of each stage for people."""
    result = []
    for stage, figures in told.items():
        if isinstance(figures, dict):
            result.append(stage)
            result += [
                f"  {name}: {value:,}" if isinstance(value, int) else f"  {name}: {value}"
                for name, value in figures.items()
            ]
    return [*result, f"run: {told['run']}"]
