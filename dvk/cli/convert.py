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
            help="Examples (.jsonl, .parquet), a table of problems, or a folder of task files."
        ),
    ],
    target: Annotated[
        Path, typer.Argument(help="A .jsonl or .parquet file, or for tasks a folder.")
    ],
    to: Annotated[
        str | None, typer.Option(help="What to write, see below (default: by TARGET).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite what exists.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for programs.")
    ] = False,
) -> None:
    """Convert examples and problems to and from the files of daVinci-kernel and Dr.Kernel.

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
    All of them are read, too; what SOURCE is, its columns tell.
    """
    from dvk.pipelines.convert import convert

    done = convert(source, target, to, replace)
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
