"""Folders that this Python imports from, and the parts of them that isolated code may read.

These are `sys.path` (virtual environments, PYTHONPATH, `--target` folders, .pth files) and the folders that finders of editable installs
map packages to. A folder outside Python installations may be a user's project with more than modules in it: hidden files, and folders that
dvk writes, are not readable. Their names can be listed, since Python looks for modules that way.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

USER_HOME = os.path.expanduser("~")
"""Home folder, read while HOME is still the user's; a directory service is asked at most once."""
DEPTH = 3
"""Depth to which dvk's run folders are searched."""
OURS = ("run.json", "skills.db", "verdicts.db")
"""Files that identify a folder that dvk writes."""


def folders() -> tuple[str, ...]:
    """Return absolute paths, files such as zipped packages included, in no order."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    result = {*sys.path, package, *_mapped()}
    return tuple(sorted(path for path in result if may_be_shown(path)))


def may_be_shown(path: str) -> bool:
    """Whether an absolute path is no private folder and holds none."""
    return (
        path.startswith("/")
        and os.path.realpath(path) != "/"
        and not any(within(folder, path) for folder in _private())
    )


def refused(path: str) -> bool:
    """Whether the folder exists and isolated code may not read it."""
    return os.path.isdir(path) and not may_be_shown(path)


def within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or is below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


@cache
def shown(folder: str) -> tuple[str, ...]:
    """Return what may be read of an import folder: itself, or parts of it and `FOLDER/.`, whose names may be listed."""
    if not may_be_shown(folder):
        return ()
    if not os.path.isdir(folder) or any(
        within(folder, prefix) for prefix in {sys.prefix, sys.base_prefix}
    ):
        return (folder,)
    parts = list(_parts(folder, DEPTH))
    return (folder,) if parts == [folder] else (f"{folder}/.", *parts)


def _parts(folder: str, depth: int) -> Iterator[str]:
    """Return the folder if nothing in it is left out, else its readable parts."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    if any(name in OURS for name in names) or _is_home(folder):
        return
    kept: list[str] = []
    whole = not any(name.startswith(".") for name in names)
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith("."):
            continue
        parts = (
            list(_parts(path, depth - 1))
            if depth > 1 and os.path.isdir(path) and not os.path.islink(path)
            else [path]
        )
        whole = whole and parts == [path]
        kept += parts
    yield from [folder] if whole else kept


def _is_home(folder: str) -> bool:
    chosen = os.environ.get("DVK_HOME")
    return chosen is not None and os.path.realpath(folder) == os.path.realpath(chosen)


@cache
def _private() -> frozenset[str]:
    private = {
        USER_HOME,
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "/home",
        "/root",
        "/etc",
        "/var",
        "/run",
        tempfile.gettempdir(),
    }
    return frozenset(private | {os.path.realpath(folder) for folder in private})


def _mapped() -> set[str]:
    """Return the folders of finders other than Python's: editable installs hold packages' folders in attributes of finder or module."""
    result: set[str] = set()
    for finder in sys.meta_path:
        name = getattr(finder, "__module__", None) or type(finder).__module__
        if name.startswith(("_frozen_importlib", "importlib", "_distutils_hack", "six", "dvk")):
            continue
        module = sys.modules.get(name)
        for holder in (finder, module):
            for value in list(getattr(holder, "__dict__", {}).values()):
                result |= set(_paths(value, 3))
    return result


def _paths(value: Any, depth: int) -> Iterable[str]:
    if isinstance(value, (str, Path)):
        path = str(value)
        if path.startswith("/") and os.path.exists(path):
            yield os.path.dirname(path) if os.path.basename(path) == "__init__.py" else path
    elif depth and isinstance(value, dict):
        for part in (*value.values(),):
            yield from _paths(part, depth - 1)
    elif depth and isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            yield from _paths(part, depth - 1)
