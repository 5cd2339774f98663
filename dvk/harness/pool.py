"""Judge many candidates at once: one judge session per worker, verdicts in completion order.

Workers take the jobs of one task after another, so that a reference is built and its expected outputs computed once per worker and task.
Compiling runs on all cores; timing is serial per device (`device_lock`). Identical candidates are judged once, and not at all if this
machine has judged them before. Threads here only wait for sockets; children do the work.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from dvk import backends, crashes, machine
from dvk.config import Config
from dvk.harness.placement import is_remote, open_session
from dvk.harness.session import recording
from dvk.harness.session.concurrency import gpu_for
from dvk.harness.session.judge_spec import Judge, JudgeSpec
from dvk.harness.session.memory_admission import SpareMemory, extra_bytes
from dvk.harness.session.single_flight import SingleFlight
from dvk.harness.session.verdict_cache import Remembered, judged, key
from dvk.records import Candidate, Task, Verdict

Job = tuple[Task, Candidate]


class JudgePool:
    """Judges `workers` candidates at any time, spread over all GPUs.

    Args:
        workers: number of workers.
        config: limits and judge settings.
        remembered: verdicts of earlier runs; None ignores them.
    """

    def __init__(self, workers: int, config: Config, remembered: Remembered | None = None):
        self.workers = max(1, workers)
        self.config = config
        self.remembered = (
            None if config.remote.judge else remembered
        )  # other machines' verdicts do not apply here
        self._keep = False
        self._spare = SpareMemory(-(-self.workers // max(1, len(machine.gpu_names()))))
        self._lock = threading.Lock()
        self._idle: dict[object, list[Judge]] = {}
        """Judge sessions that wait for the next `map`, by their settings."""

    def __enter__(self) -> JudgePool:
        """Keep processes in the body for the next `map`: starting them takes seconds, their GPU contexts most of it. Each session counts
        all workers as sharers, however many one `map` uses."""
        self._keep = True
        return self

    def __exit__(self, *_: object) -> None:
        self._keep = False
        self.make_room()

    def make_room(self) -> None:
        """End the processes that wait for the next `map`, which frees their GPU memory."""
        with self._lock:
            idle, self._idle = [court for courts in self._idle.values() for court in courts], {}
        for court in idle:
            court.close()

    def warm(self) -> None:
        """Start the imports for recording launch plans, which take seconds, if there is a GPU to replay them on."""
        if machine.gpu_names():
            threading.Thread(target=recording.warm, args=(self.config.limits,), daemon=True).start()

    def map(
        self,
        jobs: Iterable[Job],
        spec: JudgeSpec = JudgeSpec(),  # noqa: B008
        *,
        first: int = 0,
    ) -> Iterator[tuple[int, Verdict]]:
        """Yield (position of the job, verdict) as each ends, one per job. Several threads may call it at once.

        An exception of dvk while a candidate is judged becomes its verdict, `broken_task` with a traceback.

        Args:
            jobs: candidates with their tasks.
            spec: settings for every candidate.
            first: number of the first worker, if several callers share the GPUs.

        Raises:
            MachineError: no sandbox can be started. Jobs in work are dropped.
        """
        jobs = list(jobs)
        where = is_remote(self.config)
        desk = _Desk(jobs, self._spare, any_size=bool(where))
        planned = (
            task.device == "cuda" and backends.get(candidate.backend).has_launch_plan
            for task, candidate in jobs
        )
        if spec.contract != "module" and any(planned):
            self.warm()
        if not where and any(task.device == "cuda" for task, _ in jobs):
            self._spare.look()
        running = min(self.workers, max(1, len(jobs)))
        batch = _Batch(spec, spec.flags | where, desk, self.workers if self._keep else running)
        for number in range(first, first + running):
            hand = _Hand(gpu_for(jobs[0][0], number) if jobs else None)
            threading.Thread(target=self._work, args=(batch, hand, number), daemon=True).start()
        try:
            while running:
                result = batch.results.get()
                if result is None:
                    running -= 1
                elif isinstance(result, BaseException):
                    raise result
                else:
                    yield result
        finally:
            desk.shut()

    def _work(self, batch: _Batch, hand: _Hand, number: int) -> None:
        """A worker of one `map`."""
        spec = batch.spec
        try:
            while (job := batch.desk.take(hand)) is not None:
                position, (task, candidate) = job
                try:
                    court = hand.court = self._court(batch, hand, task, number)
                    name = key(task, candidate, spec.tier, spec.baselines, self.config, batch.flags)
                    verdict = batch.once.do(
                        name, partial(judged, court, candidate, spec, self.remembered, name)
                    )[0]
                except Exception as error:  # the fence: see dvk.crashes
                    if crashes.ends_the_run(error):
                        raise
                    verdict = crashes.verdict(crashes.crashed(error, "judging it"), spec.tier)
                    if hand.court is not None:  # its state is unknown
                        hand.court.close()
                batch.results.put((position, verdict))
            if hand.court is not None:
                self._rest(hand.kind, hand.court)
            batch.results.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            batch.results.put(error)
            if hand.court is not None:
                hand.court.close()
        finally:
            batch.desk.leave(hand)

    def _court(self, batch: _Batch, hand: _Hand, task: Task, number: int) -> Judge:
        """Return the worker's judge, switched to the task, or one of an earlier `map`, or a new one."""
        court = hand.court
        if court is not None and court.task.id != task.id:
            court.switch_task(task)
        elif court is None:
            gpu = gpu_for(task, number)
            hand.kind = gpu, batch.spec.of_session
            court = self._again(hand.kind, task) or open_session(
                task, self.config, batch.spec, gpu=gpu
            )
        court.sharers, court.make_room = batch.sharers, self.make_room
        return court

    def _again(self, kind: object, task: Task) -> Judge | None:
        """Return a judge session of an earlier `map`, preferably one that holds this task."""
        with self._lock:
            waiting = self._idle.get(kind, [])
            if not waiting:
                return None
            court = waiting.pop(
                next((n for n, court in enumerate(waiting) if court.task.id == task.id), -1)
            )
        if court.task.id != task.id:
            court.switch_task(task)
        return court

    def _rest(self, kind: object, court: Judge) -> None:
        if not self._keep or court.broken is not None or extra_bytes(court.task):
            court.close()
            return
        with self._lock:
            waiting = sum(map(len, self._idle.values()))
            # Those made for other settings hold memory that may never be used again.
            oldest = next(
                (courts for other, courts in self._idle.items() if courts and other != kind), None
            )
            spare = oldest.pop(0) if waiting >= self.workers and oldest else None
            self._idle.setdefault(kind, []).append(court)
        if spare is not None:
            spare.close()


@dataclass
class _Batch:
    """State that the workers of one `map` share."""

    spec: JudgeSpec
    flags: dict[str, object]
    """For the verdicts' keys."""
    desk: _Desk
    sharers: int
    once: SingleFlight[Verdict] = field(default_factory=SingleFlight)
    results: queue.SimpleQueue[tuple[int, Verdict] | BaseException | None] = field(
        default_factory=queue.SimpleQueue
    )


@dataclass
class _Hand:
    """A worker: its judge session, its task, and the memory granted for that."""

    gpu: str | None
    task_id: str | None = None
    held: int = 0
    court: Judge | None = None
    kind: object = None
    """The session's settings."""


class _Desk:
    """Jobs by task; a worker keeps its task, others take the task with most jobs left per worker and enough memory left.

    Args:
        any_size: judged elsewhere, where memory is not managed here.
    """

    def __init__(self, jobs: list[Job], spare: SpareMemory, *, any_size: bool = False):
        self._jobs = jobs
        self._spare = spare
        self._waiting: dict[str, deque[int]] = {}
        self._hands: dict[str, int] = {}
        self._extra: dict[str, int] = {}
        for position, (task, _) in enumerate(jobs):
            self._waiting.setdefault(task.id, deque()).append(position)
            self._extra.setdefault(task.id, 0 if any_size else extra_bytes(task))

    def __len__(self) -> int:
        return len(self._jobs)

    def take(self, hand: _Hand) -> tuple[int, Job] | None:
        """Return a job, of the worker's task if one is left; None if all are taken. Waits while there is no memory for the remaining
        ones."""
        with self._spare.changed:
            if hand.task_id is None or not self._waiting.get(hand.task_id):
                self._put_down(hand)
                while (task_id := self._chosen(hand)) is None:
                    if not any(self._waiting.values()):
                        return None
                    self._spare.changed.wait()
                hand.task_id, hand.held = task_id, self._extra[task_id]
                self._hands[task_id] = self._hands.get(task_id, 0) + 1
            position = self._waiting[hand.task_id].popleft()
            return position, self._jobs[position]

    def leave(self, hand: _Hand) -> None:
        """End the worker's jobs."""
        with self._spare.changed:
            self._put_down(hand)

    def shut(self) -> None:
        """End all workers' jobs."""
        with self._spare.changed:
            self._waiting.clear()
            self._spare.changed.notify_all()

    def _chosen(self, hand: _Hand) -> str | None:
        left = {
            name: len(jobs) / (1 + self._hands.get(name, 0))
            for name, jobs in self._waiting.items()
            if jobs
        }
        return next(
            (
                n
                for n in sorted(left, key=lambda name: -left[name])
                if self._spare.granted(hand.gpu, self._extra[n])
            ),
            None,
        )

    def _put_down(self, hand: _Hand) -> None:
        if hand.task_id is not None:
            self._hands[hand.task_id] -= 1
            self._spare.give_back(hand.gpu, hand.held)
            hand.task_id, hand.held = None, 0
