"""`dvk capture`: the calls that a running model makes, as tasks weighted by launches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from dvk.errors import UsageError


def command(
    folder: Annotated[Path, typer.Argument(help="Folder for the task files; new or empty.")],
    program: Annotated[
        list[str], typer.Argument(help="The program: python SCRIPT.py and its arguments, after --.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Record modules of this class; may be given several times (default: modules with weights of classes "
            "outside of torch, the innermost ones)."
        ),
    ] = None,
) -> None:
    """Run a Python program and write the calls of its modules, with how often each was made, as tasks for dvk eval."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"`{folder}` is not an empty folder", "choose another one")
    python, *rest = program[1:] if program[0] == "--" and len(program) > 1 else program
    if not Path(python).name.startswith("python") or not rest or rest[0].startswith("-"):
        raise UsageError(
            f"`{' '.join(program)}` is not python SCRIPT.py",
            "dvk capture calls -- python serve.py --port 8000",
        )
    done = subprocess.run(
        [python, "-m", "dvk.api.calls", str(folder.absolute()), ",".join(only or ()), *rest],
        env=os.environ,
    )
    if done.returncode:
        raise typer.Exit(done.returncode if 0 < done.returncode < 128 else 1)
    print(f"tasks: {folder}; dvk eval {folder}", file=sys.stderr)
