"""Plug-ins by name, from a table of import paths or a user's file.

A table maps a short name to `package.module:attribute`; nothing is imported until it is asked for.
Every option that takes such a name also takes `path/to/file.py:Name`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dvk.errors import UsageError


def resolve(name: str, table: Mapping[str, str], what: str) -> Any:
    """Return the object that `name` names.

    Args:
        name: a key of `table`, or `path/to/file.py:Name`.
        table: short name → `package.module:attribute`.
        what: the kind of thing, for the error message ("strategy", "backend", …).

    Raises:
        UsageError: unknown name, missing file or missing attribute.
    """
    if name in table:
        module, _, attribute = table[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    path, separator, attribute = name.rpartition(":")
    if separator and path.endswith(".py"):
        return _from_file(Path(path), attribute, what)
    known = ", ".join(sorted(table))
    raise UsageError(
        f"unknown {what}: `{name}`", f"choose one of {known}, or give path/to/file.py:Name"
    )


def _from_file(path: Path, attribute: str, what: str) -> Any:
    if not path.is_file():
        raise UsageError(f"{what} file not found: `{path}`", "check the path before the colon")
    spec = importlib.util.spec_from_file_location(f"dvk_plugin_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        raise UsageError(
            f"`{path}` has no `{attribute}`", "name a class or function defined in that file"
        )
    return getattr(module, attribute)
