"""daVinci-kernel's library files, found where its checkpoints and runs have them, and written so that its training begins from them."""

from __future__ import annotations

import pytest

from dvk.errors import LibraryError, UsageError
from dvk.skills import exchange, snapshots
from dvk.skills.seeds import seed_dir
from tests.skills.stored_skills import put


def test_where_libraries_lie(tmp_path):
    bundled = put(tmp_path / "model" / "skill_library.jsonl", "a")
    assert snapshots.find(tmp_path / "model") == bundled
    run = tmp_path / "run"
    files = {
        step: put(run / "skill_library" / f"global_step_{step}.jsonl", f"s{step}")
        for step in (0, 9, 20, 100)
    }
    put(run / "skill_library" / "global_step_x.jsonl", "x")
    assert snapshots.find(run) == snapshots.find(run / "skill_library") == files[100]
    assert snapshots.find(run, 20) == files[20] and snapshots.find(run, 19) == files[9]
    merged = run / "global_step_30" / "actor" / "huggingface"
    merged.mkdir(parents=True)
    assert snapshots.find(merged) == files[20], "the library of that step, not of a later branch"
    assert (
        snapshots.find(tmp_path / "elsewhere") is None
        and snapshots.find(run / "global_step_30" / "actor", -1) is None
    )


def test_a_snapshot_is_imported_and_exported(tmp_path):
    put(tmp_path / "run" / "skill_library" / "global_step_7.jsonl", "one", "two", "one")
    library = tmp_path / "library.db"
    done = exchange.import_from(library, tmp_path / "run", replace=False)
    assert done.added == ["one", "two"] and len(done.problems) == 1
    assert (
        exchange.export_to(
            library, tmp_path / "next" / "skill_library", "snapshot", replace=False, step=8
        )
        == 2
    )
    written = tmp_path / "next" / "skill_library" / "global_step_8.jsonl"
    assert (
        snapshots.find(tmp_path / "next") == written
        and '"verify_speedup": 1.5' in written.read_text()
    )
    again = exchange.import_from(tmp_path / "again.db", tmp_path / "next", replace=False)
    assert again.added == ["one", "two"]


def test_a_readme_is_no_skill(tmp_path):
    put(tmp_path / "run" / "skill_library.jsonl", "one")
    (tmp_path / "run" / "README.md").write_text("# A model's card\n")
    (tmp_path / "run" / "docs").mkdir()
    (tmp_path / "run" / "docs" / "usage.md").write_text("# How\n")
    assert exchange.import_from(tmp_path / "library.db", tmp_path / "run", replace=False).added == [
        "one"
    ], "a checkpoint has such, too"
    (tmp_path / "a" / ".trash").mkdir(parents=True)
    (tmp_path / "a" / ".trash" / "gone.md").write_text(
        (seed_dir() / "softmax_online.md").read_text()
    )
    with pytest.raises(UsageError, match="no .md files of skills"):
        exchange.import_from(tmp_path / "hidden.db", tmp_path / "a", replace=False)
    found = exchange.import_from(tmp_path / "seeds.db", seed_dir().parent, replace=False)
    assert not found.problems and len(found.added) == len(list(seed_dir().glob("*.md")))


def test_a_checkpoint_without_a_readable_skill(tmp_path):
    (tmp_path / "skill_library.jsonl").write_text("{}\n")
    with pytest.raises(LibraryError):
        exchange.import_from(tmp_path / "library.db", tmp_path, replace=False)
