"""`dvk convert`: training data and problems between dvk's files and others'."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    source: Annotated[
        Path,
        typer.Argument(
            help="Examples (.jsonl, .parquet), a table of problems, a folder of task files or of definitions, or generated:COUNT."
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            help="A .jsonl or .parquet file; for tasks, harbor and flashinfer a folder."
        ),
    ],
    to: Annotated[
        str | None, typer.Option(help="What to write, see below (default: by TARGET).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite what exists.")] = False,
    split: Annotated[
        str, typer.Option(help="For prompts and harbor: train, heldout or any.")
    ] = "any",
    seed: Annotated[int, typer.Option(help="Of generated tasks.")] = 0,
    backend: Annotated[
        str, typer.Option(help="What prompts and harbor ask for: auto, triton, cuda or cpp.")
    ] = "auto",
    device: Annotated[
        str | None,
        typer.Option(help="Of their judge: cpu or cuda (default: a GPU if there is one)."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for programs.")
    ] = False,
) -> None:
    """Convert examples and problems to and from the files of daVinci-kernel and Dr.Kernel, and problems for other trainers.

    \b
    --to takes
      examples   dvk's own examples (.jsonl)
      combined   daVinci-kernel's SFT table (.parquet)
      coldstart  Dr.Kernel's trajectories (.parquet)
      seed       trajectories with the speedup of each round (.jsonl)
      skills     summaries: generated_skills (.jsonl)
      selection  selections: selected_skill_data (.jsonl)
      tasks      a task file a problem (folder)
      rl         the table of problems that RL is run on (.parquet)
      prompts    tasks with chat prompts for TRL, verl and SkyRL (.parquet)
      harbor     task trees for Harbor, whose tests ask a `dvk serve` (folder)
      flashinfer definitions and workloads of FlashInfer-Bench (folder)
    All but prompts and harbor are read, too; what SOURCE is, its columns tell.
    """
    from dvk.errors import UsageError
    from dvk.pipelines.convert import PromptOptions, convert

    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")
    options = PromptOptions(split=split, seed=seed, backend=backend, device=device)  # type: ignore[arg-type]  # checked there
    done = convert(source, target, to, replace, options)
    for problem in done.problems[:20]:
        print(f"left out: {problem}", file=sys.stderr)
    if len(done.problems) > 20:
        print(f"and {len(done.problems) - 20} more", file=sys.stderr)
    summary = {
        "form": done.form,
        "number": done.number,
        "left_out": len(done.problems),
        "target": str(target),
    }
    print(json.dumps(summary) if as_json else f"wrote {done.number} as {done.form} to {target}")
