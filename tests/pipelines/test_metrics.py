"""A run's figures survive a kill once each, and reach TensorBoard if it is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dvk.config import Config
from dvk.pipelines.metrics import FILE, FOLDER, Metrics, rewind
from dvk.runs import RunFolder


def opened(folder: Path) -> RunFolder:
    return RunFolder.open(folder, command="train", name="t", argv=(), config=Config(), resume=True)


@pytest.mark.parametrize(
    ("steps", "checkpoint", "expected"),
    [
        ([0, 1, 2], 2, [0, 1, 2]),
        ([0, 1], 2, [0, 1, 2]),
        ([0, 1, 2, 3], 2, [0, 1, 2]),
        ([1, 1, 2, 2], 1, [1]),
        ([], 0, []),
    ],
    ids=[
        "whole",
        "the checkpoint's row is missing",
        "a row of no checkpoint",
        "rows of two tries",
        "nothing yet",
    ],
)
def test_each_step_has_one_row(
    tmp_path: Path, steps: list[int], checkpoint: int, expected: list[int]
) -> None:
    with opened(tmp_path / "run") as run:
        Metrics(run).write([{"step": step, "x": step / 3} for step in steps])
        rewind(run, checkpoint, {"step": checkpoint, "x": checkpoint / 3} if checkpoint else None)
        assert run.read(FILE) == [{"step": step, "x": step / 3} for step in expected]


def test_without_a_row_in_the_checkpoint_the_module_keeps_its_own(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        Metrics(run).write([{"step": 1}, {"step": 2, "x": 1.0}, {"step": 3}])
        rewind(run, 2, None)
        assert run.read(FILE) == [{"step": 1}, {"step": 2, "x": 1.0}]


def test_of_several_processes_one_writes(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        Metrics(run).write([{"step": 1}])
        other = RunFolder.beside(run.path)
        with Metrics(other) as metrics:
            metrics.write([{"step": 1}, {"step": 2}])
        rewind(other, 0, None)
        assert run.read(FILE) == [{"step": 1}] and len(list((run.path).glob(f"{FOLDER}/*"))) <= 1


def test_tensorboard_shows_each_step_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with opened(tmp_path / "run") as run:
        with Metrics(run, 1) as metrics:
            metrics.write(
                [
                    {"step": 1, "reward_turn_1": 0.5, "said": "text"},
                    {"step": 2, "reward_turn_1": 9.0},
                ]
            )
        with Metrics(run, 2) as metrics:
            metrics.write([{"step": 2, "reward_turn_1": 1.0}])
        curves = EventAccumulator(str(run.path / FOLDER))
        curves.Reload()
        assert [(e.step, e.value) for e in curves.Scalars("reward/turn_1")] == [(1, 0.5), (2, 1.0)]
        assert len(list((run.path / FOLDER).iterdir())) == 2, "a file a process, not a step"
        assert (
            len((run.path / FILE).read_text().splitlines()) == 3
            and json.loads((run.path / FILE).read_text().splitlines()[0])["said"]
        )
