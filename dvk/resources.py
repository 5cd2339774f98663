"""Paths of dvk's shipped files and of the user's folder.

Seeds and examples live in `skills_db/` and `data/` at the top of the checkout, the red team's kernels
in `tests/kernels/`, and all of them inside the wheel as `dvk/_data/…`; `resource` finds them either way. This module only looks
paths up: it writes and copies nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from dvk.errors import MachineError

_PACKAGE = Path(__file__).resolve().parent


def resource(*parts: str) -> Path:
    """Return the shipped file or folder at `parts`, e.g. `resource("data", "tasks", "examples")`.

    Raises:
        MachineError: it is neither in the installed package nor in the checkout.
    """
    for root in (_PACKAGE / "_data", _PACKAGE.parent, _PACKAGE.parent / "tests"):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    raise MachineError(
        f"shipped file missing: `{'/'.join(parts)}`", "reinstall dvk, it came without its data"
    )


def home() -> Path:
    """Return `$DVK_HOME`, by default `~/.dvk`: this user's library, caches and measurements; it may not exist yet."""
    chosen = os.environ.get("DVK_HOME")
    return Path(chosen).expanduser() if chosen else Path.home() / ".dvk"


def checkout() -> Path | None:
    """Return the top of the source checkout that dvk runs from, None if it is installed from a wheel."""
    top = _PACKAGE.parent
    return top if (top / "pyproject.toml").is_file() and (top / ".git").exists() else None
