"""`dvk.score`: the reward of a model's answer, for trainers that are not dvk's.

One function of a task and a text. `Scorer` keeps the judge's processes between calls, judges several answers at a time, and is what
an adapter to another trainer holds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from dvk import backends, tasks
from dvk import config as configuration
from dvk.agents.scored import Scored, candidate, scored
from dvk.config import Config
from dvk.errors import UsageError
from dvk.harness.placement import num_workers
from dvk.harness.queue import JudgeQueue, default_contract
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.harness.session.single_flight import SingleFlight
from dvk.records import Candidate, Device, Task, content_hash
from dvk.resources import home

Answer = tuple["str | Path", str]
"""A task, as a path or as the text of a task file, and a model's whole answer to it."""

__all__ = ["Answer", "Scored", "Scorer", "score"]


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
    """Judges answers; use as a context manager or `close()` it. Several threads may use it at once.

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
        self._tasks = SingleFlight[Task]()

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
        given = [(self._task(task), text) for task, text in answers]
        found = [candidate(task, self.backend, text) for task, text in given]
        asked = [(task, one) for (task, _), one in zip(given, found) if isinstance(one, Candidate)]
        judged = dict(self._queue.map(asked))
        verdicts = iter([judged[number] for number in range(len(asked))])
        return [
            scored(self.config, text, next(verdicts))
            if isinstance(one, Candidate)
            else scored(self.config, text, None, one)
            for (_, text), one in zip(given, found, strict=True)
        ]

    def _task(self, task: str | Path) -> Task:
        """The task, examined once."""
        key = content_hash(str(task))
        return self._tasks.do(key, lambda: self._examined(task))[0]

    def _examined(self, task: str | Path) -> Task:
        file = str(task_file(task))
        return tasks.load(file, device=self.device, limits=self.config.limits)


def task_file(task: str | Path) -> Path:
    """The file of a task; a text is written to one under `$DVK_HOME/scored`."""
    if isinstance(task, Path) or "\n" not in task:
        return Path(task)
    path = home() / "scored" / f"task_{content_hash(task)}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():  # whole or not at all: other threads and processes read it
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, encoding="utf-8", delete=False
        ) as new:
            new.write(task)
        os.replace(new.name, path)
    return path
