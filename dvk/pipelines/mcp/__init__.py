"""`dvk mcp`: the judge, the skill library and `dvk optimize` as tools of a coding assistant, over stdio (Model Context Protocol).

    verify          candidates against a reference         skills_search   what is known about a kind of kernel
    optimize        search for a faster drop-in            skills_show     one skill, whole
    workspace_open, workspace_check, workspace_bench, workspace_collect     the verbs of `dvk workspace`

All but the skills' tools are the commands themselves, each in a separate process: an error there ends one call, a cancelled call
ends its process, other calls are answered meanwhile, and the answers are those of the command line. Paths are relative to `root`, and run
folders are left below it.

    tools.py     the tools' interface for a model
    running.py   a command, its progress and its end
"""

from __future__ import annotations

import os
from pathlib import Path

from dvk.errors import MachineError, UsageError


def serve(root: Path, library: Path | None) -> None:
    """Serve on stdin and stdout until stdin is closed.

    Raises:
        MachineError: the SDK is not installed.
        UsageError: no such folder.
    """
    if not root.is_dir():
        raise UsageError(f"no such folder: `{root}`", "give the folder that the assistant works in")
    try:
        from dvk.pipelines.mcp.tools import tools
    except ImportError as error:
        if (error.name or "dvk").startswith("dvk"):
            raise
        raise MachineError(
            "`dvk mcp` needs the MCP SDK, version 2 or newer, which is not installed",
            "pip install 'dvk[mcp]'",
        ) from None
    library = library and library.resolve()
    os.chdir(root)
    tools(library).run("stdio")
