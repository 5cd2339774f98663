"""What REINFORCE on a table of measured plans gains, by seed, beside what is fitted: run it by hand, no GPU is needed.

    python -m tests.benchmarks.reinforce_on_table data/measured/train-h200.jsonl.gz --heldout data/measured/heldout-h200.jsonl.gz

For each seed `dvk sft choose` makes a model that answers with the composer's own plan (`start`), and the weighted fit of it (`fit`). Then
`dvk train --judge table:FILE` with the recipe `small` goes on from both. A row says what the likeliest plan is worth, and what a drawn one
is worth on average: exact, since a task's plans are scored. `closed` is the share of ln(best plan / default plan), so 0 is the composer's
default and 1 the fastest measured plan, which is too fast by the luck of the fastest. Intervals are 95 % over tasks.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from dvk import config as configuration
from dvk.agents.dialects.nano import ask
from dvk.backbone import choosing, open_backbone
from dvk.backbone.choosing import AnswerList
from dvk.backbone.hf import HfBackbone
from dvk.cli import recipes
from dvk.config import Config, changed
from dvk.pipelines.sft.choice_course import known_plans
from dvk.pipelines.sft.choice_figures import Chosen, figures
from dvk.pipelines.sft.choose import ChooseRequest, choose
from dvk.pipelines.train import TrainRequest, table_tasks, train
from dvk.records.measured import MeasuredTask, read_table, write_table

TOKENS = 16384
"""Tokens of a pass that scores."""
PLAYED = {
    "rollout.turns": 1,
    "rollout.schemes": 0,
    "rollout.explored": 0,
    "rollout.summaries": 0,
    "trials.per_task": 0,
    "train.validate_every": 0,
    "train.keep_every": 1000,
    "learning.pack_tokens": 2048,
}
"""One turn without skills."""


@torch.no_grad()
def worth(model: HfBackbone, rows: Sequence[MeasuredTask]) -> dict[str, Any]:
    """Figures of the likeliest plans, with `drawn`, the geometric mean speedup of drawn ones, and `entropy` in nats."""
    asked, picked, drawn, spread = [], [], [], []
    for row in rows:
        answers = [model.encode_answer(text) for text in row.answers]
        asked.append(AnswerList(model.encode(ask(row.question)), answers))
    for group in choosing.batches(asked, TOKENS):
        batch = choosing.lay_out([asked[i] for i in group], model.model.device)
        found = choosing.of_answers(choosing.scores(model.model, batch), batch).log_softmax(-1)
        for i, logs in zip(group, found.tolist(), strict=True):
            plans = {plan.text: plan for plan in known_plans(rows[i])}
            texts = rows[i].answers
            best = max(range(len(texts)), key=lambda k, logs=logs: logs[k])
            picked.append((rows[i], Chosen(texts[best], plans[texts[best]])))
            shares = [(math.exp(log), plans[text]) for log, text in zip(logs, texts)]
            drawn.append(sum(p * math.log(one.speedup or 0.5) for p, one in shares))
            spread.append(-sum(p * math.log(p) for p, _ in shares if p > 0))
    return {**figures(picked), "drawn": math.exp(fmean(drawn)), "entropy": fmean(spread)}


def told(name: str, found: dict[str, Any]) -> None:
    """Print a row."""
    lo, hi = found["closed_interval"]
    print(
        f"{name}: likeliest {found['geomean']:.3f} (default {found['default']:.3f}, best {found['oracle']:.3f}), "
        f"closed {found['closed']:.0%} [{lo:.0%}, {hi:.0%}], right {found['right']:.1%}; drawn {found['drawn']:.3f}, "
        f"entropy {found['entropy']:.2f}; {found['tasks']} tasks",
        flush=True,
    )


def settings(given: argparse.Namespace) -> tuple[Config, Config]:
    """Those of the fit and of the training."""
    tiny = {"choose.rate": 2e-3, "choose.batch_tokens": 4096} if given.size == "tiny" else {}
    fitting = changed(
        Config(),
        {
            "fit.size": given.size,
            "choose.start_epochs": 10,
            "choose.fit_epochs": given.epochs,
            "choose.reward_epochs": 0,
            "choose.folds": 3,
            "learning.pack_tokens": 4096,
            **tiny,
        },
    )
    playing = configuration.load(
        settings=[
            f"remote.judge=table:{given.table}",
            f"train.tasks_per_step={given.tasks}",
            f"rollout.rollouts={given.rollouts}",
            *(f"{key}={value}" for key, value in PLAYED.items()),
            *given.set,
        ],
        recipe=recipes.read("train", "small"),
    )
    return fitting, playing


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--heldout", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/reinforce-on-table"))
    parser.add_argument("--start", default="nano-from-zero")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=16, help="tasks of a step")
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--stages", nargs="+", default=["start", "fit"], help="to go on from")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], help="settings of dvk train")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    fitting, playing = settings(given)
    rows = list(read_table(given.table))
    kept = {row.task.id for row in table_tasks.held_out(rows)} if len(rows) >= 10 else set()
    parts = {
        "trained": [row for row in rows if row.task.id not in kept],
        "kept": [row for row in rows if row.task.id in kept],
        "held out": list(read_table(given.heldout)) if given.heldout is not None else [],
    }

    def report(name: str, checkpoint: str | Path) -> None:
        model = open_backbone(f"nano:{checkpoint}", fitting, device=device)
        assert isinstance(model, HfBackbone), "a nano is local"
        for part, some in parts.items():
            if some:
                told(f"{name}, {part}", worth(model, some))

    given.out.mkdir(parents=True, exist_ok=True)
    write_table(given.out / "trained.jsonl.gz", parts["trained"])
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        began, folder = time.perf_counter(), given.out / f"choose-{seed}"
        request = ChooseRequest(
            tables=(given.out / "trained.jsonl.gz",), start=given.start, out=folder, resume=True
        )
        found = choose(request, changed(fitting, {"seed": seed}))
        print(f"seed {seed}: fitted in {time.perf_counter() - began:.0f} s", flush=True)
        for stage in given.stages:
            start = found[stage]["checkpoint"]
            report(f"{stage}, seed {seed}", start)
            began, out = time.perf_counter(), given.out / f"{stage}-{seed}"
            asked = TrainRequest(
                start=f"nano:{start}", steps=given.steps, device=device, out=out, quiet=True
            )
            done = train(asked, changed(playing, {"seed": seed}))
            steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            rewards = [step["reward_turn_1"] for step in steps if "reward_turn_1" in step]
            gain = math.exp(fmean(rewards[-8:]) - fmean(rewards[:8]))
            print(
                f"seed {seed}: {given.steps} steps in {time.perf_counter() - began:.0f} s, reward of drawn plans x{gain:.3f} "
                "(last eight steps over first eight)",
                flush=True,
            )
            report(f"{stage} and RL, seed {seed}", out / done["checkpoint"])


if __name__ == "__main__":
    main()
