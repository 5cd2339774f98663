"""Tasks and candidates of the harness's tests: real files, loaded once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from dvk import backends, tasks
from dvk.config import Config
from dvk.records import Candidate, Task

FILES = Path(__file__).parent / "files"

QUICK = Config.model_validate(
    {
        "limits": {"memory_bytes": 1 << 30, "num_processes": 100, "output_bytes": 8192},
        "judge": {
            "candidate_s": 20,
            "search_s": 0.05,
            "claim_s": 0.2,
            "claim_pairs": 20,
            "num_seeds": 2,
        },
    }
)


@cache
def task(name: str) -> Task:
    """The task of a reference file."""
    return tasks.load(str(FILES / f"{name}.py"))


def candidate(name: str) -> Candidate:
    """The candidate of a file, e.g. `good/cpp_affine`."""
    source = (FILES / f"{name}.py").read_text()
    return Candidate(source=source, backend=backends.detect(source))


@pytest.fixture
def quick() -> Config:
    """Little time for everything."""
    return QUICK
