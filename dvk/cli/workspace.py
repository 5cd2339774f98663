"""`dvk workspace`: a folder for a coding agent, judged from outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dvk.cli.help import DefaultGroup, HelpApp
from dvk.cli.options import Backend, Conf, Dtype, EvalMode, Init, Inputs, OnDevice, Settings, Train
from dvk.errors import UsageError

app = HelpApp(
    cls=DefaultGroup,
    help="A folder for a coding agent, whose candidates a judge outside of it checks and times.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(help="The agent's folder.")]
File = Annotated[Path, typer.Argument(help="The candidate: a file that defines ModelNew.")]
Idea = Annotated[str, typer.Argument(help="One line on the idea, for the log.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")]
Library = Annotated[Path | None, typer.Option(help="Skill library (default: $DVK_HOME/skills.db).")]


@app.command("open")
def command(
    model: Annotated[
        str,
        typer.Argument(help="The file to make faster: model.py, model.py:Name or pkg.model:Name."),
    ],
    folder: Annotated[Path, typer.Argument(help="A new or empty folder for the agent.")],
    inputs: Inputs = None,
    init: Init = None,
    eval_mode: EvalMode = False,
    train: Train = False,
    dtype: Dtype = None,
    device: OnDevice = None,
    backend: Backend = "auto",
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Also time against when the best is confirmed: compile."),
    ] = None,
    require_kernels: Annotated[
        bool,
        typer.Option(
            "--require-kernels",
            help="Refuse candidates that leave the computing to PyTorch's operators.",
        ),
    ] = False,
    library: Library = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Write the files of an opened workspace again.")
    ] = False,
    as_json: Json = False,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Write the folder: SKILL.md, the task, skills that fit, `check` and `bench`; `dvk workspace MODEL FOLDER` does the same."""
    from dvk import config as configuration
    from dvk.pipelines.workspace.opening import WorkspaceRequest, open_workspace

    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")
    if unknown := [b for b in baseline or () if b not in ("eager", "compile")]:
        raise UsageError(
            f"unknown baseline: `{unknown[0]}`", "choose compile (eager is always timed)"
        )
    request = WorkspaceRequest(
        spec=model,
        folder=folder,
        inputs=tuple(inputs or ()),
        init=tuple(init or ()),
        eval_mode=eval_mode,
        train=train,
        dtype=dtype,
        device=device,  # type: ignore[arg-type]  # checked above
        backend=backend,
        baselines=tuple(baseline or ()),
        require_kernels=require_kernels,
        library=library,
        resume=resume,
        argv=tuple(sys.argv),
    )
    made = open_workspace(request, configuration.load(config, settings or []))
    if as_json:
        print(json.dumps(made))
        return
    print(f"workspace: {made['folder']}  (let the agent work there; it reads SKILL.md first)")
    print(f"judge:     {made['judge']}  (task {made['task_hash']})")
    print(f"then:      dvk workspace collect {folder}")


@app.command()
def check(folder: Folder, file: File, idea: Idea = "", as_json: Json = False) -> None:
    """Compile a candidate and compare it with the reference; exit 1 unless it is right. `check` in the folder calls this."""
    _judge(folder, file, idea, "smoke", False, as_json)


@app.command()
def bench(
    folder: Folder,
    file: File,
    idea: Idea = "",
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time of a call goes, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check and time a candidate; exit 1 unless it is right. `bench` in the folder calls this."""
    _judge(folder, file, idea, "search", profile, as_json)


def _judge(
    folder: Path,
    file: Path,
    idea: str,
    tier: Literal["smoke", "search"],
    profile: bool,
    as_json: bool,
) -> None:
    from dvk.pipelines.workspace.asking import ask

    trial = ask(folder, file, idea, tier, profile=profile, tell=_tell)
    print(json.dumps(trial) if as_json else "\n".join(lines(trial)))
    if trial["status"] != "ok":
        raise typer.Exit(1)


def lines(trial: dict[str, Any]) -> list[str]:
    """Print a trial for the agent."""
    again = " (judged before)" if trial["cached"] else ""
    answer = [f"trial {trial['trial']}: {trial['status']}{again}", str(trial["found"])]
    return answer + ([f"best so far: {trial['best']} (best.py)"] if trial["best"] else [])


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@app.command()
def collect(
    folder: Folder,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Language model that draws skills from the trials: nano, hf:PATH, endpoint:MODEL, scripted:FILE, or file.py:Name."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default: runs/workspace-NAME-TIME).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    as_json: Json = False,
    settings: Settings = None,
) -> None:
    """Judge the best trials again by claim; leave best.py, a report, the episode, examples. Exit 1 when nothing faster was proved."""
    from dvk import config as configuration
    from dvk.pipelines.optimize.collected import CollectRequest
    from dvk.pipelines.optimize.collected import collect as collect_trials
    from dvk.pipelines.workspace import asking
    from dvk.pipelines.workspace.places import Place

    place = Place.of(folder)
    asking.end(place)
    task, trials = place.task, place.turns
    request = CollectRequest(
        task=task.id,
        backend=place.opened.backend,
        num_trials=len(trials),
        baselines=place.opened.baselines,
        require_kernels=place.opened.require_kernels,
        backbone=backbone,
        out=out,
        resume=resume,
        argv=tuple(sys.argv),
    )
    skills = place.skills
    config = configuration.with_settings(place.config, settings or [])
    summary = collect_trials(request, config, task, trials, skills)
    print(json.dumps(summary) if as_json else "\n".join(outcome(summary)))
    if summary["status"] != "faster":
        raise typer.Exit(1)


def outcome(summary: dict[str, Any]) -> list[str]:
    """Print what the trials came to, and what there is to learn from them."""
    from dvk.speedups import interval, over_baseline

    printed = [f"{summary['status']}: {summary['reason']}"]
    if summary["status"] == "faster":
        whom = {"eager": "faster than eager", "compile": "over torch.compile"}
        printed = [
            f"{over_baseline(speedup, whom[name])}: {summary['title']}"
            for name, row in summary["baselines"].items()
            if row and (speedup := interval(row))
        ]
        printed.append(f"drop-in:  {summary['best']}  ({summary['use']})")
    printed += [f"note: {text}" for text in (summary["noise"], summary["hint"]) if text]
    printed += [f"warning: {text}" for text in summary["warnings"]]
    if summary["unproven"]:
        printed.append(f"the best trial is kept as {summary['unproven']}: its speedup is unproven")
    printed.append(
        f"report:   {summary['run']}/report.html  ({summary['num_candidates']} candidates)"
    )
    if summary["examples"]:
        printed.append(f"examples: {summary['examples']}  (for dvk sft --data)")
    if summary["proposed_skills"]:
        names = ", ".join(summary["proposed_skills"])
        printed.append(f"skills:   {summary['run']}/skills: {names}  (for dvk skills add)")
    elif summary["backbone"]:
        printed.append(f"skills:   none: {summary['no_skills']}")
    return printed
