"""The `dvk` command: one module per command parses options and calls `pipelines/`; errors become exit codes."""

from __future__ import annotations

import atexit
import errno
import os
import sqlite3
import sys
import threading
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

import dvk
from dvk.cli import (
    capture,
    convert,
    doctor,
    eval,
    explain,
    export,
    mcp,
    measure,
    optimize,
    serve,
    sft,
    skills,
    train,
    verify,
    workspace,
)
from dvk.cli.help import HelpApp
from dvk.cli.options import INTERRUPTED
from dvk.errors import DvkError

app = HelpApp(
    name="dvk",
    help="Make PyTorch code faster with kernels that are written, proved and remembered.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help starts in half the time
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"dvk {dvk.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Make PyTorch code faster with kernels that are written, proved and remembered."""


app.command("optimize")(optimize.command)
app.command("verify")(verify.command)
app.add_typer(workspace.app, name="workspace")
app.command("explain")(explain.command)
app.command("export")(export.command)
app.command("eval")(eval.command)
app.command("capture", context_settings={"allow_interspersed_args": False})(capture.command)
app.add_typer(sft.app, name="sft")
app.command("train")(train.command)
app.command("measure")(measure.command)
app.add_typer(skills.app, name="skills")
app.command("convert")(convert.command)
app.command("serve")(serve.command)
app.command("mcp")(mcp.command)
app.command("doctor")(doctor.command)


def exhausted(error: OSError | sqlite3.Error) -> str | None:
    """Return the resource that this machine ran out of, and where; None if the error is of another kind."""
    if isinstance(error, OSError):
        out = error.errno in (
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EROFS,
            errno.EFBIG,
            errno.EMFILE,
            errno.ENFILE,
        )
        where = f": `{error.filename}`" if error.filename is not None else ""
        return f"{error.strerror}{where}" if out else None
    return (
        "the disk of a database is full"
        if "full" in str(error) or "disk I/O error" in str(error)
        else None
    )


def _leave() -> NoReturn:
    """End after Ctrl-C without waiting for threads that still examine files or judge candidates: Python would wait for all they have left.
    Their child processes end with this one."""
    threading.excepthook = lambda _: None  # what they were talking to is gone
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    atexit._run_exitfuncs()
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line: exit 0 success, 1 an honest negative, 2 the user can fix it."""
    try:
        app()
    except DvkError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as left:
        if left.code == INTERRUPTED:
            _leave()
        raise
    except BrokenPipeError:
        sys.exit(141)
    except (OSError, sqlite3.Error) as error:
        if (why := exhausted(error)) is None:
            raise
        print(
            f"error: {why}\nhint: free some, then run the command again with --resume to continue its run",
            file=sys.stderr,
        )
        sys.exit(2)
