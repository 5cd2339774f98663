"""`dvk skills` as people and programs call it: real processes, real files."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dvk.config import LibraryConfig
from dvk.skills import Library, markdown
from dvk.skills.grooming import groom
from tests.cli import warm

SKILL = """---
name: {name}
description: Keep a running maximum
scope: task_specific/softmax
tags: [softmax, tl.exp]
recipe: online_softmax
---

## Motivation
One pass with num_warps=8 and float4.

## Key Idea
Rescale.

## Example
none
"""


class Dvk:
    """Runs `dvk skills …` with a separate home."""

    def __init__(self, home: Path):
        self.home = home

    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return warm.dvk(
            "skills",
            *arguments,
            cwd=self.home.parent,
            exits=None,
            env={"DVK_HOME": str(self.home), "COLUMNS": "100"},
        )

    def ok(self, *arguments: str | Path) -> str:
        done = self(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, *arguments: str | Path) -> str:
        done = self(*arguments)
        assert done.returncode == 2 and not done.stdout, done
        return done.stderr


@pytest.fixture
def dvk(tmp_path: Path) -> Dvk:
    return Dvk(tmp_path / "home")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A library with one skill, `mine`."""
    (tmp_path / "mine.md").write_text(SKILL.format(name="mine"))
    with Library.open(tmp_path / "mine.db", create=True) as library:
        library.add(markdown.read(tmp_path / "mine.md"))
    return tmp_path / "mine.db"


@pytest.mark.slow
def test_first_search_builds_the_library_from_the_seeds(dvk: Dvk) -> None:
    hits = json.loads(dvk.ok("search", "softmax", "over", "rows", "--json", "--limit", "3"))
    assert len(hits) == 3 and (dvk.home / "skills.db").is_file()
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert {"name", "score", "description", "snippet"} <= hits[0].keys()
    assert any("«" in hit["snippet"] for hit in hits)
    names = [row["name"] for row in json.loads(dvk.ok("list", "--json"))]
    assert (
        len(names) == json.loads(dvk.ok("stats", "--json"))["num_skills"]
        and hits[0]["name"] in names
    )


def test_search_prints_a_table(dvk: Dvk, mine: Path) -> None:
    table = dvk.ok("search", "num_warps", "--library", mine)
    assert "mine" in table and "Keep a running maximum" in table and "warps»" in table


@pytest.mark.parametrize("text", ["", '"', "-O3", "--use_fast_math", "💥", "zzz " * 10_000])
@pytest.mark.slow
def test_a_search_without_hits_is_no_error(dvk: Dvk, mine: Path, text: str) -> None:
    done = dvk("search", text, "--json", "--library", mine)
    assert done.returncode == 0 and json.loads(done.stdout) == [] and "no skill" in done.stderr


def test_a_misspelt_option_is_not_searched_for(dvk: Dvk, mine: Path) -> None:
    assert "--limit" in dvk.fails("search", "softmax", "--limt", "3", "--library", mine)
    for limit in ("0", "99999999999999999999"):
        assert "--limit" in dvk.fails("search", "softmax", "--limit", limit, "--library", mine)
    dvk.fails("search")


def test_show(dvk: Dvk, mine: Path) -> None:
    assert dvk.ok("show", "mine", "--library", mine) == SKILL.format(name="mine")
    shown = json.loads(dvk.ok("show", "mine", "--json", "--library", mine))
    assert shown["recipe"] == "online_softmax" and shown["tags"] == ["softmax", "tl.exp"]
    assert "`mine`" in dvk.fails("show", "mime", "--library", mine)


@pytest.mark.slow
def test_show_renders_markdown_for_a_terminal(dvk: Dvk, mine: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "dvk", "skills", "show", "mine", "--library", str(mine)]
    subprocess.run(
        command,
        stdout=follower,
        check=True,
        env={**os.environ, "TERM": "xterm", "DVK_HOME": str(dvk.home)},
    )
    os.close(follower)
    text = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert (
        "Motivation" in text
        and "## Motivation" not in text
        and "\x1b[" in text
        and "online_softmax" in text
    )


def test_list_filters(dvk: Dvk, mine: Path) -> None:
    assert "mine" in dvk.ok("list", "--scope", "task_specific", "--library", mine)
    assert json.loads(dvk.ok("list", "--tag", "none", "--json", "--library", mine)) == []
    found = json.loads(dvk.ok("list", "--tag", "softmax", "--json", "--library", mine))
    assert [row["name"] for row in found] == ["mine"]


@pytest.mark.slow
def test_add_is_all_or_nothing_and_refuses_taken_names(
    dvk: Dvk, mine: Path, tmp_path: Path
) -> None:
    new, bad = tmp_path / "new.md", tmp_path / "bad.md"
    new.write_text(SKILL.format(name="new"))
    bad.write_text(SKILL.format(name="Not Snake"))
    assert f"{bad}:2" in dvk.fails("add", new, bad, "--library", mine)
    assert "--replace" in dvk.fails("add", new, tmp_path / "mine.md", "--library", mine)
    assert "twice" in dvk.fails("add", new, new, "--library", mine)
    assert [row["name"] for row in json.loads(dvk.ok("list", "--json", "--library", mine))] == [
        "mine"
    ]
    assert (
        dvk.ok("add", new, tmp_path / "mine.md", "--replace", "--library", mine)
        == "added new\nkept mine, which is the same\n"
    )
    new.write_text(SKILL.format(name="new").replace("Rescale.", "Another text."))
    assert dvk.ok("add", new, "--replace", "--library", mine) == "replaced new\n"
    dvk.fails("add", tmp_path / "missing.md", "--library", mine)
    block = "---\nname: new\nwhen: always\ndo: +own_matmull"
    bad.write_text(SKILL.format(name="new").replace("---\nname: new", block, 1))
    said = dvk.fails("add", bad, "--replace", "--library", mine)
    assert f"{bad}: `do` names no recipe: own_matmull" in said and "own_matmul," in said


def test_remove(dvk: Dvk, mine: Path) -> None:
    dvk.ok("remove", "mine", "--library", mine)
    dvk.fails("remove", "mine", "--library", mine)


@pytest.mark.parametrize("target", ["out", "out.jsonl"])
@pytest.mark.slow
def test_export_and_import_give_the_same_library(dvk: Dvk, tmp_path: Path, target: str) -> None:
    out, copy = tmp_path / target, tmp_path / "copy.db"
    dvk.ok("export", out)
    assert "--replace" in dvk.fails("export", out)
    dvk.ok("export", out, "--replace")
    dvk.ok("import", out, "--library", copy)
    fields = ("name", "description", "scope", "tags", "recipe")
    before, after = (
        json.loads(dvk.ok("list", "--json", *more)) for more in ((), ("--library", copy))
    )
    assert [[row[f] for f in fields] for row in before] == [
        [row[f] for f in fields] for row in after
    ]
    assert "0 added" in dvk.ok("import", out, "--library", copy), "what exists is kept"
    assert (
        dvk.ok("import", out, "--library", copy, "--replace") == f"0 added, {len(before)} kept\n"
    ), "nothing was edited"


def test_import_reports_what_it_leaves_out(dvk: Dvk, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"name": "good", "content": "body"}\nnot json\n')
    done = dvk("import", source, "--library", tmp_path / "new.db")
    assert done.returncode == 0 and "1 added" in done.stdout and f"{source}:2" in done.stderr
    source.write_text("not json\n")
    dvk.fails("import", source, "--library", tmp_path / "new.db")
    dvk.fails("import", tmp_path / "missing", "--library", tmp_path / "new.db")
    (tmp_path / "empty").mkdir()
    dvk.fails("import", tmp_path / "empty", "--library", tmp_path / "new.db")


@pytest.mark.slow
def test_the_library_option_names_an_existing_library(dvk: Dvk, tmp_path: Path) -> None:
    for command in ("search x", "list", "show x", "stats", "remove x", f"export {tmp_path}/out"):
        assert "no skill library" in dvk.fails(*command.split(), "--library", tmp_path / "typo.db")
    (tmp_path / "text.db").write_text("not a database " * 100)
    dvk.fails("stats", "--library", tmp_path / "text.db")


def test_stats_for_people(dvk: Dvk, mine: Path) -> None:
    assert "task_specific/softmax 1" in dvk.ok("stats", "--library", mine)


# ---------------------------------------------------------------- tending


@pytest.fixture
def played(mine: Path) -> Path:
    """A library in which `mine` helped, `worse` did not, and `twin` is `mine` again."""
    with Library.open(mine) as library:
        skill = library.get("mine")
        library.add(skill.model_copy(update={"name": "twin"}))
        worse = skill.model_copy(
            update={
                "name": "worse",
                "body": "## Motivation\nUnroll.\n\n## Key Idea\nAll loops.\n\n## Example\nfor",
            }
        )
        library.record("admitted", worse, {"why": "first it helped"}, step=1)
        for step in range(1, 15):
            gains = {"mine": 0.2 + 0.01 * (step % 2), "worse": -0.1 - 0.01 * (step % 2)}
            for name, gain in gains.items():
                library.record(
                    "given",
                    name,
                    {"role": "policy", "task": "t", "gain": gain, "won": gain > 0},
                    step,
                )
    return mine


def test_stats_tell_what_using_a_skill_came_to(dvk: Dvk, played: Path) -> None:
    counts = json.loads(dvk.ok("stats", "--json", "--library", played))
    assert counts["events"] == {"added": 2, "admitted": 1, "given": 28}
    best, worst = counts["usage"]
    assert (best["skill"], best["won"], best["trials"], worst["skill"], worst["won"]) == (
        "mine",
        14,
        14,
        "worse",
        0,
    )
    assert 0.2 < best["lo"] < best["gain"] < best["hi"] < 0.21
    table = dvk.ok("stats", "--library", played)
    assert "+0.205" in table and "-0.105" in table


@pytest.mark.slow
def test_prune_says_what_and_why_and_can_be_undone(dvk: Dvk, played: Path) -> None:
    planned = json.loads(dvk.ok("prune", "--dry-run", "--json", "--library", played))
    assert (planned["num_skills"], planned["applied"]) == (3, False)
    done = [(row["kind"], row["skill"], row["into"]) for row in planned["changes"]]
    assert done == [("merged", "twin", "mine"), ("retired", "worse", None)]
    with Library.open(played) as library:
        assert len(library) == 3
    table = dvk.ok("prune", "--library", played)
    assert "merged" in table and "into mine" in table and "stopped helping" in table
    with Library.open(played) as library:
        assert library.names() == ["mine"]
    assert "nothing to do" in dvk.ok("prune", "--library", played)
    assert dvk.ok("restore", "worse", "--library", played) == "restored worse\n"
    dvk.ok("show", "worse", "--library", played)


def test_pruning_takes_settings(dvk: Dvk, played: Path) -> None:
    cautious = ("--set", "library.merge_similarity=1", "--set")
    pinned = ('library.pinned=["twin", "worse"]', 'library.pinned=["twin"]')
    assert "nothing to do" in dvk.ok(
        "prune", "--dry-run", *cautious, pinned[0], "--library", played
    )
    full = json.loads(
        dvk.ok(
            "prune",
            "--json",
            "--dry-run",
            *cautious,
            pinned[1],
            "--set",
            "library.max_skills=2",
            "--library",
            played,
        )
    )
    assert [row["skill"] for row in full["changes"]] == ["worse"]
    assert "library.no_such" in dvk.fails(
        "prune", "--set", "library.no_such=1", "--library", played
    )


def test_history_of_a_skill_even_of_one_that_is_gone(dvk: Dvk, played: Path) -> None:
    with Library.open(played) as library:
        groom(library, LibraryConfig())
    events = json.loads(dvk.ok("history", "worse", "--json", "--library", played))
    assert [event["kind"] for event in events] == ["admitted", *["given"] * 14, "retired"]
    assert events[-1]["data"]["was"]["name"] == "worse" and events[-1]["step"] == 14
    table = dvk.ok("history", "worse", "--changes", "--library", played)
    assert "first it helped" in table and "retired" in table and "given" not in table
    assert "twin" in dvk.ok("history", "mine", "--changes", "--library", played), (
        "what was merged into it"
    )
    assert "gain +0.200; won" in " ".join(dvk.ok("history", "mine", "--library", played).split())


def test_what_never_was_is_the_users_to_fix(dvk: Dvk, mine: Path) -> None:
    assert "never_there" in dvk.fails("history", "never_there", "--library", mine)
    assert "never_there" in dvk.fails("restore", "never_there", "--library", mine)


def test_verify_says_what_is_wrong(dvk: Dvk, mine: Path) -> None:
    with Library.open(mine) as library:
        library.add(library.get("mine").model_copy(update={"name": "odd", "recipe": "none_such"}))
        library.add(library.get("mine").model_copy(update={"name": "bare", "body": "no sections"}))
    with sqlite3.connect(mine) as connection:
        connection.execute("UPDATE skills SET description = 'by another tool' WHERE name = 'mine'")
    done = dvk("verify", "--json", "--library", mine)
    assert done.returncode == 1 and json.loads(done.stdout) == {
        "num_skills": 3,
        "faults": [
            "mine: is there, but no event put it there as it is",
            "bare: missing section `## Motivation`",
            "odd: no recipe called none_such",
        ],
    }


def test_diff_and_merge(dvk: Dvk, played: Path, tmp_path: Path) -> None:
    team = tmp_path / "team.db"
    (tmp_path / "new.md").write_text(SKILL.format(name="mine").replace("Rescale.", "Another text."))
    dvk.ok("add", tmp_path / "new.md", "--library", team)
    assert dvk.ok("diff", team, played) == "+ twin\n+ worse\n~ mine: body, provenance\n"
    done = json.loads(dvk.ok("merge", team, played, "--json"))
    assert (done["added"], done["kept"]) == (["twin", "worse"], ["mine"])
    again = dvk("merge", team, played)
    assert again.stdout == "0 added, 1 kept\n" and "--replace" in again.stderr


def test_merge_replaces_on_request_and_takes_evidence_along(
    dvk: Dvk, played: Path, tmp_path: Path
) -> None:
    team = tmp_path / "team.db"
    with Library.open(team, create=True) as library, Library.open(played) as theirs:
        library.add(theirs.get("twin").model_copy(update={"name": "mine", "body": "another text"}))
    assert dvk.ok("merge", team, played, "--replace") == "2 added, 1 replaced\n"
    found = json.loads(dvk.ok("diff", team, played, "--json"))
    assert found == {
        "added": [],
        "removed": [],
        "changed": {"mine": ["evidence"], "worse": ["evidence"]},
    }
    assert [
        row["skill"] for row in json.loads(dvk.ok("stats", "--json", "--library", team))["usage"]
    ] == ["mine", "worse"]


def test_diff_and_merge_want_libraries_that_are_there(dvk: Dvk, mine: Path, tmp_path: Path) -> None:
    assert dvk.ok("diff", mine, mine) == "no difference\n"
    assert "same library" in dvk.fails("merge", mine, mine)
    dvk.fails("merge", mine, tmp_path / "typo.db")
    dvk.fails("diff", mine, tmp_path / "typo.db")
    assert not (tmp_path / "typo.db").exists()


def test_show_tells_learned_relations_from_written_ones(dvk: Dvk, mine: Path) -> None:
    from dvk.skills.relations import related

    with Library.open(mine) as library:
        library.record("changed", related(library.get("mine"), {"combines": ["other"]}))
    assert "relations: {combines: [other]}" in dvk.ok("show", "mine", "--library", mine)
    shown = json.loads(dvk.ok("show", "mine", "--json", "--library", mine))
    assert shown["relations"] == {"combines": ["other"]} and shown["provenance"]["learned"] == {
        "combines": ["other"]
    }
