"""`dvk eval`: how often a policy is right and fast, over a folder of tasks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of task files; sub-folders are levels.")],
    policy: Annotated[str, typer.Option(help="composer, nano, hf:PATH, endpoint:MODEL, or any strategy or backbone.")] = "composer",
    turns: Annotated[int | None, typer.Option(min=1, help="Attempts a conversation (composer: candidates, times --samples).")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Conversations a task; one is greedy, several are sampled.")] = 1,
    library: Annotated[Path | None, typer.Option(help="Skill library to select from; without it a model is given no skills.")] = None,
    no_skills: Annotated[bool, typer.Option("--no-skills", help="Give no skills even where there is a library.")] = False,
    baseline: Annotated[list[str] | None, typer.Option(help="Also time against: compile.")] = None,
    backend: Annotated[str, typer.Option(help="auto, triton, cuda or cpp.")] = "auto",
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is a GPU).")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Play this task alone; may be given several times.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Candidates judged at a time.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default: runs/eval-NAME-TIME).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    judge: Annotated[str | None, typer.Option(help="Have a server judge: kernelgym:URL ($DVK_JUDGE_TOKEN is its token).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")] = False,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="One setting: section.key=value.")] = None,
) -> None:
    """Play every task of a folder and print fast_p: the share of tasks with a correct candidate faster than p times eager."""
    from dvk import config as configuration
    from dvk.errors import UsageError
    from dvk.pipelines.eval import Request, evaluate

    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")
    unknown = [b for b in baseline or [] if b not in ("eager", "compile")]
    if unknown:
        raise UsageError(f"unknown baseline: `{unknown[0]}`", "choose compile (eager is always timed)")
    request = Request(folder, policy, turns, samples, library, no_skills, tuple(b for b in baseline or () if b != "eager"), backend, device,
                      tuple(only or ()), workers, out, resume, tuple(sys.argv))
    summary = evaluate(request, configuration.load(config, settings or [], {"remote.judge": judge}))
    print(json.dumps(summary) if as_json else "\n".join(lines(summary)))


def lines(summary: dict[str, Any]) -> list[str]:
    """The tables for people."""
    thresholds = list(summary["fast_p"])
    head = "".join(f"{'fast_' + t:>9}" for t in thresholds)
    found = [f"{summary['policy']} on {summary['num_tasks']} tasks", "", f"{'':<22}{head}  geomean"]

    def row(name: str, table: dict[str, Any]) -> str:
        kept = table["geomean_kept"]
        return f"{name:<22}" + "".join(f"{100 * table['fast_p'][t]:>8.1f}%" for t in thresholds) + (f"{kept:>8.2f}×" if kept else "")

    found.append(row("all", summary))
    if summary["samples"] > 1:
        found.append(row("best sample", summary["best_of"]))
    if (summary["turns"] or 1) > 1:
        found.append(row("first turn", summary["first_turn"]))
    if "compile" in summary:
        found.append(row("over torch.compile", summary["compile"]))
    for dimension, tables in summary["groups"].items():
        if len(tables) > 1:
            found += [row(f"{dimension} {value} ({table['num_tasks']})"[:22], table) for value, table in tables.items()]
    ends = ", ".join(f"fast_{t} [{100 * lo:.1f}, {100 * hi:.1f}]" for t, (lo, hi) in summary["fast_p_interval"].items())
    found += ["", f"95 % intervals over tasks: {ends}"]
    found += [f"failed: {name}: {why}" for name, why in list(summary["failed"].items())[:10]]
    if len(summary["failed"]) > 10:
        found.append(f"and {len(summary['failed']) - 10} more; all are in {summary['run']}")
    return [*found, f"run: {summary['run']}"]
