"""A library of a test's own, and skills to put in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dvk.records import Skill
from dvk.skills import Library


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """An empty library."""
    with Library.open(tmp_path / "skills.db", create=True) as opened:
        yield opened


@pytest.fixture
def make() -> Callable[..., Skill]:
    """A skill; its fields matter only if the test says so."""

    def build(name: str, body: str = "words", **fields: object) -> Skill:
        text = f"## Motivation\n{body}\n\n## Key Idea\nidea\n\n## Example\nexample"
        return Skill.model_validate(
            {"name": name, "description": "a skill", "body": text, **fields}
        )

    return build
