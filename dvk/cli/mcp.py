"""`dvk mcp`: tools for coding assistants."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    root: Annotated[
        Path, typer.Option(help="Folder that paths are relative to and run folders are left in.")
    ] = Path("."),
    library: Annotated[
        Path | None, typer.Option(help="Skill library (default: $DVK_HOME/skills.db).")
    ] = None,
) -> None:
    """Serve verify, optimize, workspaces and the skill library to a coding assistant over stdio (Model Context Protocol).

    An assistant starts it itself; give it the command `dvk mcp --root FOLDER`.
    """
    from dvk.pipelines.mcp import serve

    serve(root, library)
