"""A short training under recorded verdicts reproduces its golden result, and survives kills.

The golden file is renewed by `python -m tests.pipelines.world --renew`, when a change is meant to change it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dvk.config import changed
from dvk.pipelines.metrics import Metrics
from dvk.pipelines.train.state import TrainState
from dvk.skills import Library
from tests.benchmarks import kills
from tests.pipelines import world
from tests.pipelines.golden_runs import differences


def test_differences_are_seen() -> None:
    golden = {"rows": [{"loss": 1.0, "n": 2}], "said": ["a"]}
    assert differences({"rows": [{"loss": 1.00001, "n": 2}], "said": ["a"]}, golden) == []
    assert len(differences({"rows": [{"loss": 1.01, "m": 2}], "said": ["b"]}, golden)) == 4
    assert differences({"rows": [], "said": ["a"]}, golden) == [
        ".rows: [] was [{'loss': 1.0, 'n': 2}]"
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """An undisturbed training: its folder, and its result."""
    home = tmp_path_factory.mktemp("whole")
    return home / "run", json.loads(json.dumps(world.trajectory(home)))


@pytest.mark.slow
def test_the_trajectory_is_the_golden_one(whole: tuple[Path, dict[str, Any]]) -> None:
    golden = json.loads(world.TRAJECTORY.read_text())
    assert differences(whole[1], golden) == []
    rows = golden["rows"]
    assert [row["step"] for row in rows] == list(range(world.STEPS + 1))
    assert any(row.get("admitted") for row in rows), (
        "the golden run is to go through admission, too"
    )
    assert all(row["rows"] > 0 for row in rows[1:])
    assert sum(row["unread_selection"] < 1 for row in rows[1:]) >= 2, "selections are read"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (Metrics, "write", 3),
        (TrainState, "keep", 2),
        (TrainState, "write", 1),
        (Metrics, "write", 1),
    ],
    ids=[
        "between checkpoint and row",
        "before the checkpoint counts",
        "in the first step",
        "before the first step",
    ],
)
def test_whenever_it_is_interrupted_it_goes_on_alike(
    owner: Any,
    name: str,
    call: int,
    whole: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(BaseException):
        pass

    going, calls = getattr(owner, name), 0

    def stops(self: Any, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Interrupted
        return going(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stops)
        with pytest.raises(Interrupted):
            world.run(tmp_path, tmp_path / "run")
    assert world.trajectory(tmp_path) == whole[1], "to the last bit"


@pytest.mark.hand
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_loses_only_the_current_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = kills.trial(tmp_path, count=1, seed=1)
    assert told["ok"] and told["kills"] == 1, f"{told}\n{capsys.readouterr().out}"


@pytest.mark.slow
def test_degenerate_tasks_teach_neither_the_model_nor_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(name: str) -> tuple[dict[str, Any], set[str]]:
        run = tmp_path / name
        world.run(
            tmp_path,
            run,
            steps=1,
            config=changed(world.CONFIG, {"seed": 2, "train.validate_every": 0}),
        )
        with Library.open(run / "skills.db") as known:
            return json.loads((run / "metrics.jsonl").read_text()), {
                event.kind for event in known.events()
            }

    row, events = step("healthy")
    assert row["rows"] > 0 and row["admitted"] == 1 and {"given", "admitted"} <= events
    honest = world.verdict
    monkeypatch.setattr(
        world, "verdict", lambda *of: honest(*of).model_copy(update={"health": ("degenerate: …",)})
    )
    row, events = step("degenerate")
    assert (
        row["left_out_degenerate"] > 0
        and (row["rows"], row["proposed"]) == (0, 0)
        and not {"given", "admitted", "refused"} & events
    )
