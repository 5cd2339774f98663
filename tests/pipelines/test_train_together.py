"""The whole loop in two processes: they play each its tasks, and come to one model, one library, one folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.backbone import open_backbone
from dvk.distributed import ProcessGroup
from dvk.pipelines.sft.fit import fit
from dvk.pipelines.train import train
from dvk.pipelines.train.state import newest
from dvk.pipelines.train.task_sampler import TaskSampler
from dvk.records import Episode
from dvk.skills import Library
from tests.pipelines import sft_fits as fitting
from tests.pipelines import world
from tests.pipelines.golden_runs import differences
from tests.pipelines.trainings import CONFIG, metrics, request
from tests.together import together


def trained(start: str, tasks: str, out: str) -> Any:
    validated = CONFIG.model_copy(
        update={"train": CONFIG.train.model_copy(update={"validate_every": 2})}
    )
    return train(request(start, Path(tasks), Path(out), steps=2, validation=Path(tasks)), validated)


class Killed(BaseException):
    pass


def cut(home: str) -> None:
    """Ends as the second step begins."""
    going = TaskSampler.step

    def dies(self: TaskSampler, step: int) -> Any:
        if step == 1:
            raise Killed
        return going(self, step)

    TaskSampler.step = dies  # type: ignore[method-assign]  # this process ends here
    world.run(Path(home), Path(home) / "run")


def resumed(home: str) -> Any:
    return world.run(Path(home), Path(home) / "run")


def fitted(folder: str) -> Any:
    config = fitting.settings()
    with (
        ProcessGroup.join(120) as processes,
        processes.folder(
            Path(folder), command="sft", name="t", argv=("dvk",), config=config, resume=True
        ) as run,
    ):
        return fit(run, fitting.examples(), "nano-from-zero", config, processes=processes)


@pytest.mark.slow
def test_two_processes_train_as_one(taught: str, problems: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    one, other = together(trained, taught, str(problems), str(out), folder=tmp_path, limit_s=300)
    said = [(tmp_path / f"{rank}.err").read_text()[-2000:] for rank in range(2)]
    assert one == other and one["steps"] == 2, said
    rows = metrics(out)
    assert (
        [row["step"] for row in rows] == [0, 1, 2]
        and rows[1]["right"] > 0.5
        and rows[1]["rows"] > 0
        and rows[1]["tasks"] == 2
    )
    assert "val_fast_1" not in rows[1] and [row["val_tasks"] for row in (rows[0], rows[2])] == [
        2,
        2,
    ]
    validated = [
        [json.loads(line)["name"] for line in path.read_text().splitlines()]
        for path in sorted((out / "validation").iterdir())
    ]
    assert validated == [["chain_40", "chain_56"]] * 2, (
        "before the first step and after the last, every task once"
    )
    last = (out / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads((out / "checkpoints" / "step_000002" / "row.json").read_text()) == json.loads(
        last
    )
    assert "2 steps of training" in (out / "report.html").read_text()
    episodes = [
        Episode.model_validate_json(line)
        for line in (out / "episodes" / "step_000000.jsonl").read_text().splitlines()
    ]
    assert len({e.task.id for e in episodes}) == 2
    assert json.loads((out / "run.json").read_text())["status"] == "done"
    assert not list(out.glob(".skills*")) and [p.name for p in (out / "checkpoints").iterdir()] == [
        "step_000002"
    ]
    with Library.open(out / "skills.db") as library:
        assert library.events(kinds=["given"]) is not None and len(library) == one["skills"]
    before, after = open_backbone(taught), open_backbone(f"hf:{newest(out / 'checkpoints')}")
    pairs = zip(before.parameters(), after.parameters(), strict=True)  # type: ignore[attr-defined]  # both have weights
    assert any(not torch.equal(a, b) for a, b in pairs)


@pytest.mark.hand
@pytest.mark.slow
def test_two_processes_killed_once_come_to_the_golden_trajectory(tmp_path: Path) -> None:
    home = tmp_path / "home"
    world.library(world.problems(home / "tasks").parent / "begin.db")
    together(cut, str(home), folder=tmp_path, limit_s=200)
    assert [row["step"] for row in metrics(home / "run")] == [0, 1], (
        tmp_path / "0.err"
    ).read_text()[-2000:]
    one, other = together(resumed, str(home), folder=tmp_path, limit_s=200)
    assert one == other and one["processes"] == 2, (tmp_path / "0.err").read_text()[-2000:]
    found = json.loads(json.dumps(world.trajectory(home)))  # of the run that is there
    assert differences(found, json.loads(world.TRAJECTORY.read_text())) == []


@pytest.mark.slow
def test_two_processes_fit_as_one(tmp_path: Path) -> None:
    alone = fitted(str(tmp_path / "alone"))
    one, other = together(fitted, str(tmp_path / "both"), folder=tmp_path, limit_s=300)
    assert one["steps"] == other["steps"] == alone["steps"] and one["targets"] == alone["targets"]
    losses = [[row["loss"] for row in metrics(tmp_path / name)] for name in ("alone", "both")]
    assert losses[0][:10] == pytest.approx(losses[1][:10], rel=2e-3) and losses[1][-1] < 0.5
