"""Files that are modules of a package, and their relative imports rewritten as absolute ones.

`from .layers import Gate` fails in a text that runs alone, as a task's and its drop-in's do; `from pkg.layers import Gate` works wherever
the package can be imported (`beside`). Line numbers do not change.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from dvk.errors import TaskError

_FROM, _MODULE = re.compile(rb"from(?:\s|\\\n)*(?:\.(?:\s|\\\n)*)+"), re.compile(rb"[\w.]+\s*")


def package_of(path: Path, source: str) -> str:
    """Return the package that a file is a module of, e.g. `pkg.nn`; empty if there is none.

    Folders with an `__init__.py` are packages; without, as many as the file's relative imports go up.

    Raises:
        TaskError: a relative import goes up further than there are folders that can be packages.
    """
    parts: list[str] = []
    folder = path.resolve().parent
    levels = max((node.level for node in _relative(source)), default=0)
    while folder.name.isidentifier() and (
        len(parts) < levels or (folder / "__init__.py").is_file()
    ):
        parts.insert(0, folder.name)
        folder = folder.parent
    if len(parts) < levels:
        raise TaskError(
            f"`{path.name}` has a relative import, and its folder `{folder.name}` cannot be a package",
            "give the folder a name that Python can import, or import absolutely",
        )
    return ".".join(parts)


def base_of(path: Path, package: str) -> Path:
    """Return the folder that a file's imports start from: its folder, or its package's parent folder."""
    return path.resolve().parents[package.count(".") + 1 if package else 0]


def absolute(source: str, package: str) -> str:
    """Return `source` with its relative imports rewritten relative to `package`."""
    name = _relative(source)
    if not name:
        return source
    lines = source.encode().splitlines(keepends=True)
    parts = package.split(".")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = source.encode()
    for node in sorted(name, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        at = starts[node.lineno - 1] + node.col_offset
        said = _FROM.match(text, at)
        assert said is not None, "a relative import begins so"
        module = ".".join(
            [*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])]
        )
        rest = text[said.end() :]
        text = (
            text[:at]
            + f"from {module} ".encode()
            + (_MODULE.sub(b"", rest, count=1) if node.module else rest)
        )
    return text.decode()


def _relative(source: str) -> list[ast.ImportFrom]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # reported when it is run
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
