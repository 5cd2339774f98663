"""The library's file: opening, append-only migrations, and SQLite's errors as LibraryErrors.

One table `skills` (a row a skill), an FTS5 index `skills_fts` over it kept in step by triggers, `seeds`
(each seed skill's content when it was installed), `events` (the skills' history), `meta` (key, value).
A file is recognised by SQLite's `application_id`; `user_version` counts the migrations applied. A migration is
never edited: append one.

Writers take the write lock at once (BEGIN IMMEDIATE) and wait for each other; readers never wait (WAL).
Creation, migration and seeding happen in one transaction, so a library exists whole or not at all,
even if several processes use it first and some are killed.

sqlite-utils does schema and writes. It is imported only there: it imports numpy when that is installed,
0.25 s that a search from the command line need not spend, so reading is plain SQL on the same connection.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dvk.errors import LibraryError
from dvk.skills import schema

if TYPE_CHECKING:
    from sqlite_utils import Database

APPLICATION_ID = 0x64766B73  # "dvks"
BUSY_S = 30.0
"""Longest wait for another writer; importing 100,000 skills is one transaction a thousand, well below this."""
RESTORE = "restore it from a backup, or move it away to start afresh"
"""Advice for a file that SQLite cannot read."""
COLUMNS = {
    "name": 8.0,
    "description": 4.0,
    "tags": 6.0,
    "scope": 1.0,
    "body": 1.0,
    "identifiers": 2.0,
}
"""Indexed columns and their bm25() weights: a name or a tag is chosen for search, a body mentions much."""


def m001_skills(db: Database) -> None:
    """The table, its index and the memory of the seeds."""
    skills = db.table("skills")
    skills.create(
        {
            "id": int,
            "name": str,
            "description": str,
            "scope": str,
            "tags": str,
            "body": str,
            "recipe": str,
            "relations": str,
            "provenance": str,
            "evidence": str,
            "identifiers": str,
            "digest": str,
            "created_at": str,
            "updated_at": str,
        },
        pk="id",
        not_null={"name", "description", "scope", "tags", "body", "identifiers", "digest"},
    )
    skills.create_index(["name"], unique=True)
    skills.create_index(["scope"])
    skills.enable_fts(
        list(COLUMNS), tokenize="porter unicode61 remove_diacritics 2", create_triggers=True
    )
    weights = ", ".join(map(str, COLUMNS.values()))
    db.execute("INSERT INTO skills_fts(skills_fts, rank) VALUES ('rank', ?)", [f"bm25({weights})"])
    db.table("seeds").create({"name": str, "digest": str}, pk="name", not_null={"digest"})
    db.table("meta").create({"key": str, "value": str}, pk="key")


def m002_events(db: Database) -> None:
    """Events of the skills (see `events`), append-only; it begins with the existing ones as added."""
    events = db.table("events")
    events.create(
        {"id": int, "kind": str, "skill": str, "step": int, "time": str, "data": str},
        pk="id",
        not_null={"kind", "skill", "step", "time", "data"},
    )
    events.create_index(["skill"])
    events.create_index(["kind", "step"])
    db.execute(
        """INSERT INTO events (kind, skill, step, time, data)
           SELECT 'added', name, 0, coalesce(created_at, updated_at, ''), json_object('why', 'was there before events were kept', 'skill',
                  json_object('name', name, 'description', description, 'scope', scope, 'tags', json(tags), 'body', body, 'recipe', recipe,
                  'relations', json(relations), 'provenance', json(provenance), 'evidence', json(evidence)))
           FROM skills WHERE json_valid(tags) AND json_valid(relations) AND json_valid(provenance) AND json_valid(evidence) ORDER BY id"""
    )
    for deed in ("UPDATE", "DELETE"):
        refusal = "BEGIN SELECT RAISE(ABORT, 'events are only appended'); END"
        db.execute(f"CREATE TRIGGER events_no_{deed.lower()} BEFORE {deed} ON events {refusal}")


def m003_blocks(db: Database) -> None:
    """Checkable conditions and changes of plan (`records.skill_block`)."""
    for column in ("when", "do"):
        db.table("skills").add_column(column, str)


def m004_searched(db: Database) -> None:
    """What searches measured of skills (see `searched`): of a task that is searched again the last measurement counts."""
    db.table("searched").create(
        {
            "skill": str,
            "machine": str,
            "backend": str,
            "task": str,
            "log_gain": float,
            "clock": float,
        },
        pk=("skill", "machine", "backend", "task"),
        not_null={"log_gain", "clock"},
    )


MIGRATIONS: tuple[Callable[[Database], None], ...] = (
    m001_skills,
    m002_events,
    m003_blocks,
    m004_searched,
)


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """An open connection to the file at `path`, not yet migrated.

    Raises:
        LibraryError: the file is missing (and not `create`), unreadable, or not a skill library.
    """
    if not path.exists():
        if not create:
            hint = "check --library, or make one with `dvk skills import` or `add`"
            raise LibraryError(f"no skill library at `{path}`", hint)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = "set DVK_HOME or --library to a writable place"
            raise LibraryError(f"cannot make `{path.parent}`: {error.strerror}", hint) from None
    with reported(path):
        if path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            connection = _connect_readonly(path)
        else:
            connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        connection.row_factory = sqlite3.Row
        try:
            _recognise(connection, path)
            # With WAL: kill -9 loses nothing, a power cut at most the last commits.
            connection.execute("PRAGMA synchronous=NORMAL")
            # Pages are read in place; a large library's index has some hundred MB.
            connection.execute("PRAGMA mmap_size=1073741824")
        except BaseException:  # an interrupt, too, must not leave it open
            connection.close()
            raise
    return connection


def _connect_readonly(path: Path) -> sqlite3.Connection:
    """Commits of others so far may lie in the write-ahead log, and they may be writing."""
    address = f"{path.resolve().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
    try:
        connection.execute("PRAGMA query_only=1")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if "locked" in str(error) or any(
            Path(f"{path.resolve()}{rest}").exists() for rest in ("-wal", "-journal")
        ):
            raise
        # SQLite reads a file in WAL mode only with a log, which cannot be made here; without one no process is writing.
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None)
        connection.execute("PRAGMA query_only=1")
    except BaseException:  # an interrupt, too, must not leave it open
        connection.close()
        raise
    return connection


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether every migration has been applied."""
    return bool(_pragma(connection, "user_version") == len(MIGRATIONS))


def migrate(connection: sqlite3.Connection, db: Database) -> None:
    """Apply missing migrations; the caller holds the write lock."""
    for number in range(_pragma(connection, "user_version"), len(MIGRATIONS)):
        MIGRATIONS[number](db)
        connection.execute(f"PRAGMA user_version={number + 1}")
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")


def identify(connection: sqlite3.Connection) -> None:
    """Give the library its permanent identity; the caller holds the write lock."""
    connection.execute(
        "INSERT OR IGNORE INTO meta (key, value) VALUES ('id', lower(hex(randomblob(16))))"
    )


def identity(connection: sqlite3.Connection) -> str | None:
    """The library's identity, wherever it lies; None for one from before there were identities."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'id'").fetchone()
    return None if row is None else str(row[0])


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to write-ahead logging; stored in the file; unchanged if the file system cannot."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:  # this switch does not honour the busy timeout
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[Database]:
    """One transaction under the write lock; a nested one is part of the outer."""
    from sqlite_utils import Database

    if connection.in_transaction:
        yield Database(connection, execute_plugins=False)
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield Database(connection, execute_plugins=False)
        connection.execute("COMMIT")
    except BaseException:  # an interrupt, too, must not leave a part of it
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about the file into a LibraryError."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise  # a bug of dvk, not the file's
    except sqlite3.DatabaseError as error:
        said = str(error).partition(" with text")[
            0
        ]  # Python quotes undecodable text whole: a skill's page
        if "locked" in said or "busy" in said:
            hint = "another process has been writing to it for long: wait for it or stop it"
        elif "readonly" in said or "unable to open" in said:
            hint = "make the file and its folder writable, or choose another with --library"
        elif "full" in said:
            hint = "free some disk space"
        elif "no such module" in said:
            hint = "this Python's sqlite3 lacks FTS5: use a Python built with it"
        else:
            hint = RESTORE
        raise LibraryError(f"skill library `{path}`: {said}", hint) from error


def _recognise(connection: sqlite3.Connection, path: Path) -> None:
    filled = connection.execute(
        "SELECT 1 FROM sqlite_master LIMIT 1"
    ).fetchone()  # before the mark: another process may be creating it
    mark = _pragma(connection, "application_id")
    if mark != APPLICATION_ID and (mark or filled):
        hint = "give the path of a library made by `dvk skills`"
        raise LibraryError(f"`{path}` is a database, but not a skill library", hint)
    version = _pragma(connection, "user_version")
    if version > len(MIGRATIONS):
        hint = "upgrade dvk, or choose another library"
        raise LibraryError(
            f"skill library `{path}` was written by a newer dvk (schema {version})", hint
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def file_damage(connection: sqlite3.Connection) -> list[str]:
    """The first error that SQLite's own checks of the file and the search index find, and a remedy; empty when all is well."""
    said = [
        line
        for row in connection.execute("PRAGMA quick_check")
        for line in row[0].splitlines()
        if not line.startswith("***")
    ]
    if said != ["ok"]:
        return [f"file: {said[0]}; {schema.RESTORE}"]
    try:
        connection.execute("INSERT INTO skills_fts(skills_fts, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        if "readonly" not in str(error):
            return [f"search index: {error}; export the skills and import them into a new library"]
    return []
