"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Conf = Annotated[Path | None, typer.Option(help="TOML file with settings.")]
Engine = Annotated[
    str | None, typer.Option(help="Have the nodes of a Ray cluster judge: ray (one on this machine), ray://HOST:PORT, HOST:PORT, auto.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="One setting: section.key=value.")]
