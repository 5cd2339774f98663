"""verifiers (prime-rl, the Environments Hub): the taskset and environment `dvk-kernels`. Needs `pip install 'dvk[verifiers]'`.

    vf-eval dvk-kernels --env.taskset.split heldout -m MODEL -n 20

The policy answers, reads the judge's feedback and answers again. Judging is on the machine of the environment, or where
$DVK_SCORE_URL says, and never in the policy's runtime. The reward is the best turn's; every trace carries its `split`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import verifiers.v1 as vf

from dvk.environments.episode import Episode
from dvk.interop.problem_sets import ENDLESS, GENERATED, ProblemSet

ID = "dvk-kernels"


class KernelData(vf.TaskData):
    """One task."""

    reference: str
    """Text of the task file."""
    split: Literal["train", "heldout"]


class KernelTask(vf.Task[KernelData, vf.State, vf.TaskConfig]):
    """Scored by `KernelEnv`, turn by turn."""


class KernelTasksetConfig(vf.TasksetConfig):
    """`--env.taskset.*`."""

    source: str = GENERATED
    """`generated`, `generated:COUNT`, a task file or a folder of them."""
    split: Literal["train", "heldout"] = "train"
    seed: int = 0
    """Of the generator."""
    backend: str = "auto"
    """What answers are to be written in: auto, triton, cuda or cpp."""
    device: Literal["cpu", "cuda"] | None = None
    """Of the judge; None: cuda if this machine has a GPU."""


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """The tasks of one split; without end for the generator."""

    def __init__(self, config: KernelTasksetConfig) -> None:
        super().__init__(config)
        self.problems = ProblemSet(
            config.source, seed=config.seed, backend=config.backend, device=config.device
        )
        self.INFINITE = self.problems.count(config.split) >= ENDLESS

    def load(self) -> Iterator[KernelTask]:
        """The tasks in order."""
        for problem in self.problems.all(self.config.split):
            data = KernelData(
                name=problem.name,
                prompt=problem.prompt,
                reference=problem.task,
                split=problem.split,
            )
            yield KernelTask(data, self.config.task)


class KernelEnvConfig(vf.EnvConfig):
    """`--env.*`."""

    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"})
    """The policy: a chat without tools."""
    turns: int = 4
    """Most answers."""


class KernelEnv(vf.Env[KernelEnvConfig]):
    """One conversation about one task."""

    async def run(self, task: Any, agents: Any) -> None:
        """Play it: each answer is judged, and its feedback is the next message.

        Raises:
            DvkError: the task cannot be used, or the machine cannot judge.
        """
        episode = Episode(task.data.reference, self.config.turns)
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                scored = await asyncio.to_thread(episode.answer, segment.last_reply)
                if episode.done:
                    break
                segment = await interaction.turn(scored.feedback)
        interaction.trace.record_reward("kernel", episode.reward, 1.0)
        interaction.trace.record_metrics(episode.metrics())


def load_environment(turns: int = 4, **taskset: Any) -> KernelEnv:
    """The environment, for a program.

    Args:
        turns: most answers an episode.
        taskset: fields of `KernelTasksetConfig`.
    """
    named = {"taskset": {"id": ID, **taskset}, "turns": turns}
    return vf.load_environment(vf.resolve_env_config(named))


__all__ = [
    "KernelData",
    "KernelEnv",
    "KernelEnvConfig",
    "KernelTask",
    "KernelTaskset",
    "KernelTasksetConfig",
    "load_environment",
]
