"""`dvk train --judge table:FILE` on the shipped sample of measured plans: it learns which plans are fast, without a clock."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from dvk import config as configuration
from dvk.agents import dialects
from dvk.agents.dialects.plan import space_of
from dvk.cli import recipes
from dvk.composer import Plan
from dvk.composer.codegen.base import codegen
from dvk.config import Config, changed
from dvk.errors import UsageError
from dvk.learn.examples import Example, ExampleTask
from dvk.learn.sources import InMemory
from dvk.pipelines.sft.fit import fit
from dvk.pipelines.train import TrainRequest, save_step, table_tasks, train
from dvk.pipelines.train.replay import ReplayBuffer
from dvk.pipelines.train.task_sampler import TaskSampler
from dvk.records import Episode, Tokens, Trace, Turn
from dvk.records.measured import read_table
from dvk.resources import resource
from dvk.runs import RunFolder

TABLE = resource("data", "measured", "sample.jsonl.gz")
SMALL = configuration.load(recipe=recipes.read("train", "small"))
CONFIG = changed(
    SMALL,
    {
        "seed": 1,
        "remote.judge": f"table:{TABLE}",
        "train.tasks_per_step": 3,
        "train.validate_every": 0,
        "train.keep_every": 100,
        "rollout.schemes": 0,
        "rollout.explored": 0,
        "rollout.rollouts": 8,
        "rollout.turns": 1,
        "rollout.summaries": 0,
        "rollout.repair_attempts": 0,
        "trials.per_task": 0,
        "learning.pack_tokens": 1024,
        "learning.micro_packs": 1,
    },
)


def every_plan() -> list[Example]:
    """All plans of the table as answers, whatever they are worth: a model that knows the words and prefers nothing."""
    found = []
    rows = {row.task.id: row for row in read_table(TABLE)}
    for subject in table_tasks.read(TABLE, workers=1).train:
        row, space = rows[subject.task.id], space_of(subject)
        asked, parse = (
            dialects.get("plan").policy(subject, (), Config().agents),
            codegen("cpp").parse,
        )
        for plan in row.plans:
            schedules = {name: parse(printed, name) for name, printed in plan.schedule.items()}
            said = {"role": "assistant", "content": space.text(Plan(plan.recipes, schedules))}
            found.append(
                Example.new(
                    kind="policy",
                    messages=(*asked.messages, said),
                    task=ExampleTask(id=row.task.id),
                    origin="table:test",
                    backend="cpp",
                )
            )
    return found


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny nano that answers with the plans of the table, each about as often."""
    settings = {"fit.size": "tiny", "fit.epochs": 20, "fit.save_every": 1000, "fit.held_out": 0.0}
    fitting = {"learning.rate": 5e-3, "learning.batch_tokens": 2048, "learning.warmup": 0.05}
    config = changed(CONFIG, {**settings, **fitting})
    folder = tmp_path_factory.mktemp("start") / "sft"
    with RunFolder.open(
        folder, command="sft", name="t", argv=(), config=config, resume=False
    ) as run:
        return f"nano:{fit(run, InMemory(every_plan()), 'nano-from-zero', config)['checkpoint']}"


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_forty_steps_on_the_table_raise_the_speed_of_its_answers(
    start: str, tmp_path: Path
) -> None:
    """At least 3 % of geometric mean speedup is asked; without luck it is ten times as much."""
    out = tmp_path / "run"
    train(
        TrainRequest(start=start, steps=40, backend="cpp", device="cpu", out=out, quiet=True),
        CONFIG,
    )
    found = rows(out)
    rewards = [row["reward_turn_1"] for row in found]
    gain = math.exp(fmean(rewards[-8:]) - fmean(rewards[:4]))
    assert gain >= 1.03, rewards
    assert fmean(row["unread_policy"] for row in found[-8:]) < 0.3
    assert all(row["draw_s"] >= 0 and row["play_s"] > 0 and "learn_s" in row for row in found)


def test_a_model_whose_answers_no_table_holds_is_refused(tmp_path: Path) -> None:
    request = TrainRequest(start="nano", steps=1, device="cpu", out=tmp_path / "run", quiet=True)
    with pytest.raises(UsageError, match="nano writes kernels, and a table holds plans"):
        train(request, CONFIG)
    assert not (tmp_path / "run").exists(), "the next command may have the same --out"


@pytest.mark.slow
def test_a_table_gives_the_tasks_to_train_and_to_validate_on(tmp_path: Path) -> None:
    with TaskSampler(CONFIG, "triton", "cpu", tmp_path) as draw:
        drawn = draw.step(0)
        assert len(drawn) == 3 and {one.backend for one in drawn} == {"cpp"}, (
            "the table's, not the run's"
        )
        assert len(draw.validation()) == 6, "a small table has no task to spare"
    known = list(read_table(TABLE))
    many = [
        row.model_copy(update={"task": row.task.model_copy(update={"id": f"{row.task.id}{n}"})})
        for row in known
        for n in range(5)
    ]
    held = table_tasks.held_out(many)
    assert len(held) == 6 and held == table_tasks.held_out(many[::-1])


def test_a_resumed_run_mixes_in_the_rows_that_an_uninterrupted_one_would(tmp_path: Path) -> None:
    tokens = Tokens(prompt=(1, 2), completion=(3, 4), logprobs=(-0.1, -0.2))
    task = next(iter(read_table(TABLE))).task
    with RunFolder.open(
        tmp_path / "run", command="train", name="t", argv=(), config=CONFIG, resume=False
    ) as run:
        whole = ReplayBuffer(run, 2, 0)
        for step in range(4):
            turn = Turn(completion="x", tokens=tokens, advantage=1.0 + step)
            episode = Episode(
                task=task, step=step, traces=(Trace(role="policy", rollout=0, turns=(turn,)),)
            )
            save_step(run, step, [episode])
            whole.add([episode])
        assert [row.advantage for row in whole.rows()] == [3.0, 4.0], "the last two steps"
        assert (
            ReplayBuffer(run, 2, 4).rows() == whole.rows() and ReplayBuffer(run, 0, 4).rows() == []
        )
