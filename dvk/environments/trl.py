"""TRL: a reward function, and an environment, of GRPOTrainer and RLOOTrainer.

    GRPOTrainer(model, reward_funcs=kernel_reward, train_dataset=…, eval_dataset=…)
    GRPOTrainer(model, environment_factory=KernelEnvironment, train_dataset=…, eval_dataset=…)

Rows have the columns `prompt`, `task` (a path of a task file, or its text) and `split`; `rows` makes them. With training tasks in one
data set and held-out ones in the other, TRL logs them as `reward` and `eval_reward`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dvk.environments import shared_scorer
from dvk.environments.episode import Episode
from dvk.interop.problem_sets import GENERATED, Part, ProblemSet


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


class KernelEnvironment:
    """One conversation in which the model submits files by a tool; the best submission's reward counts."""

    turns = 4
    """Most submissions; a subclass changes it."""

    def reset(self, **columns: Any) -> str | None:
        """Begin with the row's task.

        Args:
            columns: the row; `task` is read.
        """
        self._episode = Episode(columns["task"], self.turns)
        return (
            f"\n\nCall `submit` with the file, up to {self.turns} times; the best version counts."
        )

    def submit(self, code: str) -> str:
        """
        Check a file with `ModelNew` against the reference, and time it.

        Args:
            code: The whole Python file.

        Returns:
            What was found: errors, or the speedup.
        """
        if self._episode.done:
            return f"All {self.turns} submissions are used."
        return self._episode.answer(code).feedback

    def get_reward(self) -> float:
        """The best submission's reward; 0 if there is none."""
        return self._episode.reward


def rows(source: str = GENERATED, split: Part = "train", **named: Any) -> Iterator[dict[str, Any]]:
    """Rows for `datasets.Dataset.from_list` or `IterableDataset.from_generator`.

    Args:
        source: `generated:COUNT`, a task file or a folder of them; `generated` never ends.
        split: train, heldout or any.
        named: see `ProblemSet`.

    Raises:
        UsageError: no such source or split.
    """
    for problem in ProblemSet(source, **named).all(split):
        prompt = [{"role": "user", "content": problem.prompt}]
        yield {"prompt": prompt, "task": problem.task, "split": problem.split, "name": problem.name}
