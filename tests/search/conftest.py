"""Fixtures of several modules here."""

import pytest

from dvk.search import writer
from tests.search.auto_plays import two  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def writer_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore after each test what `writing.problem` sets."""
    for name in ("NUM_OPENINGS", "NUM_OFFSPRING"):
        monkeypatch.setattr(writer, name, getattr(writer, name))
