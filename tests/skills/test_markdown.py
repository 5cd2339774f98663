"""Skill files: exact round trips, and errors that name the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dvk.errors import LibraryError
from dvk.records import Skill
from dvk.skills import markdown

TEXT = """---
name: online_softmax
description: Keep a running max: one pass # not two
scope: task_specific/softmax
tags: [softmax, tl.exp, num_warps]
recipe: online_softmax
relations: {refines: [two_pass], combines: [a, b_c]}
---

## Motivation
Two passes read twice.

## Key Idea
---
Rescale.

## Example
```python
## Pitfalls
x = 1
```
"""


def test_parse_reads_every_field() -> None:
    skill = markdown.parse(TEXT)
    assert skill.description == "Keep a running max: one pass # not two"
    assert skill.tags == ("softmax", "tl.exp", "num_warps")
    assert skill.recipe == "online_softmax"
    assert skill.relations == {"refines": ("two_pass",), "combines": ("a", "b_c")}
    assert skill.body.startswith("## Motivation\n") and skill.body.endswith("\n```")


def test_round_trip_is_exact() -> None:
    assert markdown.render(markdown.parse(TEXT)) == TEXT


def test_round_trip_of_a_bare_skill(make: Callable[..., Skill]) -> None:
    skill = make("bare")
    assert markdown.parse(markdown.render(skill)) == skill


def test_windows_files_read_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert markdown.read(path) == markdown.parse(TEXT)


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("---\nname", "name", 1, "expected `---`"),
        ("tags: [softmax, tl.exp, num_warps]", "tags: softmax", 5, "not a list"),
        ("tags: [softmax, tl.exp, num_warps]", "tags: [a,,b]", 5, "empty item"),
        ("recipe: online_softmax", "recipy: online_softmax", 6, "expected one of"),
        ("recipe: online_softmax", "scope: general", 6, "scope given twice"),
        ("recipe: online_softmax", "recipe:", 6, "recipe is empty"),
        ("name: online_softmax", "name: Online Softmax", 2, "bad name"),
        ("combines: [a, b_c]", "combines: a", 7, "not relations"),
        ("scope: task_specific/softmax\n", "", 7, "scope is missing"),
        ("## Example", "### Example", 9, "missing section `## Example`"),
        ("## Key Idea", "## Key\0Idea", 13, "NUL"),
    ],
)
def test_errors_name_file_and_line(
    old: str, new: str, line: int, what: str, tmp_path: Path
) -> None:
    assert old in TEXT
    path = tmp_path / "skill.md"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(LibraryError) as caught:
        markdown.read(path)
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert what in caught.value.message
    assert caught.value.hint


def test_sections_inside_code_do_not_count() -> None:
    text = TEXT.replace("## Motivation\n", "```\n## Motivation\n```\n")
    with pytest.raises(LibraryError, match="Motivation"):
        markdown.parse(text)
    assert markdown.parse(text, sections=False).name == "online_softmax"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"---\nname: a\n"])
def test_unreadable_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.md"
    path.write_bytes(content)
    with pytest.raises(LibraryError):
        markdown.read(path)
    with pytest.raises(LibraryError, match="cannot read"):
        markdown.read(tmp_path / "missing.md")


@pytest.mark.parametrize(
    "fields", [{"description": "two\nlines"}, {"tags": ("a, b",)}, {"scope": "x\ny"}]
)
def test_render_refuses_what_it_could_not_read_back(
    make: Callable[..., Skill], fields: dict[str, object]
) -> None:
    with pytest.raises(LibraryError):
        markdown.render(make("odd", **fields))
