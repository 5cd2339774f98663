"""Recipes: settings of a command by one name, TOML files in `data/configs/COMMAND/`. Their first line says what they are for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dvk.errors import MachineError, UsageError


def names(command: str) -> dict[str, str]:
    """Names of the recipes of a command, and what each is for; none in an installation without its data."""
    return {path.stem: path.read_text().splitlines()[0].lstrip("# ") for path in _files(command)}


def read(command: str, name: str | None) -> dict[str, Any]:
    """The settings of a recipe, by section; none for None.

    Raises:
        UsageError: there is no such recipe.
    """
    if name is None:
        return {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    for path in _files(command):
        if path.stem == name:
            return tomllib.loads(path.read_text())
    known = ", ".join(names(command))
    raise UsageError(
        f"unknown recipe of `dvk {command}`: `{name}`",
        f"choose one of {known}; --config takes a file",
    )


def described(command: str) -> str:
    """The names for a help text."""
    return ", ".join(names(command))


def _files(command: str) -> list[Path]:
    from dvk.resources import resource

    try:
        return sorted(resource("data", "configs", command).glob("*.toml"))
    except MachineError:
        return []
