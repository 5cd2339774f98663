"""`dvk.score`: the reward of a model's answer, for trainers that are not dvk's.

One function of a task and a text. `Scorer` keeps the judge's processes between calls, judges several answers at a time, and is what
an adapter to another trainer holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from dvk import backends, tasks
from dvk import config as configuration
from dvk.agents import dialects, policy
from dvk.agents.task_context import TaskContext
from dvk.backbone import Completion
from dvk.config import Config
from dvk.errors import UsageError
from dvk.harness.placement import num_workers
from dvk.harness.queue import JudgeQueue, default_contract
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.records import Candidate, Device, Task, Turn, Verdict, content_hash
from dvk.resources import home
from dvk.rewards import rewarded

Answer = tuple["str | Path", str]
"""A task, as a path or as the text of a task file, and a model's whole answer to it."""


@dataclass(frozen=True)
class Scored:
    """The score of one answer.

    Attributes:
        reward: weighted sum of the terms (`rewards.weights`).
        terms: each term's value, by name.
        feedback: what was found, in words for the next turn; it names no reward.
        verdict: the judge's; None if the answer has no readable code.
        malformed: why it has none.
    """

    reward: float
    terms: Mapping[str, float]
    feedback: str
    verdict: Verdict | None = field(default=None, repr=False)
    malformed: str | None = None


def score(
    task: str | Path,
    text: str,
    *,
    backend: str = "auto",
    device: Literal["cpu", "cuda"] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Scored:
    """Judge one answer. For many, keep a `Scorer`: starting the judge takes seconds.

    Args: see `Scorer` and `Scorer.score`.

    Raises:
        DvkError: the task cannot be used, or the machine cannot judge.
    """
    with Scorer(backend=backend, device=device, workers=1, settings=settings) as scorer:
        return scorer.score(task, text)


class Scorer:
    """Judges answers; use as a context manager or `close()` it.

    Args:
        backend: what answers are written in: auto, triton, cuda or cpp.
        device: cpu or cuda; None: cuda if there is a GPU.
        workers: answers judged at a time; None: as many as the machine serves.
        settings: other settings by dotted key, e.g. `{"rewards.weights.coverage": 0}`.
        config: all settings, instead of the defaults.

    Raises:
        UsageError: unknown back end, device or setting.
    """

    def __init__(
        self,
        *,
        backend: str = "auto",
        device: Literal["cpu", "cuda"] | None = None,
        workers: int | None = None,
        settings: Mapping[str, Any] | None = None,
        config: Config | None = None,
    ):
        if device not in (None, "cpu", "cuda"):
            raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")
        self.config: Config = configuration.changed(config or Config(), dict(settings or {}))
        self.device: Device = device or backends.default_device()
        self.backend = backends.pick(backend, self.device)
        spec = JudgeSpec(
            require_kernels=self.config.rollout.require_kernels,
            contract=default_contract(self.device),
        )
        at_once = workers or num_workers(self.config, self.device)
        self._queue: JudgeQueue[int] = JudgeQueue(at_once, self.config, spec=spec).__enter__()
        self._dialect = dialects.get("chat")
        self._tasks: dict[str, Task] = {}

    def __enter__(self) -> Scorer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the judge's processes."""
        self._queue.close()

    def score(self, task: str | Path, text: str) -> Scored:
        """The score of one answer.

        Args:
            task: a task file, or its text.
            text: the model's whole answer, thinking included; its code defines `ModelNew`.

        Raises:
            DvkError: the task cannot be used, or the machine cannot judge.
        """
        return self.score_all([(task, text)])[0]

    def score_all(self, answers: Sequence[Answer]) -> list[Scored]:
        """The scores of several answers, in their order, judged side by side.

        Raises:
            DvkError: see `score`.
        """
        read = [self._read(task, text) for task, text in answers]
        asked = [(subject.task, found) for subject, found in read if isinstance(found, Candidate)]
        judged = dict(self._queue.map(asked))
        verdicts = iter([judged[number] for number in range(len(asked))])
        return [
            self._scored(text, next(verdicts))
            if isinstance(found, Candidate)
            else self._scored(text, None, found)
            for (_, found), (_, text) in zip(read, answers, strict=True)
        ]

    def _read(self, task: str | Path, text: str) -> tuple[TaskContext, Candidate | str]:
        subject = TaskContext(self._task(task), None, self.backend)
        answer = Completion(text=text, finish="stop")
        return subject, policy.read(self._dialect, subject, answer, "user", (), "")

    def _scored(self, text: str, verdict: Verdict | None, malformed: str | None = None) -> Scored:
        turn = Turn(completion=text, finish="stop", verdict=verdict, malformed=malformed)
        found = rewarded(turn, self.config.rewards)
        said = self._dialect.feedback(verdict, malformed, None, self.config.agents)
        assert found.reward is not None, "it was computed"
        return Scored(found.reward, found.reward_terms, said, verdict, malformed)

    def _task(self, task: str | Path) -> Task:
        """The task, examined once."""
        path = Path(task) if isinstance(task, Path) or "\n" not in task else None
        key = content_hash(str(task))
        if key not in self._tasks:
            if path is None:
                path = home() / "scored" / f"task_{key}.py"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(str(task), encoding="utf-8")
            self._tasks[key] = tasks.load(str(path), device=self.device, limits=self.config.limits)
        return self._tasks[key]
