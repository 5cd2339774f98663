"""What children of sandbox tests need."""

from __future__ import annotations

import pytest

from tests.sandbox.process_tree import ROOT


@pytest.fixture
def children_find_the_tests(monkeypatch):
    """Children import `tests`, too."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
