"""Skills as JSON lines, in the format of daVinci-kernel's skill libraries.

A line is one object: `name`, `description`, `scope`, `tags`, `content`, in made libraries also
`verify_speedup` or `source_uuid`. dvk's additions (`recipe`, `when`, `do`, `relations`) are
ignored by its loader. Parsing is lenient: a bad
line is reported and skipped, missing fields get defaults, of equal names the first wins, and names
that only become equal when made snake_case get `_1`, `_2`, … as its own writer does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dvk.errors import LibraryError
from dvk.records import Skill

_CARRIED = ("verify_speedup", "source_uuid")
"""Keys of the reference that are kept in a skill's provenance and written out again."""

_OPTIONAL = ("recipe", "when", "do")


def read(path: Path) -> tuple[list[Skill], list[str]]:
    """The skills in the file at `path`, and the errors of the lines left out, each as `file:line: reason`.

    Raises:
        LibraryError: the file cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise LibraryError(
            f"cannot read `{path}`: {error.strerror}", "give a file with one JSON object a line"
        ) from None
    skills: dict[str, Skill] = {}
    problems: list[str] = []
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            name = _text(record, "name")
            if name in seen:
                raise ValueError(f"`{name}` again; the first one is kept")
            skill = _skill(record, _free(_snake(name), skills))
        except RecursionError:
            problems.append(f"{path}:{number}: nested too deeply")
        except ValueError as error:  # includes bad UTF-8, bad JSON and pydantic's ValidationError
            problems.append(f"{path}:{number}: {_why(error)}")
        else:
            seen.add(name)
            skills[skill.name] = skill
    return list(skills.values()), problems


def render(skills: Iterable[Skill]) -> Iterable[str]:
    """One line, with its line break, a skill."""
    for skill in skills:
        record: dict[str, Any] = {
            "name": skill.name,
            "description": skill.description,
            "scope": skill.scope,
            "tags": list(skill.tags),
            "content": skill.body,
        }
        for key in _OPTIONAL:
            if (value := getattr(skill, key)) is not None:
                record[key] = value
        if skill.relations:
            record["relations"] = {kind: list(names) for kind, names in skill.relations.items()}
        record.update({key: skill.provenance[key] for key in _CARRIED if key in skill.provenance})
        yield json.dumps(record, ensure_ascii=False) + "\n"


def _skill(record: dict[str, Any], name: str) -> Skill:
    return Skill(
        name=name,
        description=" ".join(_text(record, "description", "").split()) or name.replace("_", " "),
        scope=" ".join(_text(record, "scope", "").split()) or "general",
        tags=_tags(record.get("tags")),
        body=_text(record, "content"),
        **{key: _text(record, key, "") or None for key in _OPTIONAL},
        relations=record.get("relations") or {},
        provenance={"source": "import", **{key: record[key] for key in _CARRIED if key in record}},
    )


def _text(record: Any, key: str, default: str | None = None) -> str:
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    value = record.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise ValueError(f"no {key}" if value is None else f"{key} is not text")
    if not value.strip() and default is None:
        raise ValueError(f"{key} is empty")
    return value


def _tags(value: Any) -> tuple[str, ...]:
    """A list, or text with commas; may be missing."""
    items = value.split(",") if isinstance(value, str) else value or []
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("tags is not a list of text")
    return tuple(
        dict.fromkeys(
            tag for item in items if (tag := " ".join(re.sub(r"[\[\],]", " ", item).split()))
        )
    )


def _snake(name: str) -> str:
    snake = re.sub(r"[^a-z0-9_]", "_", name.strip().lower()).lstrip("_")
    if not snake:
        raise ValueError(f"`{name[:60]}` has no letter or digit to make a name of")
    return snake


def _free(name: str, taken: dict[str, Skill]) -> str:
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _why(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"bad {first['loc'][0]}: {first['msg'].removeprefix('Value error, ')}"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg}"
    return "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
