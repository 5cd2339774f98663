"""Seeds are installed once, follow new versions, and yield to the user."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dvk.errors import LibraryError
from dvk.records import Skill
from dvk.skills import Library, default_path, markdown, seed_dir, seeds

Make = Callable[..., Skill]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seeds of the test's own, and a `$DVK_HOME` without a library."""
    place = tmp_path / "seed"
    place.mkdir()
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(seeds, "seed_dir", lambda: place)
    return place


def put(folder: Path, skill: Skill) -> None:
    """Write a seed file, later than any before it."""
    path = folder / f"{skill.name}.md"
    path.write_text(markdown.render(skill))
    times = [entry.stat().st_mtime_ns for entry in folder.iterdir()]
    os.utime(path, ns=(max(times) + 1, max(times) + 1))


def body(name: str) -> str:
    with Library.open() as library:
        return library.get(name).body if name in library else ""


def test_the_shipped_seeds_make_the_default_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    with Library.open() as library:
        assert library.names() == sorted(path.stem for path in seed_dir().glob("*.md"))
        assert library.names(), "a library without skills is of no use"
        assert all(skill.provenance == {"source": "seed"} for skill in library.list())


def test_a_library_elsewhere_gets_no_seeds(folder: Path, make: Make, tmp_path: Path) -> None:
    put(folder, make("a"))
    with Library.open(tmp_path / "mine.db", create=True) as library:
        assert library.names() == []
    with Library.open(default_path()) as library:
        assert library.names() == ["a"], "naming the default path means the default library"


def test_untouched_seeds_follow_edited_and_removed_ones_do_not(folder: Path, make: Make) -> None:
    for name in ("followed", "edited", "removed", "withdrawn", "kept"):
        put(folder, make(name, "old"))
    with Library.open() as library:
        library.add(make("edited", "mine"), replace=True)
        library.add(make("kept", "mine"), replace=True)
        library.remove("removed")
        measured = library.get("followed").model_copy(update={"evidence": ({"speedup": 2.0},)})
        library.add(measured, replace=True)
    for name in ("followed", "edited", "removed", "fresh"):
        put(folder, make(name, "new"))
    (folder / "withdrawn.md").unlink()
    (folder / "kept.md").unlink()
    assert "new" in body("followed") and "new" in body("fresh")
    assert "mine" in body("edited") and "mine" in body("kept")
    assert body("removed") == body("withdrawn") == ""
    with Library.open() as library:
        assert library.get("followed").evidence == ({"speedup": 2.0},), "what was measured stays"
        assert [hit.name for hit in library.search("new")] == ["followed", "fresh"]


def test_measured_evidence_of_seeds_reaches_new_and_old_libraries(folder: Path, make: Make) -> None:
    def measured(machine: str, gain: float) -> dict[str, object]:
        said = {"source": "table", "machine": machine, "backend": "triton", "tasks": 8}
        return {**said, "gain": gain, "lo": gain - 0.1, "hi": gain + 0.1}

    def ship(*entries: dict[str, object]) -> None:
        lines = (json.dumps({"name": "a", **entry}) + "\n" for entry in entries)
        (folder.parent / seeds.EVIDENCE).write_text("".join(lines))

    put(folder, make("a"))
    put(folder, make("b"))
    with Library.open() as library:
        own = library.get("a").model_copy(update={"evidence": (measured("H100", 1.5),)})
        library.add(own, replace=True)
    ship(measured("H100", 1.1), measured("H200", 1.2))
    with Library.open() as library:
        found = library.get("a").evidence
        assert found == (measured("H100", 1.5), measured("H200", 1.2)), "own measurements stay"
        assert library.get("b").evidence == ()
        events = len(library.events())
    with Library.open() as library:
        assert len(library.events()) == events


def test_a_users_skill_of_the_same_name_stays(folder: Path, make: Make) -> None:
    put(folder, make("other"))
    with Library.open() as library:
        library.add(make("clash", "mine"))
    put(folder, make("clash", "seed"))
    assert "mine" in body("clash")
    put(folder, make("clash", "seed, newer"))
    assert "mine" in body("clash")


def test_nothing_is_written_when_seeds_have_not_changed(folder: Path, make: Make) -> None:
    put(folder, make("a"))
    with Library.open() as first, Library.open():
        before = first._connection.execute("PRAGMA data_version").fetchone()[0]
        with Library.open() as again:
            assert again.names() == ["a"]
        assert first._connection.execute("PRAGMA data_version").fetchone()[0] == before


def test_a_malformed_seed_makes_no_half_library(folder: Path, make: Make) -> None:
    put(folder, make("a"))
    (folder / "b.md").write_text("---\nname: b\n---\n")
    with pytest.raises(LibraryError, match=r"b\.md:3"):
        Library.open()
    (folder / "b.md").unlink()
    assert body("a")
