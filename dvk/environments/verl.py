"""verl: `reward.custom_reward_function.path=…/dvk/environments/verl.py reward.custom_reward_function.name=compute_score`.

Rows have `reward_model.ground_truth`: a path of a task file, or its text. `dvk convert TASKS rows.parquet --to prompts` writes such rows;
verl's metrics are apart by their `data_source`: dvk_train, dvk_heldout.
"""

from __future__ import annotations

from typing import Any

from dvk.environments import shared_scorer


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    details: bool = True,
    **named: Any,
) -> dict[str, float] | float:
    """The score of one answer: `score`, `right` (1 or 0) and `speedup` (0: not timed); verl wants the same keys of every answer.

    Args:
        data_source: where the row is from; not read.
        solution_str: the model's answer.
        ground_truth: the task.
        extra_info: not read.
        details: False gives the score alone: `verl.trainer.main_eval` wants it, by `reward_kwargs`.
        named: not read.

    Raises:
        DvkError: the task cannot be used, or the machine cannot judge.
    """
    del data_source, extra_info, named
    scored = shared_scorer().score(ground_truth, solution_str)
    if not details:
        return scored.reward
    return {"score": scored.reward, "right": float(scored.right), "speedup": scored.speedup or 0.0}
