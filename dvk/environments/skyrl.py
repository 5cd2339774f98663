"""SkyRL-Gym: the text environment `dvk`. Needs `pip install 'dvk[skyrl]'`.

    import dvk.environments.skyrl            # registers `dvk`, in the Ray task that runs SkyRL's trainer
    environment.env_class=dvk data.train_data="['rows_train.parquet']" data.val_data="['rows_heldout.parquet']"

`dvk convert generated:2000 rows_train.parquet --to prompts` writes the rows. `generator.max_turns` is the number of answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.envs.registration import register, registry

from dvk.environments.episode import Episode

NAME = "dvk"


class KernelEnv(BaseTextEnv):
    """One conversation about one task. A step's reward is that answer's.

    Args:
        env_config: not read.
        extras: the row, whose `reward_spec.ground_truth` is the task, and `max_turns`, the number of answers, from SkyRL.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None):
        super().__init__()
        del env_config
        row = extras or {}
        self.max_turns = int(row.get("max_turns", 1))
        self.split = str((row.get("extra_info") or {}).get("split", "train"))
        self.episode = Episode(row["reward_spec"]["ground_truth"], self.max_turns)

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Score an answer.

        Raises:
            DvkError: the task cannot be used, or the machine cannot judge.
        """
        scored = self.episode.answer(action)
        self.turns += 1
        message = {"role": "user", "content": scored.feedback}
        return BaseTextEnvStepOutput(
            observations=[] if self.episode.done else [message],
            reward=scored.reward,
            done=self.episode.done,
            metadata={"split": self.split, "right": scored.right, **scored.terms},
        )

    def get_metrics(self) -> dict[str, float]:
        """Numbers of the episode, the split in their names."""
        return {f"{self.split}/{name}": value for name, value in self.episode.metrics().items()}


if NAME not in registry:
    register(id=NAME, entry_point="dvk.environments.skyrl:KernelEnv")
