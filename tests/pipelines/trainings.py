"""A small training: its settings, tasks and model."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from dvk import nanolang, tasks
from dvk.agents import TaskContext, dialects
from dvk.composer.capture.export import trace
from dvk.config import Config
from dvk.learn.examples import Example, ExampleTask
from dvk.learn.sources import InMemory
from dvk.pipelines.sft.fit import fit
from dvk.pipelines.train import TrainRequest
from dvk.runs import RunFolder

SOURCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * {factor}) + x

def get_inputs():
    return [torch.randn({rows}, 96)]

def get_init_inputs():
    return []
"""

CONFIG = Config.model_validate(
    {
        "seed": 5,
        "train": {
            "tasks_per_step": 2,
            "validate_every": 0,
            "rate": 1e-3,
            "warmup": 2,
            "keep_every": 100,
        },
        "rollout": {
            "schemes": 1,
            "rollouts": 3,
            "turns": 1,
            "summaries": 0,
            "batch": 8,
            "judges": 1,
            "repair_attempts": 0,
        },
        "judge": {"search_s": 0.05, "num_seeds": 1, "search_pairs": 5},
        "fit": {"size": "tiny", "epochs": 30, "save_every": 1000, "held_out": 0.0},
        "learning": {
            "rate": 5e-3,
            "pack_tokens": 640,
            "batch_tokens": 1024,
            "micro_packs": 1,
            "warmup": 0.05,
        },
        "credit": {
            "mismatch": 0.01,
            "shrink_noise": False,
        },  # a busy clock would leave nothing to learn
        "objective": {"kl": 0.05},
    }
)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("problems")
    for rows, factor in ((40, 2.0), (56, 3.0)):
        (folder / f"chain_{rows}.py").write_text(SOURCE.format(rows=rows, factor=factor))
    return folder


@pytest.fixture(scope="module")
def taught(problems: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that has learnt two ways of writing each problem by heart."""
    dialect = dialects.get("compact")
    found: list[Example] = []
    for path in sorted(problems.glob("*.py")):
        task = tasks.load(str(path), device="cpu", limits=CONFIG.limits)
        subject = TaskContext(task, trace(task), "cpp")
        assert subject.captured is not None
        asked = dialect.policy(subject, (), CONFIG.agents)
        texts = sorted(
            {v.text for v in nanolang.variants(subject.captured, "cpp", random.Random(0), 12)},
            key=len,
        )[:2]
        for text in texts:
            messages = (*asked.messages, {"role": "assistant", "content": text})
            found.append(
                Example.new(
                    kind="policy",
                    messages=messages,
                    task=ExampleTask(id=task.id),
                    origin="test",
                    backend="cpp",
                )
            )

    folder = tmp_path_factory.mktemp("taught") / "run"
    with RunFolder.open(
        folder, command="sft", name="t", argv=("dvk",), config=CONFIG, resume=False
    ) as run:
        return f"nano:{fit(run, InMemory(found * 8), 'nano-from-zero', CONFIG)['checkpoint']}"


def request(start: str, problems: Path, out: Path, steps: int = 2, **rest: Any) -> TrainRequest:
    return TrainRequest(
        start=start,
        steps=steps,
        tasks=problems,
        backend="cpp",
        device="cpu",
        workers=1,
        out=out,
        quiet=True,
        **rest,
    )


def metrics(run: Path) -> list[dict[str, Any]]:
    """The part that depends neither on clocks nor on an earlier run's verdicts."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in row.items() if not k.endswith("_s") and k != "judged_anew"}
        for row in rows
    ]
