"""Fixtures of several modules here."""

from tests.pipelines.trainings import problems, taught  # noqa: F401 - fixtures
