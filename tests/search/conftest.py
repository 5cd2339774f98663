"""Fixtures of several modules here."""

from tests.search.auto_plays import two  # noqa: F401 - a fixture
