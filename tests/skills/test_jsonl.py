"""The reference's JSON lines, well-formed and not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dvk.errors import LibraryError
from dvk.skills import jsonl

CORE = {
    "name": "a",
    "description": "what",
    "scope": "general",
    "tags": ["x", "y"],
    "content": "## Motivation\n…",
}


def write(path: Path, *lines: object) -> Path:
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    )
    return path


def test_both_kinds_of_reference_line_survive_a_round_trip(tmp_path: Path) -> None:
    lines = [{**CORE, "verify_speedup": 1.37}, {**CORE, "name": "a_1", "source_uuid": "u-7"}]
    skills, problems = jsonl.read(write(tmp_path / "in.jsonl", *lines))
    assert not problems
    assert [skill.name for skill in skills] == ["a", "a_1"]
    assert skills[0].tags == ("x", "y") and skills[0].body == CORE["content"]
    assert [json.loads(line) for line in jsonl.render(skills)] == lines


def test_missing_fields_get_defaults(tmp_path: Path) -> None:
    skills, problems = jsonl.read(write(tmp_path / "in.jsonl", {"name": "b_c", "content": "body"}))
    assert not problems
    assert (skills[0].tags, skills[0].scope, skills[0].description) == ((), "general", "b c")


def test_bad_lines_are_reported_with_their_number_and_skipped(tmp_path: Path) -> None:
    path = write(
        tmp_path / "in.jsonl",
        CORE,
        b"",
        b"{torn",
        [1],
        {**CORE, "name": ""},
        {**CORE, "name": "!!"},
        b'{"name": "\xff"}',
        {"name": "no_content"},
        {**CORE, "name": "t", "tags": 3},
        b"[" * 100_000,
        {**CORE, "name": "last"},
    )
    skills, problems = jsonl.read(path)
    assert [skill.name for skill in skills] == ["a", "last"]
    assert [problem.split(":")[1] for problem in problems] == [
        "3",
        "4",
        "5",
        "6",
        "7",
        "8",
        "9",
        "10",
    ]
    assert all(problem.startswith(str(path)) for problem in problems)


def test_first_of_equal_names_wins_and_near_equal_names_get_suffixes(tmp_path: Path) -> None:
    second, third = {**CORE, "description": "second"}, {**CORE, "name": "A", "description": "third"}
    skills, problems = jsonl.read(
        write(tmp_path / "in.jsonl", CORE, second, third, {**CORE, "name": "Fuse-It now"})
    )
    assert [skill.name for skill in skills] == ["a", "a_1", "fuse_it_now"]
    assert [skill.description for skill in skills] == ["what", "third", "what"]
    assert len(problems) == 1 and "first one is kept" in problems[0]


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(LibraryError):
        jsonl.read(tmp_path / "missing.jsonl")
