"""Folders that this Python imports from, and what of them isolated code may read.

`sys.path` (virtual environments, PYTHONPATH, `--target` folders, .pth files) and what finders of editable installs map
packages to. A folder that belongs to no Python installation may be somebody's project, with more in it than modules:
hidden files, and folders that dvk writes, are not shown. Names can be listed there, since Python looks for modules so.
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
"""Found while HOME is still the user's, and asking a directory service, if need be, only once."""
DEPTH = 3
"""Levels at which runs of ours are looked for."""
OURS = ("run.json", "skills.db", "verdicts.db")
"""Files by which a folder that dvk writes is known."""


def folders() -> tuple[str, ...]:
    """Absolute paths, files such as zipped packages included, in no order."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = {*sys.path, package, *_mapped()}
    return tuple(sorted(path for path in found if may_be_shown(path)))


def may_be_shown(path: str) -> bool:
    """An absolute path that is no private folder, and holds none."""
    return path.startswith("/") and os.path.realpath(path) != "/" and not any(within(folder, path) for folder in _private())


def refused(path: str) -> bool:
    """The folder exists, and isolated code may not read it."""
    return os.path.isdir(path) and not may_be_shown(path)


def within(path: str, folder: str) -> bool:
    """`path` is `folder` or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


@cache
def shown(folder: str) -> tuple[str, ...]:
    """What may be read of a folder that Python imports from: itself, or parts of it and `FOLDER/.`, whose names may be listed."""
    if not may_be_shown(folder):
        return ()
    if not os.path.isdir(folder) or any(within(folder, prefix) for prefix in {sys.prefix, sys.base_prefix}):
        return (folder,)
    parts = list(_parts(folder, DEPTH))
    return (folder,) if parts == [folder] else (f"{folder}/.", *parts)


def _parts(folder: str, depth: int) -> Iterator[str]:
    """The folder where nothing in it is left out, else what is not."""
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
        parts = list(_parts(path, depth - 1)) if depth > 1 and os.path.isdir(path) and not os.path.islink(path) else [path]
        whole = whole and parts == [path]
        kept += parts
    yield from [folder] if whole else kept


def _is_home(folder: str) -> bool:
    chosen = os.environ.get("DVK_HOME")
    return chosen is not None and os.path.realpath(folder) == os.path.realpath(chosen)


@cache
def _private() -> frozenset[str]:
    private = {USER_HOME, "/tmp", "/var/tmp", "/dev/shm", "/home", "/root", "/etc", "/var", "/run", tempfile.gettempdir()}
    return frozenset(private | {os.path.realpath(folder) for folder in private})


def _mapped() -> set[str]:
    """Of finders that are not Python's own: those of editable installs hold the folders of packages in their attributes or module."""
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
