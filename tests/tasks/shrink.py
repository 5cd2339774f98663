"""The shipped task files at sizes that a CPU test can afford.

A file says so itself: `ROWS = 8192  # small: 13`. Used by the composer's tests too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

TASKS = Path(__file__).parents[2] / "data" / "tasks"
_CONSTANT = re.compile(r"^([A-Z][A-Z0-9_]*) = .*?# small: (\d+)$", re.MULTILINE)


def shipped() -> list[Path]:
    """The twelve examples and the forty of the spine, in a fixed order."""
    return sorted((TASKS / "examples").glob("*.py")) + sorted((TASKS / "spine").glob("*.py"))


def shrink(source: str) -> str:
    """`source` with every constant that has a small size set to it."""
    small, count = _CONSTANT.subn(r"\1 = \2", source)
    if not count:
        raise ValueError("the file names no small sizes")
    return small


def shrunken(path: Path, folder: Path) -> Path:
    """A copy of the task file `path` at small sizes, in `folder`."""
    copy = folder / path.name
    copy.write_text(shrink(path.read_text()))
    return copy


def thirds(files: Sequence[Path]) -> list[Any]:
    """Files as parameters of a test: each third one in the CI, the others by hand."""
    return [
        pytest.param(file, marks=() if number % 3 == 0 else pytest.mark.hand)
        for number, file in enumerate(files)
    ]
