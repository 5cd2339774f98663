"""Make names and numbers depend on the test file alone, so that caches of compilers and of results hit."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.composer import programs
from tests.composer.dropins import block, shared_block  # noqa: F401 - fixtures


@pytest.fixture(scope="module", autouse=True)
def numbered_from_zero() -> None:
    """Names of kernels are part of their texts and of the cache key: they must not depend on the files that ran before."""
    programs._numbers = itertools.count()
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def drawn_anew() -> None:
    """A test draws the same numbers alone as after others."""
    torch.manual_seed(0)
