"""Libraries brought together: evidence, identities, and a run that begins with another library's skills."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from dvk.skills import Library
from dvk.skills.events import replay
from dvk.skills.merging import bring, diff
from dvk.skills.usage import tally
from tests.skills.plays_given import Make, play


@pytest.fixture
def run(tmp_path: Path, make: Make) -> Library:
    """A run's library: `same` was played with, `mine` is another text, `new` is new."""
    (tmp_path / "run").mkdir()
    opened = Library.open(tmp_path / "run" / "skills.db", create=True)
    opened.add_all([make("same"), make("mine", "theirs"), make("new")])
    for step in range(3):
        opened.record_all(play(["same"], 0.1 * step, step))
    return opened


def test_bringing_a_runs_library_into_another(library: Library, run: Library, make: Make) -> None:
    library.add_all(
        [make("same", evidence=({"speedup": 2.0},)), make("mine", "ours"), make("only")]
    )
    assert diff(library, run).changed == {"mine": ["body"], "same": ["evidence"]}
    done = bring(library, run)
    assert (done.added, done.updated, done.kept, done.replaced) == (["new"], ["same"], ["mine"], [])
    first, told = library.get("same").evidence
    assert first == {"speedup": 2.0} and told["use"] == "run/skills.db"
    assert (told["trials"], told["given"]) == (3, 3) and told["gain"] == pytest.approx(
        0.1, abs=0.01
    )
    assert "ours" in library.get("mine").body
    again = bring(library, run)
    assert (again.added, again.updated, again.kept) == ([], [], ["mine"]), "nothing twice"
    run.record_all(play(["same"], 0.5, 9))
    assert bring(library, run).updated == ["same"] and len(library.get("same").evidence) == 2, (
        "the newer report of a library"
    )
    assert (
        bring(library, run, replace=True).replaced == ["mine"]
        and "theirs" in library.get("mine").body
    )
    assert replay(library.events()) == {skill.name: skill for skill in library.list()}
    assert diff(library, run) == diff(library, run) and diff(library, run).removed == ["only"]


def test_libraries_of_one_name_keep_their_evidence_apart(
    library: Library, run: Library, make: Make, tmp_path: Path
) -> None:
    library.add(make("same"))
    bring(library, run)
    (tmp_path / "elsewhere" / "run").mkdir(parents=True)
    with Library.open(tmp_path / "elsewhere" / "run" / "skills.db", create=True) as other:
        other.add(make("same"))
        other.record_all(play(["same"], -0.1, 1))
        assert bring(library, other).updated == ["same"] and bring(library, other).updated == []
        assert [entry["use"] for entry in library.get("same").evidence] == ["run/skills.db"] * 2
    run.path.parent.rename(tmp_path / "moved")
    with Library.open(tmp_path / "moved" / "skills.db") as moved:
        assert moved.identity() == run.identity()
        moved.record_all(play(["same"], 0.4, 9))
        assert (
            bring(library, moved).updated == ["same"] and len(library.get("same").evidence) == 2
        ), "the same library elsewhere"


def test_a_library_from_before_there_were_identities_gets_one(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(library.path) as connection:
        connection.execute("DELETE FROM meta")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with Library.open(library.path) as unwritable:
            assert unwritable.identity() == str(library.path)
    assert library.identity() == library.identity() != str(library.path)


def test_a_run_begins_with_a_librarys_skills_and_none_of_its_steps(
    library: Library, run: Library, make: Make
) -> None:
    bring(library, run)
    assert diff(run, library).changed == {"same": ["evidence"]} and library.names() == run.names()
    assert all(use.given == 0 for use in tally(library.events()).values())
