"""Options that several commands of `dvk skills` take, and their consoles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

LibraryPath = Annotated[
    Path | None,
    typer.Option(
        "--library",
        metavar="PATH",
        help="Library; by default $DVK_HOME/skills.db, made from the seeds.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value for programs.")]


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False)
