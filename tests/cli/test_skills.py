"""`dvk skills` as people and programs call it: real processes, real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dvk.skills import Library, markdown

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
    """Runs `dvk skills …` with a home of its own."""

    def __init__(self, home: Path):
        self.home = home

    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dvk", "skills", *map(str, arguments)]
        environment = {**os.environ, "DVK_HOME": str(self.home), "COLUMNS": "100"}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def ok(self, *arguments: str | Path) -> str:
        done = self(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, *arguments: str | Path) -> str:
        done = self(*arguments)
        assert done.returncode == 2 and "Traceback" not in done.stderr and not done.stdout, done
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


def test_first_search_builds_the_library_from_the_seeds(dvk: Dvk) -> None:
    hits = json.loads(dvk.ok("search", "softmax", "over", "rows", "--json", "--limit", "3"))
    assert len(hits) == 3 and (dvk.home / "skills.db").is_file()
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert {"name", "score", "description", "snippet"} <= hits[0].keys()
    assert any("«" in hit["snippet"] for hit in hits)
    names = [row["name"] for row in json.loads(dvk.ok("list", "--json"))]
    assert len(names) == json.loads(dvk.ok("stats", "--json"))["num_skills"] and hits[0]["name"] in names


def test_search_prints_a_table(dvk: Dvk, mine: Path) -> None:
    table = dvk.ok("search", "num_warps", "--library", mine)
    assert "mine" in table and "Keep a running maximum" in table and "«warps»" in table


@pytest.mark.parametrize("text", ["", '"', "-O3", "--use_fast_math", "💥", "zzz " * 10_000])
def test_a_search_without_hits_is_no_error(dvk: Dvk, mine: Path, text: str) -> None:
    done = dvk("search", text, "--json", "--library", mine)
    assert done.returncode == 0 and json.loads(done.stdout) == [] and "no skill" in done.stderr


def test_a_misspelt_option_is_not_searched_for(dvk: Dvk, mine: Path) -> None:
    assert "--limit" in dvk.fails("search", "softmax", "--limt", "3", "--library", mine)
    dvk.fails("search", "softmax", "--limit", "0", "--library", mine)
    dvk.fails("search")


def test_show(dvk: Dvk, mine: Path) -> None:
    assert dvk.ok("show", "mine", "--library", mine) == SKILL.format(name="mine")
    shown = json.loads(dvk.ok("show", "mine", "--json", "--library", mine))
    assert shown["recipe"] == "online_softmax" and shown["tags"] == ["softmax", "tl.exp"]
    assert "`mine`" in dvk.fails("show", "mime", "--library", mine)


def test_show_renders_markdown_for_a_terminal(dvk: Dvk, mine: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "dvk", "skills", "show", "mine", "--library", str(mine)]
    subprocess.run(command, stdout=follower, check=True, env={**os.environ, "TERM": "xterm", "DVK_HOME": str(dvk.home)})
    os.close(follower)
    text = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "Motivation" in text and "## Motivation" not in text and "\x1b[" in text and "online_softmax" in text


def test_list_filters(dvk: Dvk, mine: Path) -> None:
    assert "mine" in dvk.ok("list", "--scope", "task_specific", "--library", mine)
    assert json.loads(dvk.ok("list", "--tag", "none", "--json", "--library", mine)) == []
    found = json.loads(dvk.ok("list", "--tag", "softmax", "--json", "--library", mine))
    assert [row["name"] for row in found] == ["mine"]


def test_add_is_all_or_nothing_and_refuses_taken_names(dvk: Dvk, mine: Path, tmp_path: Path) -> None:
    new, bad = tmp_path / "new.md", tmp_path / "bad.md"
    new.write_text(SKILL.format(name="new"))
    bad.write_text(SKILL.format(name="Not Snake"))
    assert f"{bad}:2" in dvk.fails("add", new, bad, "--library", mine)
    assert "--replace" in dvk.fails("add", new, tmp_path / "mine.md", "--library", mine)
    assert "twice" in dvk.fails("add", new, new, "--library", mine)
    assert [row["name"] for row in json.loads(dvk.ok("list", "--json", "--library", mine))] == ["mine"]
    assert dvk.ok("add", new, tmp_path / "mine.md", "--replace", "--library", mine) == "added new\nreplaced mine\n"
    dvk.fails("add", tmp_path / "missing.md", "--library", mine)


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
    before, after = (json.loads(dvk.ok("list", "--json", *more)) for more in ((), ("--library", copy)))
    assert [[row[f] for f in fields] for row in before] == [[row[f] for f in fields] for row in after]
    assert "0 added" in dvk.ok("import", out, "--library", copy), "what exists is kept"
    assert "replaced" in dvk.ok("import", out, "--library", copy, "--replace")


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


def test_the_library_option_names_an_existing_library(dvk: Dvk, tmp_path: Path) -> None:
    for command in ("search x", "list", "show x", "stats", "remove x", f"export {tmp_path}/out"):
        assert "no skill library" in dvk.fails(*command.split(), "--library", tmp_path / "typo.db")
    (tmp_path / "text.db").write_text("not a database " * 100)
    dvk.fails("stats", "--library", tmp_path / "text.db")


def test_stats_for_people(dvk: Dvk, mine: Path) -> None:
    assert "task_specific/softmax 1" in dvk.ok("stats", "--library", mine)
