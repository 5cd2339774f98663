"""Validation of the current policy: the same held-out tasks each time, greedy, one turn, with the current library."""

from __future__ import annotations

import json
from typing import Any

from dvk.agents import run_episodes
from dvk.backbone import Backbone
from dvk.config import Config
from dvk.harness.queue import JudgeQueue
from dvk.pipelines.train.state import TrainState
from dvk.pipelines.train.task_sampler import TaskSampler
from dvk.pipelines.train.validations import FOLDER, outcome, outcome_line
from dvk.runs import RunFolder
from dvk.stats import fast_p

THRESHOLDS = ("0", "1", "1.2", "1.5", "2")


def validate(
    run: RunFolder,
    step: int,
    draw: TaskSampler,
    state: TrainState,
    backbone: Backbone,
    config: Config,
    judging: JudgeQueue[Any],
) -> dict[str, Any]:
    """fast_p and the geometric mean speedup on the validation tasks, as `val_…`; each task's result stays in the run.

    Args:
        run: an open run.
        step: steps made.
        draw: the task sampler.
        state: the library.
        backbone: the policy's model.
        config: `rollout`, `train`, and the judge's settings.
        judging: the judge queue.
    """
    rows = []
    for episode in run_episodes(
        state.processes.shard(draw.validation()),
        backbone,
        state.library,
        greedy(config),
        judging=judging,
        step=step,
    ):
        turns = [turn for trace in episode.traces if trace.role == "policy" for turn in trace.turns]
        rows.append(outcome_line(episode.task, turns[0] if turns else None))
    rows = sorted(state.processes.gather(rows), key=lambda row: row["name"])
    run.write_text(
        f"{FOLDER}/step_{step:06d}.jsonl", "".join(json.dumps(row) + "\n" for row in rows)
    )
    scores = fast_p.summary([outcome(row) for row in rows], THRESHOLDS)
    figures = {f"val_fast_{threshold}": share for threshold, share in scores["fast_p"].items()}
    return {**figures, "val_speedup": scores["geomean_kept"], "val_tasks": len(rows)}


def greedy(config: Config) -> Config:
    """One answer a task, the likeliest one, with the skills that the model selects."""
    once = {
        "schemes": 1,
        "null_scheme": False,
        "rollouts": 1,
        "turns": 1,
        "iterations": 1,
        "summaries": 0,
        "explored": 0,
    }
    return config.model_copy(
        update={"rollout": config.rollout.model_copy(update={**once, "temperature": 0.0})}
    )
