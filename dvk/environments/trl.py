"""TRL: `GRPOTrainer(reward_funcs=dvk.environments.trl.kernel_reward, …)`, likewise RLOOTrainer.

The dataset has the columns `prompt` and `task`: a path of a task file, or its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dvk.environments import shared_scorer


def kernel_reward(completions: Sequence[Any], task: Sequence[str], **columns: Any) -> list[float]:
    """The reward of each completion.

    Args:
        completions: texts, or conversations: lists of messages whose last is the model's.
        task: each one's task, from the dataset.
        columns: other columns, which are not read.

    Raises:
        DvkError: a task cannot be used, or the machine cannot judge.
    """
    del columns
    answers = [(one, text_of(said)) for one, said in zip(task, completions, strict=True)]
    return [scored.reward for scored in shared_scorer().score_all(answers)]


def text_of(completion: Any) -> str:
    """The model's text in a completion as TRL passes it."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
