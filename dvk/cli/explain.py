"""`dvk explain`: for which calls a drop-in runs its kernels, and why another call does not."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from dvk.cli.options import Conf, Dtype, EvalMode, Init, Settings


def command(
    file: Annotated[str, typer.Argument(help="The drop-in: best.py of a run of dvk optimize.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help='An input of the call to explain, e.g. "x=float32[64,1024]" (default: those of the file\'s get_inputs()).',
        ),
    ] = None,
    init: Init = None,
    eval_mode: EvalMode = False,
    dtype: Dtype = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda (default: what the kernels are for).")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for programs.")
    ] = False,
    conf: Conf = None,
    settings: Settings = None,
) -> None:
    """Say for which calls a drop-in has kernels, what its guards compare, and what a call would run and why.

    The call is made without gradients. The exit code is 1 if it would run the original.
    """
    from dvk.config import load
    from dvk.pipelines.explain import ExplainRequest, explain

    request = ExplainRequest(
        file=file,
        inputs=tuple(inputs or ()),
        init=tuple(init or ()),
        eval_mode=eval_mode,
        dtype=dtype,
        device=device,
    )
    report = explain(request, load(conf, settings or []).limits)
    print(json.dumps(report) if as_json else "\n".join(_lines(report)))
    if report["call"] is not None and report["call"]["runs"] == "original":
        raise typer.Exit(1)


def _lines(report: dict[str, Any]) -> list[str]:
    what = {
        "kernels": "kernels exist for",
        "line": "PyTorch's own way runs for",
        "original": "this file runs the original: it has no kernels",
    }[report["runs"]]
    lines = [what]
    for program in report["programs"]:
        lines.append(
            "  " + (", ".join(f"{n}={spec}" for n, spec in program.items()) or "no inputs")
        )
    if report["guards"] is not None:
        cast = report["guards"]["autocast"]
        under = (
            f"under autocast to {cast}, without gradients"
            if cast
            else "without gradients and autocast"
        )
        lines += [f"on {report['guards']['device']}, {under}"]
        lines += [f"while torch.{name}() is False" for name in report["guards"]["asked"]]
        if report["guards"]["modules"]:
            lines.append("while the modules are as forward() read them")
        for path, facts in report["guards"]["modules"].items():
            told = (f"{k} = {v}" for k, v in facts.items() if k not in ("__class__", "forward"))
            kind = f" ({facts['__class__']})" if "__class__" in facts else ""
            lines.append(f"  {path or 'the module'}{kind}: {', '.join(told)}".rstrip(": "))
    if (call := report["call"]) is not None:
        given = ", ".join(f"{name}={value}" for name, value in call["inputs"].items())
        runs = {"kernels": "the kernels", "line": "PyTorch's own way"}.get(
            call["runs"], "the original"
        )
        lines.append(f"the call with {given or 'no inputs'} runs {runs}")
        lines += [f"  {reason}" for reason in call["reasons"]]
    return lines
