"""The seed skills of dvk, and their installation into the user's library.

Every seed's content digest is recorded at installation. When the files change with a new version, a
skill that is unchanged since its installation follows; an edited one stays as edited; a removed one
stays removed; a user's own skill under the same name stays the user's.
Changes of the files are detected by names, sizes and times: a fraction of a millisecond an opening.
"""

from __future__ import annotations

import json
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

EVIDENCE = "evidence.jsonl"
"""File next to the seeds: what tables of measured plans say of each seed, a line a machine (`dvk skills grow --evidence`)."""
_WHY = "a seed of this version of dvk"


def seed_dir() -> Path:
    """The folder of seed skills, in the installed package or in the checkout; MachineError when it is in neither."""
    return resource("skills_db", "seed")


def load() -> list[Skill]:
    """All seed skills by name; LibraryError when one is malformed."""
    from dvk.skills import markdown

    skills = [markdown.read(path) for path in sorted(seed_dir().glob("*.md"))]
    measured = evidence()
    return [
        skill.model_copy(
            update={
                "provenance": {"source": "seed"},
                "evidence": tuple(measured.get(skill.name, ())),
            }
        )
        for skill in skills
    ]


def evidence() -> dict[str, list[dict[str, Any]]]:
    """What tables of measured plans said of seeds, by name (`EVIDENCE`)."""
    path = seed_dir().parent / EVIDENCE
    found: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        found.setdefault(entry.pop("name"), []).append(entry)
    return found


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
        elif name in untouched:
            newer = _with_experience(skill, present[name])
            known = json.loads(present[name]["evidence"])
            if installed[name] != digest(skill) or len(newer.evidence) > len(known):
                data = {"skill": newer.model_dump(mode="json"), "why": _WHY}
                news.append(Event("changed", name, data=data))
        memory.upsert({"name": name, "digest": digest(skill)}, pk="name")
    for name in installed.keys() - seeds.keys():
        if name in untouched:
            news.append(Event("removed", name, data={"why": "no longer among dvk's seeds"}))
        memory.delete(name)
    journal.carry_out(connection, db, news)
    db.table("meta").upsert({"key": "seed_stamp", "value": stamp}, pk="key")


def _with_experience(skill: Skill, row: Mapping[str, Any]) -> Skill:
    """The new text with the old one's evidence, the seeds' of machines that it does not speak of, and learned relations."""
    from dvk.skills.relations import related
    from dvk.skills.rows import LEARNED, to_skill

    old = to_skill(row)
    known = {_of_machine(entry) for entry in old.evidence}
    news = [entry for entry in skill.evidence if _of_machine(entry) not in known]
    return related(
        skill.model_copy(update={"evidence": (*old.evidence, *news)}),
        old.provenance.get(LEARNED, {}),
    )


def _of_machine(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(key) for key in ("source", "machine", "backend"))


def _stamp() -> str:
    with os.scandir(seed_dir()) as entries:
        files = sorted(
            (e.name, e.stat().st_size, e.stat().st_mtime_ns)
            for e in entries
            if e.name.endswith(".md")
        )
    measured = seed_dir().parent / EVIDENCE
    sizes = (measured.stat().st_size, measured.stat().st_mtime_ns) if measured.exists() else ()
    return repr([*files, *sizes])
