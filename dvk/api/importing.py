"""Which classes and functions another process can import, and from where."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import types
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import torch


def import_path(value: Any) -> tuple[str, str] | None:
    """Return module and dotted name by which another process can import `value`."""
    for kind, one in (
        vars(types).items() if isinstance(value, type) and value.__module__ == "builtins" else ()
    ):
        if one is value:  # of a method, for example, whose class says that it is in `builtins`
            return "types", kind
    module = getattr(value, "__module__", None)
    if module is None and isinstance(value, BuiltinFunctionType):
        module = "builtins"
    name = (
        getattr(value, "__qualname__", None)
        or getattr(value, "__name__", None)
        or getattr(value, "_name", None)
    )
    if isinstance(value, BuiltinFunctionType) and getattr(torch._C._nn, str(name), None) is value:
        module = "torch._C._nn"
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or "<" in name
        or not importable(module)
    ):
        return None
    held: Any = sys.modules.get(module)
    for part in name.split("."):
        held = getattr(held, part, None)
    return (module, name) if held is value else None


def importable(module: str) -> bool:
    """Whether a process of another program can import this module."""
    held = sys.modules.get(module)
    if held is None or module == "__main__":
        return False
    spec = getattr(held, "__spec__", None)
    file = getattr(held, "__file__", None)
    if module in sys.builtin_module_names or (
        spec is not None and spec.origin in ("built-in", "frozen")
    ):
        return True
    try:
        return (
            spec is not None
            and importlib.util.find_spec(module) is not None
            and (file is None or os.path.exists(file))
        )
    except (ImportError, AttributeError, ValueError):
        return module.startswith("torch.")  # parts of torch that are made while it is imported


def root_of(module: str) -> str | None:
    """Return the folder that a module is imported from, unless it is Python's or one of installed packages."""
    top = sys.modules.get(module.partition(".")[0])
    file = getattr(top, "__file__", None) or next(iter(getattr(top, "__path__", ())), None)
    if not isinstance(file, str):
        return None
    inside = getattr(top, "__path__", None) is not None
    path = Path(file).resolve()
    root = path.parents[1] if inside and path.name == "__init__.py" else path.parent
    installed = {str(Path(folder).resolve()) for folder in sysconfig.get_paths().values()}
    if (
        str(root) in installed
        or {"site-packages", "dist-packages"} & set(root.parts)
        or any(str(root).startswith(f"{folder}/") for folder in (sysconfig.get_path("stdlib"),))
    ):
        return None
    return str(root)
