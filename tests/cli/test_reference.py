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
    files = sorted(CONFIGS.glob("*.toml"))
    assert [file.name for file in files] == ["8b.toml", "ablations.toml", "nano.toml"]
    for file in files:
        if file.name == "ablations.toml":
            assert [variant.name for variant in variants(file, config.Config())][:2] == [
                "full",
                "no-skills",
            ]
        else:
            assert config.load(file, []) != config.Config()
