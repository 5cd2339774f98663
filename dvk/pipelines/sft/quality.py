"""Executed quality while a model trains: each checkpoint answers some held-out tasks, in a process alongside the training.

The tasks are the generator's held-out compositions under a separate seed: not those that are frozen for the final
measurement. One checkpoint is measured at a time; one that comes while another is being measured is passed over, so that
training never waits. If nothing can be executed, that is logged once instead of a figure.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dvk.agents.task_context import TaskContext
from dvk.backends import default_device
from dvk.config import Config
from dvk.pipelines.sft.collect import DEVICES
from dvk.records import BackendName, Status
from dvk.runs import RunFolder

QUALITY_S = 300.0
"""Longest evaluation of one checkpoint; it is abandoned after that."""

SEED = 2
"""Added to the run's seed: other tasks than those collected (0) and played (1)."""
QUALITY_WORKERS = 4
"""Children that prepare its tasks: few, since the training has priority."""
JUDGES = 2
"""Likewise: nothing is timed."""
GIVEN_UP_S = 5.0
"""Timeout for ending a process."""


class Quality:
    """Measures checkpoints; use as a context manager.

    Args:
        run: the run's folder.
        config: `fit.quality_tasks`, the judge's settings.
        backends: back ends that the model was taught.
    """

    def __init__(self, run: RunFolder, config: Config, backends: Sequence[BackendName]):
        self.path, self.config = run.path, config
        device = default_device()
        usable = [b for b in backends if DEVICES[b] == device]
        self.backend: BackendName | None = (
            usable[0] if usable else "cpp" if "cpp" in backends else None
        )
        self._process: Any = None
        self._line: Connection | None = None
        self._step, self._began = 0, 0.0
        self._rows: list[dict[str, Any]] = []
        self._said = False

    def __enter__(self) -> Quality:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def begin(self, step: int, checkpoint: Path) -> None:
        """Start on a checkpoint, unless one is being measured or none can be."""
        if not self.config.fit.quality_tasks:
            return
        if self.backend is None:
            if not self._said:
                self._rows.append(
                    {
                        "step": step,
                        "quality_skipped": "no back end that it was taught can be executed here",
                    }
                )
                self._said = True
            return
        self._look()
        if self._process is not None:
            self._rows.append(
                {"step": step, "quality_skipped": f"step {self._step} is still being measured"}
            )
            return
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe(duplex=False)
        arguments = (
            theirs,
            str(self.path),
            str(checkpoint),
            self.backend,
            self.config.model_dump_json(),
        )
        self._process = context.Process(target=serve, args=arguments, daemon=False)
        self._process.start()
        theirs.close()
        self._step, self._began = step, time.monotonic()

    def ready(self, *, wait: bool) -> list[dict[str, Any]]:
        """Rows found since the last call; `wait` for the one in progress, until its timeout."""
        self._look(wait=wait)
        result, self._rows = self._rows, []
        return result

    def _look(self, *, wait: bool = False) -> None:
        if self._process is None or self._line is None:
            return
        left = QUALITY_S - (time.monotonic() - self._began)
        answer: dict[str, Any] | None = None
        try:
            if self._line.poll(max(0.0, left) if wait else 0.0):
                answer = self._line.recv()
        except EOFError:
            answer = {"quality_skipped": "the process that measured it ended"}
        if answer is None and left > 0 and not wait:
            return
        answer = answer or {"quality_skipped": f"it took longer than {QUALITY_S:.0f} s"}
        self._rows.append({"step": self._step, **answer})
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.join(GIVEN_UP_S if self._line is not None and self._line.closed else 0.1)
            if self._process.is_alive():
                self._process.terminate()
                self._process.join(GIVEN_UP_S)
            if self._process.is_alive():
                self._process.kill()
        if self._line is not None:
            self._line.close()
        self._process = self._line = None


# ------------------------------------------------------------------ the measuring process


def serve(
    line: Connection, folder: str, checkpoint: str, backend: BackendName, config: str
) -> None:
    """Measure one checkpoint, answer, end."""
    from dvk.pipelines.sft.collect import setup_worker

    setup_worker()
    try:
        line.send(
            measure(Path(folder), Path(checkpoint), backend, Config.model_validate_json(config))
        )
    except Exception as error:  # noqa: BLE001 - training continues whatever a measurement does
        line.send({"quality_skipped": f"{type(error).__name__}: {str(error)[:200]}"})
    line.close()


def measure(folder: Path, checkpoint: Path, backend: BackendName, config: Config) -> dict[str, Any]:
    """Share of held-out tasks with a right answer of a checkpoint, greedily, at the first turn, without skills."""
    from dvk.agents import run_episodes
    from dvk.backbone import open_backbone
    from dvk.harness.queue import JudgeQueue
    from dvk.harness.session.judge_spec import JudgeSpec

    began = time.monotonic()
    tasks = subjects(folder, backend, config)
    prepared_s = time.monotonic() - began
    greedy = config.rollout.model_copy(
        update={
            "schemes": 0,
            "null_scheme": True,
            "rollouts": 1,
            "turns": 1,
            "temperature": 0.0,
            "resample_unparsed": 0,
            "repair_attempts": 0,
            "summaries": 0,
        }
    )
    played = config.model_copy(update={"rollout": greedy})
    right = malformed = asked = 0
    judging: JudgeQueue[Any]
    with JudgeQueue(
        config.rollout.judges or JUDGES, played, spec=JudgeSpec(tier="smoke")
    ) as judging:
        for episode in run_episodes(
            tasks, open_backbone(f"hf:{checkpoint}", config), None, played, judging=judging
        ):
            for trace in episode.traces:
                for turn in trace.turns:
                    asked += 1
                    right += turn.verdict is not None and turn.verdict.status is Status.OK
                    malformed += turn.malformed is not None
    if not asked:
        return {"quality_skipped": "no held-out task could be prepared"}
    return {
        "quality_correct": round(right / asked, 4),
        "quality_unread": round(malformed / asked, 4),
        "quality_tasks": asked,
        "quality_prepared_s": round(prepared_s, 1),
        "quality_s": round(time.monotonic() - began, 1),
    }


def subjects(folder: Path, backend: BackendName, config: Config) -> list[TaskContext]:
    """The tasks, examined and captured at the first checkpoint and cached for the next."""
    from dvk.agents.preparing import prepare
    from dvk.errors import DvkError
    from dvk.taskgen import generate

    device = DEVICES[backend]
    home = folder / "fit" / "quality"
    home.mkdir(parents=True, exist_ok=True)
    files = []
    for made in generate(
        config.seed + SEED, config.fit.quality_tasks, split="heldout", device=device
    ):
        files.append(home / f"{made.name}.py")
        files[-1].write_text(made.source)
    prepared = prepare(files, device, backend, config, workers=QUALITY_WORKERS, kept=True)
    return [
        subject
        for subject in prepared
        if not isinstance(subject, DvkError) and subject.captured is not None
    ]
