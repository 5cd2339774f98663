"""The seed skills of dvk, and their installation into the user's library.

Every seed's content digest is recorded at installation. When the files change with a new version, a
skill that is unchanged since its installation follows; an edited one stays as edited; a removed one
stays removed; a user's own skill under the same name stays the user's.
Changes of the files are detected by names, sizes and times: a fraction of a millisecond an opening.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dvk.errors import DvkError
from dvk.resources import resource
from dvk.skills.events import Event

if TYPE_CHECKING:
    from sqlite_utils import Database

    from dvk.records import Skill

_WHY = "a seed of this version of dvk"


def seed_dir() -> Path:
    """The folder of seed skills, in the installed package or in the checkout; MachineError when it is in neither."""
    return resource("skills_db", "seed")


def load() -> list[Skill]:
    """All seed skills by name; LibraryError when one is malformed."""
    from dvk.skills import markdown

    skills = [markdown.read(path) for path in sorted(seed_dir().glob("*.md"))]
    return [skill.model_copy(update={"provenance": {"source": "seed"}}) for skill in skills]


def are_stale(connection: sqlite3.Connection) -> bool:
    """Whether the files differ from the last check by this library. A writable library only: others stay unchanged."""
    if connection.execute("PRAGMA query_only").fetchone()[0]:
        return False
    try:
        stamp = _stamp()
    except DvkError:  # the seeds are gone, the library is not
        return False
    known = connection.execute("SELECT value FROM meta WHERE key = 'seed_stamp'").fetchone()
    return known is None or known[0] != stamp


def refresh(connection: sqlite3.Connection, db: Database) -> None:
    """Install new and changed seeds; the caller holds the write lock."""
    from dvk.skills import journal
    from dvk.skills.rows import digest

    stamp, memory, news = _stamp(), db.table("seeds"), []
    installed = dict(connection.execute("SELECT name, digest FROM seeds").fetchall())
    present = {row["name"]: row for row in connection.execute("SELECT * FROM skills")}
    untouched = {name for name, row in present.items() if row["digest"] == installed.get(name)}
    seeds = {skill.name: skill for skill in load()}
    for name, skill in seeds.items():
        if name not in installed and name not in present:
            news.append(
                Event("added", name, data={"skill": skill.model_dump(mode="json"), "why": _WHY})
            )
        elif name in untouched and installed[name] != digest(skill):
            data = {
                "skill": _with_experience(skill, present[name]).model_dump(mode="json"),
                "why": _WHY,
            }
            news.append(Event("changed", name, data=data))
        memory.upsert({"name": name, "digest": digest(skill)}, pk="name")
    for name in installed.keys() - seeds.keys():
        if name in untouched:
            news.append(Event("removed", name, data={"why": "no longer among dvk's seeds"}))
        memory.delete(name)
    journal.carry_out(connection, db, news)
    db.table("meta").upsert({"key": "seed_stamp", "value": stamp}, pk="key")


def _with_experience(skill: Skill, row: Mapping[str, Any]) -> Skill:
    """The new text with the old one's evidence and learned relations."""
    from dvk.skills.relations import related
    from dvk.skills.rows import LEARNED, to_skill

    old = to_skill(row)
    return related(
        skill.model_copy(update={"evidence": old.evidence}), old.provenance.get(LEARNED, {})
    )


def _stamp() -> str:
    with os.scandir(seed_dir()) as entries:
        files = sorted(
            (e.name, e.stat().st_size, e.stat().st_mtime_ns)
            for e in entries
            if e.name.endswith(".md")
        )
    return repr(files)
