"""BM25 ranking at a cost independent of the library's size: matching skills, scored by FTS5's `bm25()`.

Measured at 100,000 skills of 150-300 words: reading a posting takes 0.05 µs, scoring a row with bm25() 2 µs,
so a word that half the skills contain costs 90 ms, two such words 150. Almost all of it is spent on
rows that cannot win. Therefore every term is first counted, up to MAX_RANKED rows, which takes well under 1 ms,
and in queries of many words only up to an eighth of that, the rest estimated.

* All terms together match at most MAX_RANKED rows (any library of up to that many skills, and all
  rare terms in larger ones): plain `a OR b OR c` by bm25(), exact.
* Otherwise the rarest terms whose rows fit choose the candidates; commoner terms only re-order them, for
  which FTS5 has no operator but `(rare) AND (rare OR common)`: rare terms count twice there.
* Common terms alone: skills with all of them, then with them in name, tags or description (which carry most
  of the weight anyway), then in name or tags; the first of these that fits is ranked. Terms in more than half
  of all skills, whose bm25() is zero, are ignored if there are others. Remaining places are filled from
  the first MAX_RANKED rows that match.

A score is minus `bm25()` with the weights of `schema.COLUMNS`: higher is better, positive, comparable within
one answer only.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_RANKED = 4000
"""Rows scored at most by one query: 8 ms."""
MAX_TERMS = 64
"""Terms of one query at most, the rarest; beyond that bm25() itself becomes slow, and commoner ones add little."""
MAX_COUNTED = 512
"""Terms of one query whose rarity is looked up, in order of appearance: about 30 ms."""
_MANY = 8
"""From this many terms on, common ones are counted roughly: a graph's 40 words take 5 ms instead of 25."""
_MAX_COMMON = 6
"""Common terms that may re-order candidates: each costs one reading of all its postings, up to 5 ms."""
IN_BODY = 0.35
"""Weight of a concept that a skill only mentions."""
_HEAD = "{name tags description}"
_LABEL = "{name tags}"


class RankedTerm(NamedTuple):
    """One term that at least one skill contains."""

    text: str
    num_rows: int
    """Rows that contain it; for a common one an estimate."""


def rank(
    connection: sqlite3.Connection, counted: Sequence[RankedTerm], limit: int
) -> list[tuple[int, float]]:
    """The best `limit` rows for the result of `count`: (id, score), best first."""
    if not counted or limit < 1:
        return []
    rare: list[RankedTerm] = []
    for term in counted[:MAX_TERMS]:
        if sum(t.num_rows for t in rare) + term.num_rows > MAX_RANKED:
            break
        rare.append(term)
    common = counted[len(rare) : MAX_TERMS]
    telling = _telling(connection, common)[:_MAX_COMMON]
    scores: dict[int, float] = {}
    if rare:
        expression = (
            f"({any_of(rare)}) AND ({any_of(rare)} OR {any_of(telling)})"
            if telling
            else any_of(rare)
        )
        scores.update(_scored(connection, expression, limit))
    if common and len(scores) < limit:
        for row, score in _rank_common(connection, telling or common[:_MAX_COMMON], limit):
            scores.setdefault(row, score)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:limit]


def count(connection: sqlite3.Connection, terms: Sequence[str]) -> list[RankedTerm]:
    """Those of `terms` (as from `terms.terms`) that occur at all, rarest first."""
    rough = len(terms) >= _MANY and _size(connection) > MAX_RANKED
    counted = []
    for term in terms[:MAX_COUNTED]:
        if number := num_rows(connection, f'"{term}"', rough=rough):
            counted.append(RankedTerm(term, number))
    return sorted(counted, key=lambda term: term.num_rows)


def num_rows(connection: sqlite3.Connection, expression: str, *, rough: bool = False) -> int:
    """Rows that match an FTS5 `expression`; above MAX_RANKED, when `rough` above an eighth of it, an estimate.

    The estimate assumes the first matches' density for all.
    """
    most = MAX_RANKED // 8 if rough else MAX_RANKED
    sql = "SELECT count(*), max(rowid) FROM (SELECT rowid FROM skills_fts WHERE skills_fts MATCH ? LIMIT ?)"
    number, last = connection.execute(sql, (expression, most + 1)).fetchone()
    if number <= most:
        return int(number)
    return max(int(number), int(number * _size(connection) / last))


def shares(
    connection: sqlite3.Connection, concepts: Sequence[Sequence[str]], rows: Sequence[int]
) -> dict[int, float]:
    """Share of a question that each of `rows` answers, 0 to 1: a concept counts by its rarity, in full if name, tags or description
    have one of its names, by `IN_BODY` if the text does."""
    size = _size(connection)
    found, whole = dict.fromkeys(rows, 0.0), 0.0
    for names in concepts:
        expression = " OR ".join(f'"{name}"' for name in names)
        number = num_rows(connection, expression, rough=True)
        weight = math.log(1 + size / max(1, number)) if number else math.log(2 + size)
        whole += weight
        body = _among(connection, expression, rows) if number else set()
        head = _among(connection, f"{_HEAD} : ({expression})", rows) if body else set()
        for row in body:
            found[row] += weight * (1.0 if row in head else IN_BODY)
    return {row: share / whole for row, share in found.items()} if whole else found


def _among(connection: sqlite3.Connection, expression: str, rows: Sequence[int]) -> set[int]:
    sql = "SELECT rowid FROM skills_fts WHERE skills_fts MATCH ? AND rowid IN (SELECT value FROM json_each(?))"
    return {row for (row,) in connection.execute(sql, (expression, json.dumps(list(rows))))}


def any_of(terms: Sequence[RankedTerm]) -> str:
    """The FTS5 expression that matches skills with at least one of `terms`."""
    return " OR ".join(f'"{term.text}"' for term in terms)


def _rank_common(
    connection: sqlite3.Connection, terms: Sequence[RankedTerm], limit: int
) -> list[tuple[int, float]]:
    result: dict[int, float] = {}
    for expression in _ladder(terms):
        number = num_rows(connection, expression)
        if 0 < number <= MAX_RANKED:
            for row, score in _scored(connection, expression, limit):
                result.setdefault(row, score)
        if len(result) >= limit:
            return list(result.items())
    sql = "SELECT rowid, -rank AS score FROM skills_fts WHERE skills_fts MATCH ? LIMIT ?"
    first = connection.execute(sql, (any_of(terms), MAX_RANKED)).fetchall()
    for row, score in sorted(first, key=lambda item: -item[1])[:limit]:
        result.setdefault(row, score)
    return list(result.items())


def _ladder(terms: Sequence[RankedTerm]) -> Iterator[str]:
    """Expressions from the strictest match to the loosest."""
    every = " AND ".join(f'"{term.text}"' for term in terms)
    if len(terms) > 1:
        yield every
        yield f"{_HEAD} : ({every})"
    yield f"{_HEAD} : ({any_of(terms)})"
    yield f"{_LABEL} : ({any_of(terms)})"


def _telling(connection: sqlite3.Connection, terms: Sequence[RankedTerm]) -> Sequence[RankedTerm]:
    """The terms without those that more than half of all skills contain: bm25() gives them no weight."""
    return [term for term in terms if 2 * term.num_rows <= _size(connection)]


def _scored(connection: sqlite3.Connection, expression: str, limit: int) -> list[tuple[int, float]]:
    sql = "SELECT rowid, -rank FROM skills_fts WHERE skills_fts MATCH ? ORDER BY rank LIMIT ?"
    return connection.execute(sql, (expression, limit)).fetchall()


def _size(connection: sqlite3.Connection) -> int:
    """Skills in the library, or slightly more if some were removed; without counting them."""
    return connection.execute("SELECT max(id) FROM skills").fetchone()[0] or 0
