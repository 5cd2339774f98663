"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

Conf = Annotated[Path | None, typer.Option(help="TOML file with settings.")]
AnyJudge = Annotated[
    str | None,
    typer.Option(
        "--judge",
        help="Have a server judge, kernelgym:URL ($DVK_JUDGE_TOKEN is its token), or take verdicts from a table of `dvk measure`, "
        "table:FILE.",
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        help="A Ray cluster that judges, and where models write: ray (one on this machine), ray://HOST:PORT, HOST:PORT, auto."
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help='Example input where the file has no get_inputs(), e.g. "x=float32[64,1024]"; the grammar is below.',
    ),
]
Dynamic = Annotated[
    list[str] | None,
    typer.Option(
        "--dynamic",
        help='An input whose sizes vary in a range: "x=float32[batch:1..4096, 197, 768]"; '
        'others share the dimension by its name: "y=float32[batch, 16]".',
    ),
]
Init = Annotated[
    list[str] | None, typer.Option("--init", help="Constructor argument: 512 or eps=1e-5.")
]
Train = Annotated[
    bool,
    typer.Option(
        "--train", help="A call is forward and backward: gradients are compared and timed, too."
    ),
]
Dtype = Annotated[
    str | None, typer.Option(help="Cast floating inputs and weights: float32, float16, bfloat16.")
]
Autocast = Annotated[
    str | None,
    typer.Option(help="Call the module under torch.autocast to this dtype: bfloat16, float16."),
]
EvalMode = Annotated[bool, typer.Option("--eval", help="Call .eval() on the module first.")]
OnDevice = Annotated[
    str | None, typer.Option(help="cpu or cuda (default: cuda if there is a GPU).")
]
Backend = Annotated[str, typer.Option(help="auto, triton, cuda or cpp.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting: section.key=value; a part with dots in quotes."),
]
