"""PYTHONPATH for child processes of tests: this tree before what was on it, since packages may be installed there alone."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python_path(first: Path | str = ROOT) -> str:
    """Return `first`, then this process's PYTHONPATH."""
    return os.pathsep.join(filter(None, [str(first), os.environ.get("PYTHONPATH")]))
