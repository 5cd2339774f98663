"""The fuzzer of `tests.benchmarks.fuzz`: equal seeds give equal candidates, and the judge survives a few of each kind."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.benchmarks import fuzz


def test_equal_seeds_give_equal_candidates_of_every_kind() -> None:
    made = fuzz.fuzzed(40, 3)
    assert made == fuzz.fuzzed(40, 3) != fuzz.fuzzed(40, 4)
    assert {kind for kind, _ in made} == set(fuzz.KINDS)
    for kind, source in made:
        if kind not in ("truncated", "mutated", "binary"):
            compile(source, kind, "exec")


@pytest.mark.slow
def test_ten_candidates_leave_nothing_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.fuzz", "--count", "10", "--seed", "5"],
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout)
    assert report["wrong"] == [] and done.returncode == 0, done.stderr
    assert sum(sum(statuses.values()) for statuses in report["became"].values()) == 10
