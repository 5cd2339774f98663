"""Names in settings, which are checked when settings are loaded, not when the run uses them.

A field says where its names are listed: `names("advantage", "dvk.learn.credit:ADVANTAGES")`. Nothing is imported for a default.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from dvk import registry
from dvk.errors import UsageError


def names(what: str, table: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """Return `json_schema_extra` for a field whose value is a name.

    Args:
        what: the kind of thing, for the error message.
        table: `package.module:ATTRIBUTE`: short name → import path, and then `path/to/file.py:Name` will do, too; or a collection of
            names, and then nothing else will.
        also: names that stand for nothing in the table.
    """
    return {"names": what, "table": table, "also": list(also)}


def check(section: BaseModel, defaults: BaseModel, prefix: str = "") -> None:
    """Resolve every name that is not the default's.

    Args:
        section: settings.
        defaults: the same section, untouched.
        prefix: its dotted key, with a dot at the end.

    Raises:
        UsageError: the first unknown name, with the choices.
    """
    for field in named(section, defaults, prefix):
        if not field.unlike_the_default():
            continue
        known = load(field.table)
        paths = isinstance(known, Mapping) and all(
            isinstance(one, str) and ":" in one for one in known.values()
        )
        for name in field.unlike_the_default():
            try:
                if paths:
                    registry.resolve(name, {**known, **dict.fromkeys(field.also, "")}, field.what)  # type: ignore[dict-item]
                elif name not in known:
                    raise UsageError(
                        f"unknown {field.what}: `{name}`",
                        f"choose one of {', '.join(sorted(known))}",
                    )
            except UsageError as error:
                raise UsageError(
                    f"bad setting `{field.key}`: {error.message}", error.hint
                ) from None


@dataclass(frozen=True)
class Named:
    """A field whose value or keys are names."""

    key: str
    value: Any
    default: Any
    what: str
    table: str
    also: tuple[str, ...]

    def unlike_the_default(self) -> list[str]:
        """Return names that are not among the default's."""
        ours, theirs = (
            list(one) if isinstance(one, Mapping) else [one] for one in (self.value, self.default)
        )
        return [name for name in ours if name not in theirs and name not in self.also]


def named(section: BaseModel, defaults: BaseModel, prefix: str = "") -> Iterator[Named]:
    """Return the fields that hold names, at any depth; arguments as for `check`."""
    for key, about in type(section).model_fields.items():
        value, default, extra = (
            getattr(section, key),
            getattr(defaults, key),
            about.json_schema_extra,
        )
        if isinstance(value, BaseModel):
            yield from named(value, default, f"{prefix}{key}.")
        elif isinstance(extra, dict) and "table" in extra:
            also: Any = extra["also"]
            yield Named(
                f"{prefix}{key}",
                value,
                default,
                str(extra["names"]),
                str(extra["table"]),
                tuple(also),
            )


def load(table: str) -> Collection[str]:
    """Return the known names."""
    module, _, attribute = table.partition(":")
    known: Collection[str] = getattr(importlib.import_module(module), attribute)
    return known
