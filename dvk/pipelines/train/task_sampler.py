"""Sampler of a step's tasks: a function of seed, step and the last checkpoint's memory, so that a resumed run plays the
uninterrupted run's tasks.

Without a folder tasks are generated, a separate stream a step; the split keeps every held-out composition out. From a
folder they are taken in an order that is shuffled on each pass; tasks that the judge calls degenerate are dropped, tasks that
taught nothing several times in a row come rarely. While a step is played the next one's tasks are prepared.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from dvk import machine
from dvk.agents import TaskContext
from dvk.agents.preparing import prepare
from dvk.agents.similar_tasks import SimilarTasks
from dvk.config import Config
from dvk.device_lock import DeviceLock, of_cpu
from dvk.distributed import ProcessGroup
from dvk.errors import DvkError, UsageError
from dvk.harness.remote.table import PREFIX as TABLE
from dvk.learn import credit
from dvk.learn.assign import degenerate
from dvk.pipelines.train import table_tasks
from dvk.records import BackendName, Device, Episode, content_hash
from dvk.taskgen import Generated, Split, generate

OVERSAMPLE = 1.25
"""Tasks generated per task that is played, since some cannot be captured or built; ours."""
SKIP_AFTER_FLAT_STEPS = 3
"""Consecutive plays of a task of --tasks in which all answers have equal rewards, before it is played less often; 0: never less often.
Ours."""
VALIDATION_TASKS = 32
"""Held-out tasks per validation, greedy, one turn; the same ones each time."""
TRIAL_TASKS = 64
"""Tasks of earlier steps kept as siblings: the latest with a correct answer."""

MOST = 8
"""Tasks generated for each played one, at most: when fewer than one in eight can be played, there is another error."""


class TaskSampler:
    """Draws task contexts; use as a context manager.

    Args:
        config: `seed`, `train`, `limits`.
        backend: the back end of the candidates.
        device: where they run.
        home: a folder for the text of generated tasks.
        folder: task files to draw from instead. Without them a judge that is a table gives its tasks.
        validation: task files to validate on; None: generated ones.
        team: the process group; all draw the same tasks.
        num_steps: of the run: nothing is prepared for a step after the last.
        memory: value of `memory` after the last step.

    Raises:
        UsageError: a folder holds no task that can be captured.
    """

    def __init__(
        self,
        config: Config,
        backend: BackendName,
        device: Device,
        home: Path,
        folder: Path | None = None,
        validation: Path | None = None,
        *,
        processes: ProcessGroup | None = None,
        num_steps: int | None = None,
        memory: Mapping[str, Any] | None = None,
    ):
        self.config, self.backend, self.device, self.home = config, backend, device, home
        self.processes, self.num_steps = processes or ProcessGroup(), num_steps
        self.earlier = SimilarTasks(TRIAL_TASKS)
        """Tasks of earlier steps, as siblings for trials."""
        self.tracebacks: dict[str, str] = {}
        """Errors inside dvk, by the name of the task that was being prepared."""
        self._cursor = 0
        self._dull: dict[str, int] = {}
        self._degenerate: set[str] = set()
        self._ahead: tuple[int, _Stream, Future[list[TaskContext | None]]] | None = None
        self._beside, self._lock = ThreadPoolExecutor(1), DeviceLock(of_cpu())
        self.pool: list[TaskContext] | None = None
        self._validation: list[TaskContext] | None = None
        if folder is not None:
            self.pool = self._read(folder)
        elif (judge := config.remote.judge or "").startswith(TABLE):
            found = table_tasks.read(
                Path(judge.removeprefix(TABLE)).expanduser(), machine.num_cores()
            )
            self.pool, self._validation = found.train, found.validation
        if validation is not None:
            self._validation = self.pool if validation == folder else self._read(validation)
        if memory:
            self._cursor, self._dull, self._degenerate = (
                memory["cursor"],
                dict(memory["dull"]),
                set(memory["degenerate"]),
            )
            self.earlier.restore(memory["earlier"])

    def __enter__(self) -> TaskSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.shutdown(wait=False, cancel_futures=True)

    def step(self, step: int) -> list[TaskContext]:
        """The task contexts of a step, `train.tasks_per_step` different ones if there are that many.

        Raises:
            DvkError: every task of the folder is degenerate, or hardly any generated one can be played.
        """
        count = self.config.train.tasks_per_step
        if self.pool is not None:
            return self._of_pool(self.pool, count)
        stream, first = self._stream(step), None
        if self._ahead is not None and self._ahead[0] == step:
            _, stream, future = self._ahead
            first = future.result()
        result = self._first(stream, count, first)
        self._ahead = None
        if step + 1 != self.num_steps:
            following = self._stream(step + 1)
            self._ahead = (
                step + 1,
                following,
                self._beside.submit(lambda: self._share(following.take(self._block), beside=True)),
            )
        return result

    def more(self, step: int, count: int, held: Sequence[TaskContext]) -> list[TaskContext]:
        """Other tasks for a step, in place of some without signal.

        Args:
            count: how many; fewer if a folder has no more.
            held: the step's tasks so far.
        """
        known = {subject.task.id for subject in held}
        if self.pool is not None:
            left = len({subject.task.id for subject in self.pool} - self._degenerate - known)
            return self._of_pool(self.pool, min(count, left), known) if left else []
        stream = self._stream(step, len(held))
        return [one for one in self._first(stream, count, None) if one.task.id not in known]

    def validation(self) -> list[TaskContext]:
        """Tasks whose compositions are never trained on, the same in every run; those frozen for the final measurement are not
        among them."""
        if self._validation is None:
            seed = (
                int(content_hash("validation"), 16) % 2**48
            )  # a fixed seed: runs are compared on the same tasks
            self._validation = self._first(_Stream("heldout", seed, self.device), VALIDATION_TASKS)
        return self._validation

    def note(
        self, episodes: Sequence[Episode], subjects: Sequence[TaskContext]
    ) -> dict[str, float]:
        """Record which tasks of a step are worth playing again, and which may be siblings.

        Args:
            episodes: with rewards.
            subjects: the step's task contexts.

        Returns:
            dull: tasks whose answers were all worth the same; degenerate: those on which no speedup counts.
        """
        healthy = [episode for episode in episodes if not degenerate(episode)]
        dull = {episode.task.id for episode in healthy if _dull(episode)}
        if self.pool is not None:
            self._degenerate |= {episode.task.id for episode in episodes} - {
                episode.task.id for episode in healthy
            }
            self._dull = {
                task: count
                for task, count in self._dull.items()
                if task not in {e.task.id for e in healthy} - dull
            }
            self._dull.update((task, self._dull.get(task, 0) + 1) for task in sorted(dull))
        self.earlier.add(healthy, {subject.task.id: subject for subject in subjects})
        return {"dull": float(len(dull)), "degenerate": float(len(episodes) - len(healthy))}

    def memory(self) -> dict[str, Any]:
        """The state that the next steps' tasks depend on besides the seed, as JSON."""
        return {
            "cursor": self._cursor,
            "dull": self._dull,
            "degenerate": sorted(self._degenerate),
            "earlier": list(self.earlier.records()),
        }

    # ------------------------------------------------------------ from a folder

    def _of_pool(
        self, pool: Sequence[TaskContext], count: int, known: Collection[str] = ()
    ) -> list[TaskContext]:
        if all(subject.task.id in self._degenerate for subject in pool):
            raise DvkError(
                "every task of the folder is degenerate",
                "`dvk verify` shows each one's error; give others as --tasks",
            )
        result: dict[str, TaskContext] = {}
        usable = {subject.task.id for subject in pool} - self._degenerate - set(known)
        while len(result) < min(count, len(usable)):
            through, place = divmod(self._cursor, len(pool))
            self._cursor += 1
            order = list(range(len(pool)))
            random.Random(content_hash(str(self.config.seed), str(through))).shuffle(order)
            subject = pool[order[place]]
            if subject.task.id in usable and not self._passed_over(
                subject.task.id, through + order[place]
            ):
                result.setdefault(subject.task.id, subject)
        return list(result.values())

    def _passed_over(self, task: str, turn: int) -> bool:
        """A task without signal for `SKIP_AFTER_FLAT_STEPS` times is played once in so many turns; with a signal, every time."""
        most = SKIP_AFTER_FLAT_STEPS
        return most > 0 and self._dull.get(task, 0) >= most and turn % (most + 1) != 0

    def _read(self, folder: Path) -> list[TaskContext]:
        paths = (
            sorted(p for p in folder.rglob("*.py") if not p.name.startswith("_"))
            if folder.is_dir()
            else []
        )
        result = [
            subject
            for subject in self.processes.gather(self._prepared(self.processes.shard(paths)))
            if subject is not None
        ]
        if not result:
            raise UsageError(
                f"no task in `{folder}` can be played",
                "give a folder of files in KernelBench's format",
            )
        return result

    # ------------------------------------------------------------ generated

    @property
    def _block(self) -> int:
        return math.ceil(self.config.train.tasks_per_step * OVERSAMPLE)

    def _stream(self, step: int, refill: int = 0) -> _Stream:
        """A step's tasks; `refill`: those of the step already played, if it needs others."""
        key = [str(self.config.seed), "train", str(step), *([f"refill {refill}"] if refill else [])]
        return _Stream("train", int(content_hash(*key), 16) % 2**48, self.device)

    def _first(
        self, stream: _Stream, count: int, prepared: list[TaskContext | None] | None = None
    ) -> list[TaskContext]:
        """The first tasks of a stream that can be played; `prepared`: this process's share of its first block, if it is there."""
        subjects: list[TaskContext] = []
        while len(subjects) < count:
            if prepared is None and stream.num_taken >= MOST * count:
                raise DvkError(
                    f"only {len(subjects)} of {stream.num_taken} generated tasks can be played",
                    "see what `dvk doctor` finds",
                )
            size = math.ceil((count - len(subjects)) * OVERSAMPLE)
            share = prepared if prepared is not None else self._share(stream.take(size))
            prepared = None
            subjects += [subject for subject in self.processes.gather(share) if subject is not None]
        return subjects[:count]

    def _share(self, made: Sequence[Generated], beside: bool = False) -> list[TaskContext | None]:
        self.home.mkdir(parents=True, exist_ok=True)
        paths = []
        for one in self.processes.shard(made):
            paths.append(self.home / f"{one.name}.py")
            paths[-1].write_text(one.source)
        return self._prepared(paths, beside=beside)

    # ------------------------------------------------------------ both

    def _prepared(self, paths: Sequence[Path], *, beside: bool = False) -> list[TaskContext | None]:
        """Task and graph of each file; None if there is none. `beside`: the judge is at work, and must not be disturbed while it times."""

        cores = machine.num_cores()
        if beside and self.device == "cpu":
            subjects: list[TaskContext | DvkError] = []
            for path in paths:
                with self._lock.shared():  # one thread at a time; on a GPU only timing needs it
                    subjects += prepare([path], self.device, self.backend, self.config, workers=1)
        else:
            workers = max(1, cores // 4) if beside else cores
            subjects = list(prepare(paths, self.device, self.backend, self.config, workers=workers))
        for path, one in zip(paths, subjects, strict=True):
            if text := getattr(one if isinstance(one, DvkError) else one.cannot, "traceback", ""):
                self.tracebacks[path.stem] = text
        return [
            None if isinstance(one, DvkError) or one.captured is None else one for one in subjects
        ]


class _Stream:
    """Generated tasks in their order."""

    def __init__(self, split: Split, seed: int, device: Device):
        self.num_taken = 0
        self._tasks: Iterator[Generated] = generate(seed, 1 << 40, split=split, device=device)

    def take(self, count: int) -> list[Generated]:
        """The next ones."""
        self.num_taken += count
        return list(islice(self._tasks, count))


def _dull(episode: Episode) -> bool:
    """Whether there were several answers, all of equal worth."""
    rewards = [
        turn.reward
        for trace in episode.traces
        if trace.role == "policy"
        for turn in trace.turns
        if turn.reward is not None
    ]
    return len(rewards) > 1 and credit.has_no_spread(rewards)
