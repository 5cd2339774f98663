"""Queue of candidates and verdicts: one judge session per worker, fed while a model writes the next answers.

`JudgePool` judges a known list; here the list grows with the verdicts. Workers keep the task they hold, since a reference is built and its
expected outputs computed once per worker and task; others take the task with most jobs left per worker. Equal candidates are judged once.
Threads only wait for sockets; children do the work.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import Generic, TypeVar

from dvk import crashes
from dvk.config import Config
from dvk.harness.placement import is_remote, open_session
from dvk.harness.session.concurrency import gpu_for
from dvk.harness.session.judge_spec import Contract, Judge, JudgeSpec
from dvk.harness.session.single_flight import SingleFlight
from dvk.harness.session.verdict_cache import Remembered, judged, key
from dvk.records import Candidate, Task, Verdict

K = TypeVar("K")
JOIN_S = 5.0
"""Longest wait at close for a worker that still judges; it then ends with its candidate."""


def default_contract(device: str) -> Contract:
    """Default contract: on a GPU by launch plan if a candidate can be reduced to one, for ten times as many verdicts per second."""
    return "auto" if device == "cuda" else "module"


class JudgeQueue(Generic[K]):
    """Judges submitted candidates; use as a context manager or `close()` it.

    Args:
        workers: candidates in work at any time.
        config: limits and judge settings.
        remembered: verdicts of earlier runs; None ignores them.
        spec: settings for every candidate.
    """

    def __init__(
        self,
        workers: int,
        config: Config,
        remembered: Remembered | None = None,
        spec: JudgeSpec = JudgeSpec(),  # noqa: B008 - it is frozen
    ):
        self.workers, self.config = max(1, workers), config
        self.remembered = (
            None if config.remote.judge else remembered
        )  # other machines' verdicts do not apply here
        self.spec = spec
        self.num_pending = 0
        """Submitted jobs without a collected result."""
        self._once: SingleFlight[Verdict] = SingleFlight()
        self._results: queue.SimpleQueue[tuple[K, Verdict] | BaseException] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[tuple[K, Task, Candidate]]] = {}
        self._hands: dict[str, int] = {}
        self._idle: list[Judge] = []
        """Judge sessions of idle workers."""
        self._open = True
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> JudgeQueue[K]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Accept no more work; unstarted jobs are dropped, processes end with their workers."""
        with self._changed:
            self._open = False
            self._waiting.clear()
            self._changed.notify_all()
        limit = time.monotonic() + JOIN_S
        for thread in self._threads:  # a cluster has many
            thread.join(max(0.0, limit - time.monotonic()))

    @property
    def num_waiting(self) -> int:
        """Return the number of submitted, unstarted jobs."""
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def submit(self, name: K, task: Task, candidate: Candidate) -> None:
        """Submit `candidate`; its verdict appears in `results` under `name`."""
        with self._changed:
            assert self._open, "it is closed"
            self._waiting.setdefault(task.id, deque()).append((name, task, candidate))
            self.num_pending += 1
            self._changed.notify()
        if len(self._threads) < min(self.workers, self.num_pending):
            thread = threading.Thread(target=self._work, args=(len(self._threads),), daemon=True)
            self._threads.append(thread)
            thread.start()

    def results(self, *, wait: bool) -> list[tuple[K, Verdict]]:
        """Return verdicts since the last call; if `wait` and there are none yet, at least one, unless nothing is pending.

        An exception of dvk while a candidate is judged becomes its verdict, `broken_task` with a traceback.

        Raises:
            MachineError: no sandbox can be started.
        """
        found: list[tuple[K, Verdict]] = []
        while self.num_pending:
            try:
                result = self._results.get(block=wait and not found)
            except queue.Empty:
                break
            if isinstance(result, BaseException):
                raise result
            self.num_pending -= 1
            found.append(result)
        return found

    def make_room(self) -> None:
        """Make idle workers free their GPU memory and wait until the last of their processes has ended; they start them again when there is
        work."""
        with self._changed:
            for court in self._idle:
                court.close()

    # ------------------------------------------------------------ workers

    def _work(self, number: int) -> None:
        court: Judge | None = None
        held: str | None = None
        try:
            while (job := self._take(court, held)) is not None:
                name, task, candidate = job
                held = task.id
                try:
                    court = self._court(court, task, number)
                    verdict = self._verdict(court, task, candidate)
                except Exception as error:  # the fence: see dvk.crashes
                    if crashes.ends_the_run(error):
                        raise
                    verdict = crashes.verdict(crashes.crashed(error, "judging it"), self.spec.tier)
                    if court is not None:  # its state is unknown
                        court.close()
                self._results.put((name, verdict))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._results.put(error)
        finally:
            if court is not None:
                court.close()

    def _court(self, court: Judge | None, task: Task, number: int) -> Judge:
        """Return the judge session, switched to the task, or a new one."""
        if court is None:
            gpu = gpu_for(task, number)
            court = open_session(task, self.config, self.spec, gpu=gpu)
            court.sharers, court.make_room = self.workers, self.make_room
        elif court.task.id != task.id:
            court.switch_task(task)
        return court

    def _verdict(self, court: Judge, task: Task, candidate: Candidate) -> Verdict:
        asked = key(
            task,
            candidate,
            self.spec.tier,
            self.spec.baselines,
            self.config,
            self.spec.flags | is_remote(self.config),
        )
        return self._once.do(
            asked, lambda: judged(court, candidate, self.spec, self.remembered, asked)
        )[0]

    def _take(self, court: Judge | None, held: str | None) -> tuple[K, Task, Candidate] | None:
        """Return the next job, of the worker's task `held` if there is one; waits for one; None when closed."""
        with self._changed:
            while self._open:
                if held is not None and self._waiting.get(held):
                    return self._waiting[held].popleft()
                left = {
                    task: len(jobs) / (1 + self._hands.get(task, 0))
                    for task, jobs in self._waiting.items()
                    if jobs
                }
                if left:
                    chosen = max(left, key=lambda task: left[task])
                    if held is not None:
                        self._hands[held] -= 1
                    self._hands[chosen] = self._hands.get(chosen, 0) + 1
                    return self._waiting[chosen].popleft()
                waits = [court] if court is not None else []
                self._idle += waits
                self._changed.wait()
                self._idle = [one for one in self._idle if one not in waits]
            return None
