"""The seed skills that come with dvk, and how the user's library takes them over.

Every seed's content digest is remembered when it is installed. When the files change with a new version, a
skill that still is what was installed follows; one that the user edited stays as edited; one that
the user removed stays removed; one that the user had made under the same name stays the user's.
Whether the files changed is told by their names, sizes and times: a fraction of a millisecond an opening.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from dvk.errors import DvkError
from dvk.resources import resource

if TYPE_CHECKING:
    from sqlite_utils import Database

    from dvk.records import Skill


def seed_dir() -> Path:
    """The folder of seed skills, in the installed package or in the checkout; MachineError when it is in neither."""
    return resource("skills_db", "seed")


def load() -> list[Skill]:
    """All seed skills by name; LibraryError when one is malformed."""
    from dvk.skills import markdown

    skills = [markdown.read(path) for path in sorted(seed_dir().glob("*.md"))]
    return [skill.model_copy(update={"provenance": {"source": "seed"}}) for skill in skills]


def are_stale(connection: sqlite3.Connection) -> bool:
    """The files differ from when this library last looked. A writable library only: others stay as they are."""
    if connection.execute("PRAGMA query_only").fetchone()[0]:
        return False
    try:
        stamp = _stamp()
    except DvkError:  # the seeds are gone, the library is not
        return False
    known = connection.execute("SELECT value FROM meta WHERE key = 'seed_stamp'").fetchone()
    return known is None or known[0] != stamp


def refresh(connection: sqlite3.Connection, db: Database) -> None:
    """Take over new and changed seeds; the caller holds the write lock."""
    from dvk.skills.rows import digest, now, to_row

    stamp = _stamp()
    table, memory = db.table("skills"), db.table("seeds")
    installed = dict(connection.execute("SELECT name, digest FROM seeds").fetchall())
    present = {row[0]: row[1:] for row in connection.execute("SELECT name, id, digest, evidence FROM skills")}
    seeds = {skill.name: skill for skill in load()}
    for name, skill in seeds.items():
        if name not in installed and name not in present:
            table.insert({**to_row(skill), "created_at": now()})
        elif name in present and present[name][1] == installed.get(name) != digest(skill):
            table.update(present[name][0], {**to_row(skill), "evidence": present[name][2]})
        memory.upsert({"name": name, "digest": digest(skill)}, pk="name")
    for name in installed.keys() - seeds.keys():
        if name in present and present[name][1] == installed[name]:
            table.delete(present[name][0])
        memory.delete(name)
    db.table("meta").upsert({"key": "seed_stamp", "value": stamp}, pk="key")


def _stamp() -> str:
    with os.scandir(seed_dir()) as entries:
        files = sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries if e.name.endswith(".md"))
    return repr(files)
