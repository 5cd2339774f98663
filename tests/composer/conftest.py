"""Names that depend on nothing but the file, so that what was compiled once on a machine is not compiled again."""

from __future__ import annotations

import itertools

import pytest

from tests.composer import programs


@pytest.fixture(scope="module", autouse=True)
def numbered_from_zero() -> None:
    """Names of kernels are part of their texts, and these of the compiler's cache; which files ran before must not show."""
    programs._numbers = itertools.count()
