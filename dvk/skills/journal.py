"""Events in the library's file: completed, applied and written in the caller's transaction, and read.

The table `events` stands next to `skills`; triggers of the file itself forbid changing or deleting a row of it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dvk.errors import LibraryError
from dvk.skills.events import CHANGES, KINDS, PUTS, TAKES, Event, effect
from dvk.skills.terms import clean

if TYPE_CHECKING:
    from sqlite_utils import Database


def carry_out(connection: sqlite3.Connection, db: Database, events: Iterable[Event]) -> list[Event]:
    """Apply `events` to the skills and record them; the caller holds the write lock.

    Returns:
        the events as written: with the time, and with the skills' earlier state.

    Raises:
        LibraryError: an impossible event: adds a name that is taken, changes or takes one that does not exist.
    """
    from dvk.records import Skill
    from dvk.skills.rows import now, to_row

    table, done = db.table("skills"), []
    for event in events:
        event = _complete(connection, event)
        for name, skill in effect(event).items():
            known = connection.execute("SELECT id FROM skills WHERE name = ?", (name,)).fetchone()
            if skill is None:
                table.delete(known[0])
            elif known is not None:
                table.update(known[0], to_row(Skill.model_validate(skill)))
            else:
                table.insert({**to_row(Skill.model_validate(skill)), "created_at": now()})
        write(db, [event])
        done.append(event)
    return done


def write(db: Database, events: Iterable[Event]) -> None:
    """Append `events`, which have been applied; the caller holds the write lock."""
    from dvk.skills.rows import now

    time = now()
    rows = (
        (
            e.kind,
            clean(e.skill),
            e.step,
            e.time or time,
            clean(json.dumps(e.data, ensure_ascii=False)),
        )
        for e in events
    )
    columns = ("kind", "skill", "step", "time", "data")
    db.table("events").insert_all(dict(zip(columns, row)) for row in rows)


def read(
    connection: sqlite3.Connection,
    name: str | None,
    kinds: Sequence[str] | None,
    since_step: int | None,
) -> Iterator[Event]:
    """Events in their order: of one skill (those that merged another into it, too), of some kinds, from a step on."""
    sql = """SELECT * FROM events
             WHERE (:name IS NULL OR skill = :name
                    OR (kind = 'merged' AND json_extract(iif(json_valid(data), data, '{}'), '$.into') = :name))
               AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
               AND (:step IS NULL OR step >= :step)
             ORDER BY id"""
    values = {
        "name": name if name is None else clean(name),
        "kinds": kinds if kinds is None else json.dumps(list(kinds)),
        "step": since_step,
    }
    for row in connection.execute(sql, values):
        yield Event(row["kind"], row["skill"], row["step"], _data(row), row["time"], row["id"])


def _data(row: sqlite3.Row) -> dict[str, Any]:
    try:
        data = json.loads(row["data"])
    except (TypeError, ValueError):
        data = None
    if not isinstance(data, dict):
        hint = "export the skills and import them into a new library"
        raise LibraryError(
            f"event {row['id']} ({row['kind']} {row['skill']}) is damaged: its data is no JSON object",
            hint,
        )
    return data


def _complete(connection: sqlite3.Connection, event: Event) -> Event:
    """The event with all fields that replay and undo need."""
    if event.kind not in KINDS:
        raise ValueError(f"no kind of event: {event.kind}")
    if event.kind not in CHANGES:
        return event
    data, present = dict(event.data), _present(connection, event.skill)
    if event.kind == "restored" and "skill" not in data:
        data["skill"] = _lost(connection, event.skill)
    if event.kind in PUTS and "skill" in data:
        if present is None and event.kind == "changed":
            raise _missing(event.skill)
        if present is not None and event.kind != "changed":
            raise LibraryError(
                f"already in the library: {event.skill}", "rename it, or replace the other"
            )
        data["skill"] = _stored(data["skill"])
    if event.kind in TAKES and present is None:
        raise _missing(event.skill)
    if "kept" in data:
        data["kept"], data["kept_was"] = _stored(data["kept"]), _present(connection, data["into"])
        if data["kept_was"] is None:
            raise _missing(data["into"])
    return replace(event, data={**data, "was": present} if present is not None else data)


def _present(connection: sqlite3.Connection, name: str) -> dict[str, Any] | None:
    from dvk.skills.rows import to_json

    row = connection.execute("SELECT * FROM skills WHERE name = ?", (name,)).fetchone()
    try:
        return None if row is None else to_json(row)
    except (TypeError, ValueError):  # damaged by another tool; it can still be removed
        return dict(row)


def _lost(connection: sqlite3.Connection, name: str) -> dict[str, Any]:
    """The skill called `name` as it was when it was last removed."""
    taken = [event for event in read(connection, name, TAKES, None) if event.skill == name]
    if not taken:
        raise LibraryError(
            f"no skill called `{name}` was ever taken out of the library",
            "see `dvk skills history NAME`",
        )
    return dict(taken[-1].data["was"])


def _stored(skill: dict[str, Any]) -> dict[str, Any]:
    """The event as a row of the table."""
    from dvk.records import Skill
    from dvk.skills.rows import to_json, to_row

    return to_json(to_row(Skill.model_validate(skill)))


def _missing(name: str) -> LibraryError:
    return LibraryError(
        f"no skill called `{name}` in the library",
        "another process may have removed it: look again",
    )
