"""What children of sandbox tests need."""

from __future__ import annotations

import pytest

from tests.python_path import python_path


@pytest.fixture
def children_find_the_tests(monkeypatch):
    """Children import `tests`, too."""
    monkeypatch.setenv("PYTHONPATH", python_path())
