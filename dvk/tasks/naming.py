"""Resolution of a user's spec to a file and a class or function. Looks at the disk, runs nothing.

    model.py   model.py:Gate   pkg/model.py:Gate   pkg.model:Gate   pkg:Gate

A dotted name is looked up in the current folder, then where this Python imports from.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dvk.errors import TaskError

_NAME = re.compile(r"[^\W\d]\w*")
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def split(spec: str) -> tuple[Path, str | None]:
    """Return the file, which need not exist, and the name after the colon.

    Raises:
        TaskError: the name is not a name, or there is no such module.
    """
    before, separator, entry = spec.rpartition(":")
    if not separator or Path(spec).exists():
        return _file(spec), None
    if not _NAME.fullmatch(entry):
        raise TaskError(
            f"`{entry}` in `{spec}` is not the name of a class or function", "write model.py:Name"
        )
    return _file(before), entry


def stem(path: Path) -> str:
    """Return a file's short name: its folder's for a package's `__init__.py`."""
    return path.resolve().parent.name if path.name == "__init__.py" else path.stem


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() and (path / "__init__.py").is_file():
        return path / "__init__.py"
    if path.exists() or path.suffix == ".py" or not _DOTTED.fullmatch(text):
        return path
    inside = Path(*text.split("."))
    for folder in dict.fromkeys([".", *sys.path]):
        for found in (
            Path(folder) / inside.with_suffix(".py"),
            Path(folder) / inside / "__init__.py",
        ):
            if found.is_file():
                return found
    if "." not in text:
        return path  # as a path: no such file
    raise TaskError(
        f"no module `{text}` here, nor where Python imports from",
        "write its file, as in pkg/model.py:Name, or cd to the folder "
        f"that has `{text.partition('.')[0]}`",
    )
