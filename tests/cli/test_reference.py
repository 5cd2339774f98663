"""The reference pages are those that the code gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk import config
from dvk.cli import reference
from dvk.pipelines.train.sweep import variants

CONFIGS = Path(__file__).resolve().parents[2] / "data" / "configs"


@pytest.mark.parametrize("path", reference.pages(), ids=lambda path: path.parent.name)
def test_the_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == reference.pages()[path], (
        f"run: python -m {reference.__name__}"
    )


def test_shipped_configurations_load() -> None:
    (sweep,) = CONFIGS.glob("*.toml")
    assert [v.name for v in variants(sweep, config.Config())][:2] == ["full", "no-skills"]
