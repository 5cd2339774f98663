"""Every change of a library is an event, and the events replayed are the library."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from dvk.errors import LibraryError
from dvk.records import Skill
from dvk.skills import Library, schema
from dvk.skills.events import CHANGES, TAKES, Event, before, effect, replay
from dvk.skills.rows import now, to_row
from tests.skills.search_index import index_is_whole

Make = Callable[..., Skill]


def kinds(library: Library, name: str | None = None) -> list[str]:
    return [event.kind for event in library.events(name)]


def whole(library: Library) -> dict[str, Skill]:
    return {skill.name: skill for skill in library.list()}


def test_every_way_of_changing_a_library_is_an_event(library: Library, make: Make) -> None:
    library.add(make("a"))
    library.add(make("a", "new"), replace=True)
    library.record("refused", "b", {"why": "not faster"}, step=2)
    library.record("admitted", make("b"), {"gain": 0.2}, step=3)
    library.record("given", "b", {"role": "policy", "gain": 0.1}, step=4)
    library.record("changed", make("b", "better"), {"why": "because"}, step=5)
    library.record("retired", "b", {"why": "worse"}, step=6)
    library.restore("b", step=7)
    library.remove("a")
    assert kinds(library) == [
        "added",
        "changed",
        "refused",
        "admitted",
        "given",
        "changed",
        "retired",
        "restored",
        "removed",
    ]
    assert [event.number for event in library.events()] == list(range(1, 10))
    assert kinds(library, "a") == ["added", "changed", "removed"]
    assert [event.step for event in library.events(kinds=("given", "retired"), since_step=5)] == [6]
    assert "better" in library.get("b").body and library.names() == ["b"], "it came back as it was"
    assert replay(library.events()) == whole(library)
    assert index_is_whole(library.path)


def test_events_replayed_are_the_library_whatever_was_done(library: Library, make: Make) -> None:
    """And undoing them from the last to the first leaves the first snapshot."""
    draw = random.Random(3)
    library.add_all(
        make(f"s{number}", f"body {number}", evidence=({"speedup": 1.5},)) for number in range(6)
    )
    start = library.events()
    for number in range(60):
        name, other = (draw.choice(list(library.names()) or ["none"]) for _ in range(2))
        there = len(library) > 0
        deed = draw.choice(["add", "replace", "remove", "retire", "merge", "restore", "relate"])
        try:
            if deed == "add":
                library.add(make(f"n{number}", "odd \ud800 \0 text", tags=("t",)))
            elif deed == "replace" and there:
                library.add_all([make(name, f"text {number}"), make(f"m{number}")], taken="replace")
            elif deed == "remove" and there:
                library.remove(name)
            elif deed == "retire" and there:
                library.record("retired", name, {"why": "test"}, step=number)
            elif deed == "merge" and name != other:
                kept = (
                    library.get(other)
                    .model_copy(update={"evidence": ({"n": number},)})
                    .model_dump(mode="json")
                )
                library.record("merged", name, {"into": other, "kept": kept}, step=number)
            elif deed == "relate" and there:
                library.record(
                    "changed",
                    library.get(name).model_copy(update={"relations": {"combines": (other,)}}),
                )
            elif deed == "restore":
                gone = sorted(
                    {event.skill for event in library.events(kinds=TAKES)} - set(library.names())
                )
                library.restore(draw.choice(gone or ["never_there"]))
        except LibraryError as error:
            assert "never_there" in str(error)
        assert replay(library.events()) == whole(library), f"{number}: {deed}"
    assert {"merged", "retired", "removed", "restored", "changed"} <= set(kinds(library))
    later = library.events()[len(start) :]
    assert replay(later, replay(start).values()) == whole(library), "from the first snapshot on"
    state = {skill.name: skill.model_dump(mode="json") for skill in library.list()}
    for event in reversed(later):
        assert {name: state.get(name) for name in effect(event)} == dict(effect(event)), (
            "an event says what it left"
        )
        state = {
            name: skill for name, skill in {**state, **before(event)}.items() if skill is not None
        }
    assert {name: Skill.model_validate(skill) for name, skill in state.items()} == replay(start)


def test_what_cannot_be_is_refused_and_leaves_nothing(library: Library, make: Make) -> None:
    library.add(make("a"))
    one = Event("retired", "a", data={"why": "test"})
    for wrong in (
        Event("retired", "b"),
        Event("admitted", "a", data={"skill": make("a").model_dump(mode="json")}),
        Event("changed", "b", data={"skill": make("b").model_dump(mode="json")}),
        Event("merged", "a", data={"into": "b", "kept": make("b").model_dump(mode="json")}),
        Event("restored", "b"),
    ):
        with pytest.raises(LibraryError):
            library.record_all([wrong] if wrong.skill == "a" else [one, wrong])
        assert library.names() == ["a"] and kinds(library) == ["added"]
    with pytest.raises(ValueError, match="no kind"):
        library.record("eaten", "a")


def test_events_are_never_changed(library: Library, make: Make) -> None:
    library.add(make("a"))
    for sql in ("UPDATE events SET kind = 'given'", "DELETE FROM events"):
        with (
            sqlite3.connect(library.path) as connection,
            pytest.raises(sqlite3.IntegrityError, match="only appended"),
        ):
            connection.execute(sql)


def of_old(row: dict[str, object]) -> dict[str, object]:
    """A row of the first version, which had no blocks."""
    return {column: value for column, value in row.items() if column not in ("when", "do")}


def test_a_library_from_before_there_were_events_has_its_skills_as_added(
    tmp_path: Path, make: Make
) -> None:
    path = tmp_path / "old.db"
    skill = make(
        "a",
        tags=("x", "y"),
        recipe="vectorize",
        relations={"combines": ["b"]},
        evidence=({"speedup": 2.0},),
    )
    connection = schema.connect(path, create=True)
    with schema.writing(connection) as db:
        schema.m001_skills(db)
        for one in (skill, make("b", "no recipe")):
            db.table("skills").insert({**of_old(to_row(one)), "created_at": now()})
        db.table("skills").insert({**of_old(to_row(make("spoilt"))), "tags": "not json"})
        connection.execute("PRAGMA user_version=1")
        connection.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
    connection.close()
    with Library.open(path) as library:
        assert library.get("a") == skill
        assert [(event.kind, event.skill) for event in library.events()] == [
            ("added", "a"),
            ("added", "b"),
        ]
        assert replay(library.events()) == {"a": skill, "b": library.get("b")}
        library.remove("spoilt")
        assert library.names() == ["a", "b"]
    assert index_is_whole(path)


def test_kinds_that_put_or_take_are_changes(library: Library, make: Make) -> None:
    library.add(make("a"))
    library.record("given", "a")
    library.record("admitted", "unknown", {"why": "noted, not stored"})
    assert [event.kind for event in library.events(kinds=CHANGES)] == ["added", "admitted"]
    assert library.names() == ["a"]
