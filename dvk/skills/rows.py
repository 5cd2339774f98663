"""Skill ↔ row of the `skills` table. Knows no SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from dvk.errors import LibraryError
from dvk.records import Skill, content_hash
from dvk.skills.terms import clean, identifiers

_JSON = ("tags", "relations", "provenance", "evidence")
_CONTENT = ("name", "description", "scope", "tags", "body", "recipe", "when", "do", "relations")
"""Fields that make a skill; provenance and evidence are about it."""

LEARNED = "learned"
"""Key of a skill's provenance: which of its relations were learned, kind → names."""


def to_row(skill: Skill) -> dict[str, Any]:
    """The columns of `skill` except `id` and `created_at`."""
    row: dict[str, Any] = {}
    for field, value in skill.model_dump(mode="json").items():
        row[field] = json.dumps(value, ensure_ascii=False) if field in _JSON else value
        if isinstance(row[field], str):
            row[field] = clean(row[field])
    block = f"{skill.when or ''} {skill.do or ''}"
    named = identifiers(skill.name, skill.description, *skill.tags, skill.body, block)
    row["identifiers"] = clean(named)
    row["digest"] = digest(skill)
    row["updated_at"] = now()
    return row


def to_skill(row: Mapping[str, Any]) -> Skill:
    """The skill in `row`, whose other columns are ignored; LibraryError if another tool has damaged it."""
    try:
        return Skill.model_validate(to_json(row))
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise LibraryError(
            f"skill `{row['name']}` is damaged: {reason}", "remove it and add it again"
        ) from None


def to_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """The skill in `row` as JSON, unchecked: what its events carry."""
    return {
        field: json.loads(row[field]) if field in _JSON else row[field]
        for field in Skill.model_fields
    }


def digest(skill: Skill) -> str:
    """Hash of the skill's content, without its origin and effect, learned relations included."""
    content = skill.model_dump(mode="json", include=set(_CONTENT))
    for key in ("when", "do"):  # skills without them keep their hash of earlier versions
        if content[key] is None:
            del content[key]
    content["relations"] = {kind: list(names) for kind, names in authored(skill).items()}
    return content_hash(json.dumps(content, sort_keys=True))


def says_nothing_new(row: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """Whether both rows have the same content, including learned relations (an export writes those, too), and `row` has no evidence."""
    if json.loads(row["evidence"]):
        return False
    try:
        new, old = to_json(row), to_json(there)
    except (TypeError, ValueError):  # damaged by another tool
        return False
    return row["digest"] == there["digest"] or all(new[field] == old[field] for field in _CONTENT)


def authored(skill: Skill) -> dict[str, tuple[str, ...]]:
    """The skill's relations without learned ones (`relations.related` marks them)."""
    learned = skill.provenance.get(LEARNED, {})
    kept = {
        kind: tuple(name for name in names if name not in learned.get(kind, ()))
        for kind, names in skill.relations.items()
    }
    return {kind: names for kind, names in kept.items() if names or not skill.relations[kind]}


def now() -> str:
    """The time in UTC, to the second, ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
