"""verl: `custom_reward_function.path=…/dvk/environments/verl.py custom_reward_function.name=compute_score`.

Rows have `reward_model.ground_truth`: a path of a task file, or its text. `dvk convert TASKS rl.parquet` writes such rows.
"""

from __future__ import annotations

from typing import Any

from dvk.environments import shared_scorer


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    **named: Any,
) -> dict[str, Any]:
    """The score of one answer: `score`, each term of it, and whether the kernel was right.

    Args:
        data_source: where the row is from; not read.
        solution_str: the model's answer.
        ground_truth: the task.
        extra_info: not read.
        named: not read.

    Raises:
        DvkError: the task cannot be used, or the machine cannot judge.
    """
    del data_source, extra_info, named
    scored = shared_scorer().score(ground_truth, solution_str)
    right = scored.verdict is not None and scored.verdict.status.value == "ok"
    return {"score": scored.reward, "right": float(right), **scored.terms}
