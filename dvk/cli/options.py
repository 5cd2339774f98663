"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Conf = Annotated[Path | None, typer.Option(help="TOML file with settings.")]
Engine = Annotated[
    str | None,
    typer.Option(help="A Ray cluster that judges, and where models write: ray (one on this machine), ray://HOST:PORT, HOST:PORT, auto."),
]
Settings = Annotated[list[str] | None, typer.Option("--set", help="One setting: section.key=value; a part with dots in quotes.")]
