"""`dvk capture`: the calls that a running model makes, as tasks weighted by launches."""

from __future__ import annotations

import os
import signal
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
    near = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    if not near.is_dir() or not os.access(near, os.W_OK):
        raise UsageError(f"`{folder}` cannot be made", "choose another folder")
    python, *rest = (program[1:] if program[0] == "--" else program) or [""]
    if not Path(python).name.startswith("python") or not rest or rest[0].startswith("-"):
        what = (
            f"`{' '.join([python, *rest])}` is not python SCRIPT.py"
            if python
            else "no program is given"
        )
        raise UsageError(what, "dvk capture calls -- python serve.py --port 8000")
    _check_python(python)
    done = _run(
        [
            *(python, "-m", "dvk.api.captured_script"),
            *(str(folder.absolute()), ",".join(only or ()), *rest),
        ]
    )
    if done:
        raise typer.Exit(done if 0 < done < 128 else 1)


def _check_python(python: str) -> None:
    """Raise UsageError if it cannot be run or has no dvk."""
    hint = f"give the Python that dvk is installed for, e.g. {sys.executable}"
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('dvk') is None)"
    try:
        found = subprocess.run([python, "-c", code], capture_output=True).returncode == 0
    except OSError as error:
        raise UsageError(f"`{python}` cannot be run: {error.strerror}", hint) from None
    if not found:
        raise UsageError(f"`{python}` has no dvk", hint)


def _run(command: list[str]) -> int:
    """Run a program to its end and return its exit code; after Ctrl-C, which it gets as well, and SIGTERM it has the time to save."""
    program = subprocess.Popen(command)
    former = signal.signal(signal.SIGTERM, lambda *_: program.terminate())
    try:
        try:
            return program.wait()
        except KeyboardInterrupt:
            return program.wait()
    except KeyboardInterrupt:  # the second one
        program.kill()
        return program.wait()
    finally:
        signal.signal(signal.SIGTERM, former)
