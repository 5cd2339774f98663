"""A short training under recorded verdicts comes to what it came to before, and survives kills.

The golden file is renewed by `python -m tests.pipelines.world --renew`, when a change is meant to change it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import kills
from tests.pipelines import world

FLOATS = {"rel": 2e-4, "abs": 2e-6}
"""Other processors add in another order, and Adam divides by small numbers: without AVX this comes to 1e-5 of a figure."""


def differences(found: Any, golden: Any, place: str = "") -> list[str]:
    """Where two trees of JSON differ by more than floats may."""
    if isinstance(golden, dict) and isinstance(found, dict):
        missing = [f"{place}.{key} only in one" for key in sorted(set(found) ^ set(golden))]
        return missing + [d for key in golden if key in found for d in differences(found[key], golden[key], f"{place}.{key}")]
    if isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        return [d for n, (f, g) in enumerate(zip(found, golden)) for d in differences(f, g, f"{place}[{n}]")]
    if isinstance(golden, float) and isinstance(found, (int, float)):
        return [] if found == pytest.approx(golden, **FLOATS) else [f"{place}: {found} was {golden}"]
    return [] if found == golden else [f"{place}: {found} was {golden}"]


def test_differences_are_seen() -> None:
    golden = {"rows": [{"loss": 1.0, "n": 2}], "said": ["a"]}
    assert differences({"rows": [{"loss": 1.00001, "n": 2}], "said": ["a"]}, golden) == []
    assert len(differences({"rows": [{"loss": 1.01, "m": 2}], "said": ["b"]}, golden)) == 4
    assert differences({"rows": [], "said": ["a"]}, golden) == [".rows: [] was [{'loss': 1.0, 'n': 2}]"]


@pytest.mark.slow
def test_the_trajectory_is_the_golden_one(tmp_path: Path) -> None:
    golden = json.loads(world.TRAJECTORY.read_text())
    found = json.loads(json.dumps(world.trajectory(tmp_path)))
    assert differences(found, golden) == []
    rows = golden["rows"]
    assert [row["step"] for row in rows] == list(range(world.STEPS + 1))
    assert any(row.get("admitted") for row in rows), "the golden run is to go through admission, too"
    assert all(row["unread_selection"] < 1 and row["rows"] > 0 for row in rows[1:])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_three_kills_cost_nothing_but_the_step_at_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = kills.trial(tmp_path, count=3, seed=1)
    assert told["ok"] and told["kills"] == 3, f"{told}\n{capsys.readouterr().out}"
