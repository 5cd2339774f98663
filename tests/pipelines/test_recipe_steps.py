"""The first step of the recipes for large models, on random weights: a small Qwen3 with dvk's own engine or a real vLLM."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dvk import config as configuration
from dvk.cli import recipes
from dvk.config import Config, changed
from dvk.pipelines.sft.stages import SftRequest, sft
from dvk.pipelines.sft.taught import EPISODES, EXAMPLES
from dvk.pipelines.train import Training, TrainRequest, train
from dvk.resources import resource
from tests.backbone.vllm_environment import settings, started, use_little
from tests.benchmarks import random_model

TASKS = resource("data", "tasks", "examples")
FEW: dict[str, Any] = {
    "served.rollouts": None,
    "train.tasks_per_step": 2,
    "train.refill": 0,
    "train.validate_every": 0,
    "rollout.schemes": 0,
    "rollout.rollouts": 2,
    "rollout.turns": 1,
    "rollout.summaries": 0,
    "rollout.policy_tokens": 24,
    # Random weights write nothing that can be read: the penalty alone is learned.
    "credit.advantage": "reinforce",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "qwen3"
    return random_model.write("tiny", folder, max_position_embeddings=16384)


def settled(command: str, recipe: str, more: dict[str, Any]) -> Config:
    return changed(configuration.load(recipe=recipes.read(command, recipe)), more)


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [
        "qwen3-8b",
        pytest.param("qwen3-14b", marks=pytest.mark.hand),
        pytest.param("davinci-continue", marks=pytest.mark.hand),
    ],
)
def test_a_killed_first_step_is_made_again(
    recipe: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settled("train", recipe, FEW)
    asked = TrainRequest(
        start=f"hf:{model}",
        steps=2,
        tasks=TASKS,
        backend="cpp",
        device="cpu",
        out=tmp_path / "run",
        quiet=True,
    )

    class Killed(BaseException):
        pass

    made = Training.step

    def one(training: Training, *, validates: bool) -> dict[str, Any]:
        if training.state.step == 1:
            raise Killed
        return made(training, validates=validates)

    monkeypatch.setattr(Training, "step", one)
    with pytest.raises(Killed):
        train(asked, config)
    monkeypatch.undo()
    assert train(dataclasses.replace(asked, resume=True), config)["steps"] == 2
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert row["rows"] == 4 and row["kept"] == 1.0 and row["grad_norm"] > 0
        assert ("kl" in row) == bool(config.objective.kl)
    kept = tmp_path / "run" / "checkpoints" / "step_000002"
    adapter = json.loads((kept / "adapter_config.json").read_text())
    assert adapter["r"] == 16 and adapter["base_model_name_or_path"] == str(model)


@pytest.fixture
def teacher(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str]]:
    """URL and name of a model that a real vLLM serves."""
    use_little(monkeypatch)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    options = "--dtype float32 --enforce-eager --max-num-seqs 16 --max-model-len 8192"
    # Seeds and a prompt that is read in parts end vLLM 0.32 on a CPU: its generators there have no offset.
    options += " --max-num-batched-tokens 65536"
    config = settings(served={"arguments": options})
    server = started(model, config, tmp_path / "server.log")
    yield f"{server.url}/v1", str(model)
    server.stop()


@pytest.mark.hand
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_served_model_plays_as_the_teacher(teacher: tuple[str, str], tmp_path: Path) -> None:
    url, name = teacher
    config = settled(
        "sft",
        "teacher",
        {
            "backbone.endpoint_url": url,
            "collect.played": 2,
            "rollout.schemes": 0,
            "rollout.rollouts": 2,
            "rollout.turns": 2,
            "rollout.summaries": 0,
            "rollout.policy_tokens": 64,
        },
    )
    asked = SftRequest(
        stages=("collect",),
        backends=("cpp",),
        workers=1,
        out=tmp_path / "run",
        teacher=f"endpoint:{name}",
    )
    told = sft(asked, config)["collect"]
    lines = (tmp_path / "run" / EPISODES).read_text().splitlines()
    episodes = [json.loads(line) for line in lines]
    turns = [turn for one in episodes for trace in one["traces"] for turn in trace["turns"]]
    assert len(episodes) == 2 and len(turns) == 8, told
    assert all(turn["completion"] and turn["malformed"] for turn in turns)
    assert not (tmp_path / "run" / EXAMPLES).exists(), "what is wrong is no example"
    assert told["prompt_tokens"] > 0 and told["completion_tokens"] == 8 * 64
    again = sft(dataclasses.replace(asked, resume=True), config)["collect"]
    assert again["played"] == 2 and again["prompt_tokens"] == 0, "nothing is played twice"
    assert len((tmp_path / "run" / EPISODES).read_text().splitlines()) == 2
