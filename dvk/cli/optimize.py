"""`dvk optimize`: find a faster drop-in for one module."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dvk.cli.options import (
    Autocast,
    Backend,
    Dtype,
    Dynamic,
    EvalMode,
    Init,
    Inputs,
    OnDevice,
    Settings,
    Train,
)
from dvk.errors import UsageError

if TYPE_CHECKING:
    from dvk.config import Config


def command(
    model: Annotated[
        str | None,
        typer.Argument(help="The file to make faster: model.py, model.py:Name or pkg.model:Name."),
    ] = None,
    whole: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="A whole model instead of a file, by its repeated blocks, with random weights in eval mode, or with --train and without "
            "--eval in train mode: transformers:CLASS, timm:NAME, diffusers:CLASS or path/to/file.py:factory.",
        ),
    ] = None,
    inputs: Inputs = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--extra-input",
            "--also",
            help="Another set of inputs that best.py is to be fast for, by what differs: "
            '"x=float32[32,1024]; y=float32[32,1]"; or all inputs in order, without names.',
        ),
    ] = None,
    dynamic: Dynamic = None,
    init: Init = None,
    eval_mode: EvalMode = False,
    train: Train = False,
    dtype: Dtype = None,
    autocast: Autocast = None,
    device: OnDevice = None,
    backend: Backend = "auto",
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Language model that proposes too: nano, nano:PATH, hf:PATH, davinci:PATH, endpoint:MODEL, scripted:FILE, or file.py:Name."
        ),
    ] = None,
    davinci: Annotated[
        Path | None,
        typer.Option(
            help="Checkpoint of daVinci-kernel: its model proposes too, with its bundled skill_library.jsonl."
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="auto (the composer, with a model if one is given), composer, random; refine, best_of_n, evolve, "
            "contrastive, judge and polca have a model write, macro has it name what the composer does; or "
            "path/to/file.py:function."
        ),
    ] = "auto",
    seed_candidate: Annotated[
        list[Path] | None,
        typer.Option(
            help="A candidate of yours to judge first and to improve: a file with ModelNew in Triton, CUDA, C++ or PyTorch. Repeatable."
        ),
    ] = None,
    own_kernels: Annotated[
        bool,
        typer.Option(
            "--own-kernels",
            help="Leave out what PyTorch itself offers: channels_last, torch.compile, replay as a CUDA graph.",
        ),
    ] = False,
    baseline: Annotated[list[str] | None, typer.Option(help="Also time against: compile.")] = None,
    budget_s: Annotated[
        float | None,
        typer.Option(
            help="Search time in seconds (default: 120); the time for loading and confirming the best is printed at the start. "
            "With --model: time of the run after the whole model is built, proof included."
        ),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens that the model reads and writes.")
    ] = None,
    max_usd: Annotated[
        float | None,
        typer.Option(help="Most that the model costs, by backbone.prompt_usd and completion_usd."),
    ] = None,
    max_requests: Annotated[
        int | None, typer.Option(min=1, help="Most questions that the model is asked.")
    ] = None,
    library: Annotated[
        Path | None, typer.Option(help="Skill library (default: $DVK_HOME/skills.db).")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="Have a server judge, `dvk serve`: kernelgym:URL ($DVK_JUDGE_TOKEN is its token)."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default: runs/optimize-NAME-TIME).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for programs.")
    ] = False,
    config: Annotated[
        list[str] | None,
        typer.Option(
            help="TOML file with settings; with --model also the model's configuration: FILE.json or key=value."
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Search for the fastest kernels that survive verification; exit 1 when nothing faster was proved."""
    from dvk import config as configuration
    from dvk.pipelines.optimize import optimize
    from dvk.pipelines.optimize.request import OptimizeRequest

    _check(device, baseline or [])
    toml, own = _configs(config or [], whole is not None)
    merged = configuration.load(
        toml,
        settings or [],
        {
            "optimize.budget_s": budget_s,
            "optimize.max_tokens": max_tokens,
            "optimize.max_usd": max_usd,
            "optimize.max_requests": max_requests,
            "optimize.own_kernels": own_kernels or None,
            "remote.judge": judge,
        },
    )
    if whole is not None:
        beside = {"a file": model, "--extra-input": also, "--init": init, "--judge": judge}
        _alone(
            beside
            | {"--backbone": backbone, "--davinci": davinci, "--dynamic": dynamic}
            | {"--autocast": autocast, "--seed-candidate": seed_candidate}
        )
        source = whole, own, inputs, dtype, device, train and not eval_mode
        chosen = {"backend": backend, "strategy": strategy, "baselines": tuple(baseline or ())}
        where = {"library": library, "out": out, "resume": resume, "argv": tuple(sys.argv)}
        return _whole_model(source, {**chosen, **where, "train": train}, merged, as_json)
    if model is None:
        raise UsageError("nothing to make faster", "give a file, or a whole model: --model SPEC")
    request = OptimizeRequest(
        spec=model,
        inputs=tuple(inputs or ()),
        also=tuple(also or ()),
        dynamic=tuple(dynamic or ()),
        init=tuple(init or ()),
        eval_mode=eval_mode,
        train=train,
        dtype=dtype,
        autocast=autocast,
        device=device,
        backend=backend,
        strategy=strategy,
        baselines=tuple(baseline or ()),
        library=library,
        out=out,
        resume=resume,
        argv=tuple(sys.argv),
        backbone=backbone,
        davinci=davinci,
        seeds=tuple(seed_candidate or ()),
    )
    summary = optimize(request, merged)
    print(json.dumps(summary) if as_json else "\n".join(lines(summary)))
    if summary["status"] != "faster":
        raise typer.Exit(1)


def _whole_model(
    source: tuple[Any, ...], options: dict[str, Any], config: Config, as_json: bool
) -> None:
    """Make a whole model faster, and print what came of it.

    Args:
        source: --model, its configuration, --input, --dtype, --device, whether it is in train mode.
        options: fields of the request.
    """
    from dvk import backends
    from dvk.api.network import ModelRequest, ModelSource, report, run
    from dvk.api.network.building import read_settings

    spec, own, inputs, dtype, device, training = source
    made = ModelSource(
        spec=spec,
        settings=read_settings(own),
        inputs=tuple(inputs or ()),
        dtype=dtype,
        device=device or backends.default_device(),
        training=training,
    )
    summary = run(ModelRequest(source=made, **options), config)
    print(json.dumps(summary) if as_json else "\n".join(report.lines(summary)))
    if summary["status"] != "faster":
        raise typer.Exit(1)


def _alone(beside: dict[str, Any]) -> None:
    """Refuse what does not go with --model."""
    for name, value in beside.items():
        if value:
            raise UsageError(f"--model does not go with {name}", "leave one of them out")


def _configs(given: list[str], whole: bool) -> tuple[Path | None, list[str]]:
    """Split `--config` into the TOML file with settings, and what configures a model.

    Raises:
        UsageError: several TOML files, or a model's configuration without --model.
    """
    own = [one for one in given if whole and (one.endswith(".json") or "=" in one)]
    toml = [one for one in given if one not in own]
    if len(toml) > 1:
        raise UsageError(f"several files with settings: {', '.join(toml)}", "give one --config")
    return Path(toml[0]) if toml else None, own


def _check(device: str | None, baseline: list[str]) -> None:
    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")
    if unknown := [b for b in baseline if b not in ("eager", "compile")]:
        raise UsageError(
            f"unknown baseline: `{unknown[0]}`", "choose compile (eager is always timed)"
        )


ENDED = {
    "no_speedup": "nothing faster was found",
    "failed": "no candidate was correct",
    "too_noisy": "no speedup could be proved",
    "no_verdict": "nothing was judged",
}
"""Say why a search found nothing, by its status."""


def lines(summary: dict[str, Any]) -> list[str]:
    """Print the outcome for people."""
    from dvk.pipelines.report.spending import ended, proposer_lines
    from dvk.speedups import interval, over_baseline

    run = summary["run"]
    if summary["status"] != "faster":
        return [
            f"{ENDED[str(summary['status'])]}: {summary['reason']}",
            *ended(summary),
            *shapes(summary),
            *seeds(summary),
            *proposer_lines(summary),
            *doubts(summary),
            *(
                [
                    f"the best candidate is kept as {summary['unproven']}: correct where it was checked, its speedup unproven"
                ]
                if summary.get("unproven")
                else []
            ),
            f"tried {summary['num_candidates']} candidates in {summary['seconds']} s; your file is untouched",
            *model(summary),
            f"report: {run}/report.html",
        ]
    baselines = {
        name: speedup for name, b in summary["baselines"].items() if b and (speedup := interval(b))
    }
    step = ", forward and backward together" if summary.get("train") else ""
    found = [f"{over_baseline(baselines['eager'], 'faster than eager')}{step}: {summary['title']}"]
    found += fastest(summary)
    found += [
        over_baseline(speedup, f"over torch.{name}")
        for name, speedup in baselines.items()
        if name != "eager"
    ]
    skills = summary["skills"]
    if skills:
        found.append(f"skills: {', '.join(skills)}")
    if summary.get("inexact"):
        found.append(f"for finite inputs alone: {', '.join(summary['inexact'])}")
    return [
        *(shapes(summary) or found),
        *([f"not confirmed: {summary['reason']}"] if summary["reason"] else []),
        *ended(summary),
        *seeds(summary),
        *doubts(summary),
        *model(summary),
        f"drop-in: {summary['best']}  ({summary.get('use') or 'from best import ModelNew'}; {fused_when(summary)})",
        f"report:  {run}/report.html",
    ]


def seeds(summary: dict[str, Any]) -> list[str]:
    """Print a line for each of the user's candidates."""
    return [
        f"{row['title']}: "
        + (f"{row['speedup']:.2f}×" if row["speedup"] else f"{row['status']}, {row['error']}")
        for row in summary.get("seeds", ())
    ]


def fused_when(summary: dict[str, Any]) -> str:
    """Say which calls run the kernels."""
    return "fused with gradients, too" if summary.get("train") else "fused under torch.no_grad()"


def fastest(summary: dict[str, Any]) -> list[str]:
    """Print which of PyTorch's lines is handed out; where own kernels are, the best line beside them."""
    own = summary.get("own")
    if summary.get("winner") == "seed":
        return [
            f"your own candidate is fastest here; "
            f"{'the best of dvk is ' + format(own['speedup'], '.2f') + '×' if own else 'dvk found none'}"
        ]
    if summary.get("winner") not in (None, "dvk"):
        told = (
            f"the best of dvk's own kernels {own['speedup']:.2f}×"
            if own
            else "dvk's own kernels: none"
        )
        return [f"{summary['winner']} is fastest here, {summary['speedup']:.2f}×; {told}"]
    lines = [
        row
        for row in summary.get("portfolio", ())
        if row["kind"] == "pytorch"
        and row["speedup"]
        and row["name"] != "eager"
        and summary.get("regime") in (None, row["regime"])  # figures of two do not compare
    ]
    best = max(lines, key=lambda row: row["speedup"], default=None)
    return (
        [
            f"dvk's own kernels are fastest here; the best line of PyTorch is {best['name']}, {best['speedup']:.2f}×"
        ]
        if best
        else []
    )


def doubts(summary: dict[str, Any]) -> list[str]:
    """Print the mode that was judged; errors of the model; that the machine was busy, and how to get a better number."""
    warnings = [f"warning: {text}" for text in summary.get("warnings", ())]
    if summary.get("mode"):
        warnings.insert(
            0,
            f"mode: {summary['mode']}"
            + (f"; {summary['train_mode']}" if summary["train_mode"] else ""),
        )
    if names := summary.get("written_inputs"):
        warnings.append(f"writes in place: {', '.join(names)}; so does the drop-in")
    return warnings + [
        f"{name}: {text}"
        for name, text in (("note", summary.get("noise")), ("hint", summary.get("hint")))
        if text
    ]


def shapes(summary: dict[str, Any]) -> list[str]:
    """Print a line per set of inputs; nothing if there is only one."""
    rows = summary["shapes"] if len(summary["shapes"]) > 1 or summary.get("dynamic") else []
    return [f"{row['inputs']}: {outcome(row)}" for row in rows] + served(summary)


def served(summary: dict[str, Any]) -> list[str]:
    """Print the range of sizes that one program serves, and where it was checked; nothing without one."""
    from dvk.tasks.dynamic import label

    found = summary.get("dynamic")
    if not found or summary["status"] != "faster":
        return []
    dims = ", ".join(f"{name} {lo}..{hi}" for name, (lo, hi) in found["dims"].items())
    stretches = "; ".join(", ".join(f"{n} {lo}..{hi}" for n, lo, hi in s) for s in found["served"])
    where = "" if found["whole"] else f" (the original runs outside of {stretches})"
    checked = "; ".join(map(label, found["checked"]))
    return [f"one program for {dims}{where}, checked at {checked}"]


def outcome(row: dict[str, Any]) -> str:
    """Format the result for a set of inputs."""
    from dvk.speedups import interval, over_baseline

    if row["status"] != "faster":
        return f"as the original; {row['reason']}"
    whom = {"eager": "faster than eager", "compile": "over torch.compile"}
    told = [
        over_baseline(found, whom[name])
        for name, b in row["baselines"].items()
        if b and (found := interval(b))
    ]
    return ", ".join(told) + (
        f"; with the kernels of {row['same_kernels_as']}" if row["same_kernels_as"] else ""
    )


def model(summary: dict[str, Any]) -> list[str]:
    """Print what a language model contributed and cost; nothing if none was used."""
    if not summary.get("backbone"):
        return []
    cost = summary["cost"]
    price = "" if cost["usd"] is None else f", {cost['usd']:.4f} USD"
    told = (
        f"{cost['answers']} answers ({cost['malformed']} malformed) in {cost['model_s']:.1f} s, {cost['prompt_tokens']:,} tokens read, "
        f"{cost['completion_tokens']:,} written{price}"
    )
    found = [f"found by {summary['proposer']}"] if summary["status"] == "faster" else []
    return [*found, f"model:   {told}; judge {cost['judge_s'] + cost['confirm_s']:.1f} s"]
