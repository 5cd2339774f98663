"""The skill library: one class over one SQLite file.

`Library.open` in milliseconds, `search` by BM25, `add` and `remove` in one transaction each. Several
processes may read and write the same file at once; a killed one leaves it as before its transaction.
Every change of a skill is recorded in the same transaction: `events` replayed are the skills.

It does not parse Markdown or JSONL (see `markdown`, `jsonl`), does not judge skills, and keeps no state
besides the connection. A Library belongs to the thread that opened it, and does not survive a fork.
Nothing here imports pydantic until a `Skill` is requested: a search shows rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dvk.errors import LibraryError
from dvk.resources import home
from dvk.skills import journal, ranking, schema
from dvk.skills.asking import concepts
from dvk.skills.events import Event
from dvk.skills.results import Added, Hit
from dvk.skills.terms import clean, terms, whole_and_parts

if TYPE_CHECKING:
    from dvk.records import Skill

BEGIN, END = "«", "»"
"""Marks around a hit in a snippet."""
SNIPPET_WORDS = 24
SNIPPET_TERMS = 16
"""The rarest terms of the query, which are marked; each costs a search in every shown row."""


ASKED = 40
"""Skills that `ask` scores in detail, at least."""
FLOOR = 0.3
"""Share of a question (`ranking.shares`) below which a skill is no answer to it."""


class Library:
    """A skill library on disk; use as a context manager or `close()` it."""

    def __init__(self, path: Path | str | None = None, *, create: bool = False):
        """Open the library at `path`, by default `default_path()`.

        The default one is built from the seed skills on first use, and later takes over seeds that changed
        with a new version of dvk unless the user has edited or removed them.

        Args:
            path: the SQLite file.
            create: make an empty library if there is none; the default one is always created.

        Raises:
            LibraryError: no library there, not one, or not readable.
        """
        self.path = Path(path) if path is not None else default_path()
        seeded = self.path.absolute() == default_path().absolute()
        self._connection = schema.connect(self.path, create=create or seeded)
        try:
            with schema.reported(self.path):
                _prepare(self._connection, seeded)
        except BaseException:  # an interrupt, too, must not leave it open
            self._connection.close()
            raise

    @classmethod
    def open(cls, path: Path | str | None = None, *, create: bool = False) -> Library:
        """The same as `Library(path, create=create)`."""
        return cls(path, create=create)

    def close(self) -> None:
        """Release the file; harmless when repeated."""
        self._connection.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ reading

    def search(self, text: str, limit: int = 10, *, snippets: bool = True) -> Sequence[Hit]:
        """The skills that `text` describes best, best first.

        Args:
            text: any text; there is no query language. Words and identifiers count, punctuation does not.
            limit: hits at most.
            snippets: also show the passage that matched; a caller that only wants names saves a few ms.
        """
        with schema.reported(self.path):
            words = ranking.count(self._connection, terms(text))
            ranked = ranking.rank(self._connection, words, limit)
            rows = self._rows([row for row, _ in ranked])
            passages = self._snippets([row for row, _ in ranked], words) if snippets else {}
        return [
            Hit(
                rows[row]["name"], score, rows[row]["description"], passages.get(row, ""), rows[row]
            )
            for row, score in ranked
            if row in rows  # another process may have removed it since
        ]

    def ask(self, text: str, limit: int = 10, *, snippets: bool = True) -> Sequence[Hit]:
        """The skills that answer a question in a person's words, best first; empty if all share too little with it.

        As `search`, but stop words are left out, the field's synonyms count as one (`asking`), and a skill
        that answers more of the question comes before one that repeats a single word of it.
        """
        with schema.reported(self.path):
            asked = concepts(text)
            words = ranking.count(
                self._connection, list(dict.fromkeys(name for names in asked for name in names))
            )
            scores = dict(ranking.rank(self._connection, words, max(limit, ASKED)))
            shares = ranking.shares(self._connection, asked, list(scores))
            best = sorted(
                (row for row in scores if shares[row] >= FLOOR),
                key=lambda row: (-scores[row] * shares[row], row),
            )[:limit]
            rows = self._rows(best)
            passages = self._snippets(best, words) if snippets else {}
        return [
            Hit(
                rows[row]["name"],
                scores[row] * shares[row],
                rows[row]["description"],
                passages.get(row, ""),
                rows[row],
            )
            for row in best
            if row in rows
        ]

    def frequency(self, word: str) -> int:
        """Number of skills that contain `word`, an identifier as a whole or all its parts; estimated if very common."""
        whole, parts = whole_and_parts(word)
        if not whole:
            return 0
        every = " AND ".join(f'"{part}"' for part in parts)
        with schema.reported(self.path):
            expression = f'"{whole}" OR ({every})' if len(parts) > 1 else every
            return ranking.num_rows(self._connection, expression, rough=True)

    def get(self, name: str) -> Skill:
        """The skill called `name`; LibraryError, which offers similar names, if there is none."""
        from dvk.skills.rows import to_skill

        with schema.reported(self.path):
            row = self._connection.execute(
                "SELECT * FROM skills WHERE name = ?", (clean(name),)
            ).fetchone()
        if row is None:
            raise self._unknown(name)
        return to_skill(row)

    def __contains__(self, name: str) -> bool:
        with schema.reported(self.path):
            row = self._connection.execute(
                "SELECT 1 FROM skills WHERE name = ?", (clean(name),)
            ).fetchone()
        return row is not None

    def __len__(self) -> int:
        with schema.reported(self.path):
            return int(self._connection.execute("SELECT count(*) FROM skills").fetchone()[0])

    def names(self) -> Sequence[str]:
        """All names, sorted."""
        with schema.reported(self.path):
            return [
                row[0] for row in self._connection.execute("SELECT name FROM skills ORDER BY name")
            ]

    def stats(self) -> dict[str, Any]:
        """How many skills: in all, by scope and tag, with a recipe, measured, unedited seeds; the file's size; events by kind."""
        with schema.reported(self.path):
            ask = self._connection.execute
            scopes = dict(
                ask(
                    "SELECT scope, count(*) FROM skills GROUP BY scope ORDER BY 2 DESC, 1"
                ).fetchall()
            )
            sql = "SELECT value, count(*) FROM skills, json_each(iif(json_valid(tags), tags, '[]')) GROUP BY value ORDER BY 2 DESC, 1"
            tags = dict(ask(sql).fetchall())
            recipes = ask("SELECT count(*) FROM skills WHERE recipe IS NOT NULL").fetchone()[0]
            measured = ask("SELECT count(*) FROM skills WHERE evidence != '[]'").fetchone()[0]
            seeds = ask("SELECT count(*) FROM seeds JOIN skills USING (name, digest)").fetchone()[0]
            events = dict(
                ask("SELECT kind, count(*) FROM events GROUP BY kind ORDER BY 1").fetchall()
            )
            size = ask(
                "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
            ).fetchone()[0]
        return {
            "path": str(self.path),
            "num_skills": sum(scopes.values()),
            "num_seeds": seeds,
            "num_recipes": recipes,
            "num_measured": measured,
            "size_bytes": size,
            "scopes": scopes,
            "tags": tags,
            "events": events,
        }

    def list(self, scope: str | None = None, tag: str | None = None) -> Sequence[Skill]:
        """All skills by name; of one scope (`task_specific` includes `task_specific/norm`) or with one tag."""
        return list(self.skills(scope, tag))

    def skills(self, scope: str | None = None, tag: str | None = None) -> Iterator[Skill]:
        """As `list`, one at a time."""
        from dvk.skills.rows import to_skill

        sql = """SELECT * FROM skills
                 WHERE (:scope IS NULL OR scope = :scope OR substr(scope, 1, length(:scope) + 1) = :scope || '/')
                   AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(skills.tags) WHERE value = :tag))
                 ORDER BY name"""
        values = {
            "scope": scope if scope is None else clean(scope),
            "tag": tag if tag is None else clean(tag),
        }
        with schema.reported(self.path):
            for row in self._connection.execute(sql, values):
                yield to_skill(row)

    def advising(self) -> Sequence[Skill]:
        """The skills with a change of plan that have evidence, by name: what a search can weigh without a query."""
        from dvk.skills.rows import to_skill

        sql = "SELECT * FROM skills WHERE \"do\" IS NOT NULL AND (evidence != '[]' OR name IN (SELECT skill FROM searched)) ORDER BY name"
        return [to_skill(dict(row)) for row in self.run(sql)]

    def run(self, sql: str, values: Sequence[Any] = ()) -> Sequence[sqlite3.Row]:
        """The rows of a query, for modules of this package."""
        with schema.reported(self.path):
            return self._connection.execute(sql, values).fetchall()

    def run_all(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """A statement for each of some rows, in one transaction, for modules of this package."""
        with schema.reported(self.path), schema.writing(self._connection):
            self._connection.executemany(sql, rows)

    def identity(self) -> str:
        """The library's unique identity, wherever it lies; for an old one that cannot be written, its path."""
        with schema.reported(self.path):
            key = schema.identity(self._connection)
            if key is None and not self._connection.execute("PRAGMA query_only").fetchone()[0]:
                with schema.writing(self._connection):
                    schema.identify(self._connection)
                key = schema.identity(self._connection)
        return key or str(self.path.resolve())

    # ------------------------------------------------------------ writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction around several reads and writes: what was read still holds when it is written; others wait."""
        with schema.reported(self.path), schema.writing(self._connection):
            yield

    def add(self, skill: Skill, *, replace: bool = False) -> None:
        """Store `skill`; LibraryError when its name is taken and not `replace`."""
        self.add_all([skill], taken="replace" if replace else "refuse")

    def add_all(
        self, skills: Iterable[Skill], *, taken: Literal["refuse", "replace", "keep"] = "refuse"
    ) -> Added:
        """Store all of `skills` in one transaction.

        Args:
            skills: of equal names among them the first wins.
            taken: for a name that the library has already: raise, replace its skill, or keep that. A skill of the same content and
                without evidence replaces nothing: the existing one's evidence would be lost.

        Raises:
            LibraryError: a name is taken and `taken` is "refuse"; nothing has been stored then.
        """
        from dvk.skills.rows import now, says_nothing_new, to_json, to_row

        rows: dict[str, dict[str, Any]] = {}
        for skill in skills:
            rows.setdefault(skill.name, to_row(skill))
        with schema.reported(self.path), schema.writing(self._connection) as db:
            sql = "SELECT * FROM skills WHERE name IN (SELECT value FROM json_each(?))"
            there = {
                row["name"]: row for row in self._connection.execute(sql, (json.dumps(list(rows)),))
            }
            known = list(there)
            if known and taken == "refuse":
                names = ", ".join(sorted(known))
                raise LibraryError(
                    f"already in the library: {names}", "rename them, or use --replace"
                )
            new = [name for name in rows if name not in known]
            db.table("skills").insert_all({**rows[name], "created_at": now()} for name in new)
            journal.write(
                db, (Event("added", name, data={"skill": to_json(rows[name])}) for name in new)
            )
            changed = [
                name
                for name in known
                if taken == "replace" and not says_nothing_new(rows[name], there[name])
            ]
            journal.carry_out(
                self._connection,
                db,
                (Event("changed", name, data={"skill": to_json(rows[name])}) for name in changed),
            )
        return Added(
            tuple(new), tuple(changed), tuple(name for name in known if name not in set(changed))
        )

    def remove(self, name: str) -> None:
        """Delete the skill called `name`; LibraryError when there is none."""
        with schema.reported(self.path), schema.writing(self._connection) as db:
            row = self._connection.execute(
                "SELECT name FROM skills WHERE name = ?", (clean(name),)
            ).fetchone()
            if row is not None:
                journal.carry_out(self._connection, db, [Event("removed", row["name"])])
        if row is None:
            raise self._unknown(name)

    def record(
        self, kind: str, skill: str | Skill, data: Mapping[str, Any] | None = None, step: int = 0
    ) -> None:
        """Record one event, and apply it: see `events`, which gives each kind's effect and fields.

        Args:
            kind: one of `events.KINDS`.
            skill: a name; for additions and changes the whole skill.
            data: further facts; `was` and `kept_was` are filled in.
            step: training step.

        Raises:
            LibraryError: adds a name that is taken, or changes or removes one that does not exist.
        """
        if isinstance(skill, str):
            self.record_all([Event(kind, skill, step, data or {})])
        else:
            self.record_all(
                [
                    Event(
                        kind,
                        skill.name,
                        step,
                        {**(data or {}), "skill": skill.model_dump(mode="json")},
                    )
                ]
            )

    def record_all(self, events: Iterable[Event]) -> Sequence[Event]:
        """As `record`, all of `events` in one transaction; returned as written, without their numbers."""
        with schema.reported(self.path), schema.writing(self._connection) as db:
            return journal.carry_out(self._connection, db, events)

    def restore(self, name: str, step: int = 0) -> None:
        """Restore the skill called `name` as it was when it was last removed; LibraryError if it never was."""
        self.record("restored", name, step=step)

    def events(
        self,
        name: str | None = None,
        kinds: Sequence[str] | None = None,
        since_step: int | None = None,
    ) -> Sequence[Event]:
        """Events in order: of one skill, of some kinds, from a training step on."""
        with schema.reported(self.path):
            return list(journal.read(self._connection, name, kinds, since_step))

    def compact(self) -> None:
        """Merge the search index into one piece after a large import; some seconds for 100,000 skills."""
        with schema.reported(self.path), schema.writing(self._connection):
            self._connection.execute("INSERT INTO skills_fts(skills_fts) VALUES ('optimize')")

    def damage(self) -> Sequence[str]:
        """SQLite's findings on the file and the search index; empty when all is well."""
        from dvk.skills.schema import file_damage

        with schema.reported(self.path):
            return file_damage(self._connection)

    # ------------------------------------------------------------ inside

    def _rows(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        sql = "SELECT * FROM skills WHERE id IN (SELECT value FROM json_each(?))"
        return {row["id"]: dict(row) for row in self._connection.execute(sql, (json.dumps(ids),))}

    def _snippets(self, ids: Sequence[int], words: Sequence[ranking.RankedTerm]) -> dict[int, str]:
        """Passages for these rows only: snippet() reads and tokenizes the whole text."""
        body = list(schema.COLUMNS).index("body")
        sql = f"""SELECT rowid, snippet(skills_fts, {body}, ?, ?, '…', {SNIPPET_WORDS})
                  FROM skills_fts WHERE skills_fts MATCH ? AND rowid IN (SELECT value FROM json_each(?))"""
        values = (BEGIN, END, ranking.any_of(words[:SNIPPET_TERMS]), json.dumps(ids))
        return (
            {
                row: " ".join(passage.split())
                for row, passage in self._connection.execute(sql, values)
            }
            if ids
            else {}
        )

    def _unknown(self, name: str) -> LibraryError:
        import difflib

        near = difflib.get_close_matches(name, self.names(), n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(f'`{n}`' for n in near)}?"
            if near
            else "see `dvk skills list`"
        )
        return LibraryError(f"no skill called `{name}` in `{self.path}`", hint)


def default_path() -> Path:
    """`$DVK_HOME/skills.db`, by default `~/.dvk/skills.db`."""
    return home() / "skills.db"


def _prepare(connection: sqlite3.Connection, seeded: bool) -> None:
    """Create, migrate and seed what is missing, in one transaction."""
    from dvk.skills import seeds

    if schema.is_current(connection) and not (seeded and seeds.are_stale(connection)):
        return
    if not schema.is_current(connection):
        schema.use_wal(connection)
    with schema.writing(connection) as db:
        schema.migrate(connection, db)
        schema.identify(connection)
        if seeded:
            seeds.refresh(connection, db)
