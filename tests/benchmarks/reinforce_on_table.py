"""What REINFORCE on a table of measured plans gains, by seed: run it by hand.

    python -m tests.benchmarks.reinforce_on_table data/measured/sample.jsonl.gz --steps 40 --seeds 3

A new model first learns the words: every measured plan of the tasks to train on, each as often. Then `dvk train --judge table:FILE` with
the recipe `small`. The policy's value is exact, no sample: each task's plans are scored, and their log-speeds are weighted by their
probabilities (`value`), or the likeliest counts (`greedy`). `closed` is the greedy gain as a share of ln(best plan / default plan), so 0 is
the composer's default and 1 the fastest measured plan, which is too fast by the luck of the fastest. Intervals are 95 % over tasks.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch

from dvk import config as configuration
from dvk.agents import TaskContext, dialects
from dvk.agents.dialects.plan import space_of
from dvk.backbone import Conversation, ScoringRow, Trainable, open_backbone
from dvk.cli import recipes
from dvk.composer import Plan
from dvk.composer.codegen.base import codegen
from dvk.config import Config, changed
from dvk.learn.examples import Example, ExampleTask
from dvk.learn.sources import InMemory
from dvk.pipelines.sft.fit import fit
from dvk.pipelines.train import TrainRequest, table_tasks, train
from dvk.records.measured import MeasuredPlan, MeasuredTask, read_table
from dvk.rewards.log_speedup import FAILED
from dvk.runs import RunFolder

DRAWS = 2000
"""Bootstrap draws of an interval."""


class Asked:
    """One task: its question, and each plan's text with its log-speed."""

    def __init__(self, row: MeasuredTask, subject: TaskContext):
        self.row, self.question = row, dialects.get("plan").policy(subject, (), Config().agents)
        space, parse = space_of(subject), codegen(row.backend).parse
        found: dict[str, list[float]] = {}
        for plan in row.plans:
            schedules = {name: parse(printed, name) for name, printed in plan.schedule.items()}
            found.setdefault(space.text(Plan(plan.recipes, schedules)), []).append(log_speed(plan))
        self.worth = {text: fmean(values) for text, values in found.items()}
        self.default = log_speed(row.plans[0])
        self.best = max(self.worth.values())

    def examples(self) -> list[Example]:
        """Every plan as an answer."""
        return [
            Example.new(
                kind="policy",
                messages=(*self.question.messages, {"role": "assistant", "content": text}),
                task=ExampleTask(id=self.row.task.id),
                origin="table:benchmark",
                backend=self.row.backend,
            )
            for text in self.worth
        ]


def log_speed(plan: MeasuredPlan) -> float:
    return math.log(max(FAILED, plan.speedup or 0.0))


@torch.no_grad()
def policy_values(backbone: Trainable, asked: Sequence[Asked]) -> list[dict[str, float]]:
    """By task: `value`, `greedy`, and `known`, the probability of all measured plans together."""
    result = []
    for one in asked:
        prompt = backbone.encode(Conversation(messages=one.question.messages))
        rows = [ScoringRow(prompt, backbone.encode_answer(text)) for text in one.worth]
        logs = backbone.logprobs(rows).values.sum(1).tolist()
        shares = [math.exp(log) for log in logs]
        known = sum(shares)
        value = sum(p * w for p, w in zip(shares, one.worth.values(), strict=True)) / known
        greedy = list(one.worth.values())[logs.index(max(logs))]
        result.append({"value": value, "greedy": greedy, "known": known})
    return result


def interval(values: Sequence[float]) -> str:
    """A mean over tasks, with its 95 % bootstrap interval."""
    rng = random.Random(0)
    means = sorted(fmean(rng.choices(values, k=len(values))) for _ in range(DRAWS))
    return f"{fmean(values):.3f} [{means[DRAWS // 40]:.3f}, {means[-DRAWS // 40]:.3f}]"


def told(
    name: str, asked: Sequence[Asked], before: list[dict[str, float]], after: list[dict[str, float]]
) -> None:
    """Print a part's figures."""
    gain = [b["greedy"] - a["greedy"] for a, b in zip(before, after, strict=True)]
    value = [b["value"] - a["value"] for a, b in zip(before, after, strict=True)]
    gap = fmean(one.best - one.default for one in asked)
    print(
        f"  {name}, {len(asked)} tasks: greedy log-speed {fmean(a['greedy'] for a in before):.3f} → "
        f"{fmean(b['greedy'] for b in after):.3f}, gain {interval(gain)}; value gain {interval(value)}; default "
        f"{fmean(one.default for one in asked):.3f}, best {fmean(one.best for one in asked):.3f}; closed "
        f"{fmean(a['greedy'] - o.default for a, o in zip(before, asked, strict=True)) / gap:.2f} → "
        f"{fmean(b['greedy'] - o.default for b, o in zip(after, asked, strict=True)) / gap:.2f}; known "
        f"{fmean(b['known'] for b in after):.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/reinforce-on-table"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--epochs", type=float, default=30)
    parser.add_argument("--tasks", type=int, default=16, help="tasks of a step")
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = {row.task.id: row for row in read_table(given.table)}
    found = table_tasks.read(given.table, workers=2)
    parts = {
        name: [Asked(rows[one.task.id], one) for one in part]
        for name, part in {"trained": found.train, "held out": found.validation}.items()
    }
    base = configuration.load(
        settings=[
            f"remote.judge=table:{given.table}",
            "train.validate_every=0",
            "train.keep_every=1000",
            f"train.tasks_per_step={given.tasks}",
            f"rollout.rollouts={given.rollouts}",
            f"rollout.turns={given.turns}",
            "rollout.schemes=0",
            "rollout.explored=0",
            "rollout.summaries=0",
            "trials.per_task=0",
            "learning.pack_tokens=2048",
            *given.set,
        ],
        recipe=recipes.read("train", "small"),
    )
    fitting = {
        "fit.size": given.size,
        "fit.epochs": given.epochs,
        "fit.held_out": 0.0,
        "learning.warmup": 0.05,
    }
    rate = {"learning.rate": 5e-3 if given.size == "tiny" else 2e-3, "learning.batch_tokens": 16384}
    config = changed(base, {**fitting, **rate})
    began = time.perf_counter()
    with RunFolder.open(
        given.out / "sft", command="sft", name="t", argv=(), config=config, resume=True
    ) as run:
        examples = InMemory([one for asked in parts["trained"] for one in asked.examples()])
        start = f"nano:{fit(run, examples, 'nano-from-zero', config)['checkpoint']}"
    print(
        f"words learned from {len(examples)} plans: {time.perf_counter() - began:.0f} s", flush=True
    )
    model = open_backbone(start, config, device=device)
    assert isinstance(model, Trainable)
    before = {name: policy_values(model, asked) for name, asked in parts.items()}
    for seed in range(given.seeds):
        began, out = time.perf_counter(), given.out / f"seed-{seed}"
        request = TrainRequest(start=start, steps=given.steps, device=device, out=out, quiet=True)
        done = train(request, changed(base, {"seed": seed}))
        spent = time.perf_counter() - began
        steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        stages = {
            name: round(fmean(step.get(name, 0.0) for step in steps[1:]), 2)
            for name in ("draw_s", "play_s", "learn_s", "library_s", "save_s")
        }
        print(f"seed {seed}: {spent:.0f} s, a step {stages}", flush=True)
        model = open_backbone(f"hf:{out / done['checkpoint']}", config, device=device)
        assert isinstance(model, Trainable)
        for name, asked in parts.items():
            told(name, asked, before[name], policy_values(model, asked))


if __name__ == "__main__":
    main()
