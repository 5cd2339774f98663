"""Names and numbers that depend on the file alone: what was compiled once is not compiled again, and what agreed agrees again."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.composer import programs


@pytest.fixture(scope="module", autouse=True)
def numbered_from_zero() -> None:
    """Names of kernels are part of their texts, and these of the compiler's cache; which files ran before must not show."""
    programs._numbers = itertools.count()
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def drawn_anew() -> None:
    """A test draws the same numbers alone as behind others."""
    torch.manual_seed(0)
