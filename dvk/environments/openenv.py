"""OpenEnv: `uvicorn dvk.environments.openenv:app --port 8000`, and its client `KernelEnv`. Needs `pip install 'dvk[openenv]'`.

    reset(split=, index=)   the task and the first question to the policy; without an index, that of the seed
    step(KernelAction)      reward and feedback of an answer
    state                   step_count, task, split, best reward

The policy's machine has the question and the feedback only: tasks are examined and answers judged on the server, or where
$DVK_SCORE_URL says. The server's settings are environment variables:

    DVK_TASKS   the source of tasks (`generated`, a folder; see `dvk.interop.problem_sets`)
    DVK_TURNS   answers an episode, 4
"""

from __future__ import annotations

import os
import uuid
from functools import cache
from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import Field

from dvk.environments.episode import Episode
from dvk.errors import UsageError
from dvk.interop.problem_sets import GENERATED, Problem, ProblemSet
from dvk.taskgen import Split

NAME = "dvk"
SESSIONS = 256
"""Episodes at a time."""
ANSWER_S = 900.0
"""Longest wait for one answer's reward."""


class KernelAction(Action):
    """An answer."""

    code: str = Field(description="A file with `ModelNew`, or the model's whole answer.")


class KernelObservation(Observation):
    """The question at the start, then the feedback."""

    text: str = Field(description="The next message to the policy.")
    task: str = Field(description="The task's name.")
    split: str = Field(description="train or heldout.")
    right: bool = Field(False, description="The answer passed every check.")
    speedup: float | None = Field(None, description="Reference time / the answer's time.")
    terms: dict[str, float] = Field(default_factory=dict, description="Terms of the reward.")


class KernelState(State):
    """Where the episode is."""

    task: str | None = None
    split: str | None = None
    turns: int = 0
    best_reward: float = 0.0


@cache
def problem_set() -> ProblemSet:
    """The server's tasks.

    Raises:
        UsageError: there are none.
    """
    return ProblemSet(os.environ.get("DVK_TASKS", GENERATED))


class KernelEnvironment(Environment):
    """One session. Splits are OpenEnv's: a trainer lists and resets `train` and `heldout` apart."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._problem: Problem | None = None
        self._episode: Episode | None = None
        self._id: str | None = None

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: Split = "train",
        index: int | None = None,
        **others: Any,
    ) -> KernelObservation:
        """Begin with a task.

        Args:
            seed: position of the task, modulo their number, where `index` is not given.
            episode_id: name of the episode; by default a random one.
            split: train or heldout.
            index: position of the task in its split.
            others: not read.

        Raises:
            UsageError: no such split or task.
        """
        del others
        known = problem_set()
        count = known.count(split)
        position = (seed or 0) % max(count, 1) if index is None else index
        if not 0 <= position < count:
            raise UsageError(f"`{split}` has {count} tasks, none at {position}", "reset another")
        self._problem = problem = known.at(split, position)
        self._episode = Episode(problem.task, int(os.environ.get("DVK_TURNS", "4")))
        self._id = episode_id or uuid.uuid4().hex
        return KernelObservation(text=problem.prompt, task=problem.name, split=problem.split)

    def step(
        self,
        action: KernelAction,
        timeout_s: float | None = None,
        split: Split = "train",
        index: int | None = None,
        **others: Any,
    ) -> KernelObservation:
        """Score an answer.

        Args:
            action: the answer.
            timeout_s: not read; the judge has limits.
            split, index: the task, for POST /step, which has no session.
            others: not read.

        Raises:
            UsageError: there is no episode, or it has ended.
            DvkError: the task cannot be used, or the machine cannot judge.
        """
        del timeout_s, others
        if self._problem is None and index is not None:
            self.reset(split=split, index=index)
        if self._problem is None or self._episode is None:
            raise UsageError("no task", "reset first; POST /step takes `split` and `index` besides")
        scored = self._episode.answer(action.code)
        return KernelObservation(
            text=scored.feedback,
            task=self._problem.name,
            split=self._problem.split,
            right=scored.right,
            speedup=scored.speedup,
            terms=dict(scored.terms),
            reward=scored.reward,
            done=self._episode.done,
        )

    @property
    def state(self) -> KernelState:
        """Where the episode is."""
        problem, episode = self._problem, self._episode
        return KernelState(
            episode_id=self._id,
            step_count=len(episode.scores) if episode else 0,
            task=problem.name if problem else None,
            split=problem.split if problem else None,
            turns=episode.turns if episode else 0,
            best_reward=episode.reward if episode else 0.0,
        )

    # ------------------------------------------------------------ OpenEnv's task API

    def list_splits(self) -> list[dict[str, str]]:
        """Both splits; held-out tasks are OpenEnv's type `test`."""
        return [{"name": "train", "type": "train"}, {"name": "heldout", "type": "test"}]

    def num_tasks(self, split: Split) -> int:
        """Tasks of a split; 2^40 for the generator."""
        return problem_set().count(split)

    def get_task(self, split: Split, index: int) -> dict[str, Any]:
        """One task without its text."""
        return {"name": problem_set().at(split, index).name, "split": split, "index": index}

    def list_tasks(self, split: Split) -> list[dict[str, Any]]:
        """The first thousand tasks of a split."""
        return self.get_task_range(split, 0, 1000)

    def get_task_range(
        self, split: Split, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        """Tasks of a split from `start` to before `stop`."""
        places = range(self.num_tasks(split))[slice(start, stop)]
        return [self.get_task(split, index) for index in places]


class KernelEnv(EnvClient[KernelAction, KernelObservation, KernelState]):
    """The client: `KernelEnv(base_url="http://host:8000")`, async, or `.sync()`."""

    def __init__(self, base_url: str, **named: Any):
        super().__init__(base_url, **{"message_timeout_s": ANSWER_S, **named})

    def _step_payload(self, action: KernelAction) -> dict[str, Any]:
        return {"code": action.code}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[KernelObservation]:
        reward, done = payload.get("reward"), payload.get("done", False)
        seen = KernelObservation(**payload.get("observation", {}), reward=reward, done=done)
        return StepResult(observation=seen, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> KernelState:
        return KernelState(**payload)


app = create_app(
    KernelEnvironment,
    KernelAction,
    KernelObservation,
    env_name=NAME,
    max_concurrent_envs=SESSIONS,
    state_cls=KernelState,
)
