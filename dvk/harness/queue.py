"""The judge queue: candidates go in as they are written, verdicts come out as they are known.

    jobs ──submit──▶ waiting (by priority, then by task) ──▶ worker threads ──deliver──▶ submitter of the job
                                                               │ hold
                                          judge sessions ◀─────┘      memory: `dvk.gpu_memory`

- Threads: the queue starts them as there are jobs, at most `workers`; a thread ends when no job waits. They only wait for sockets;
  children do the work.
- Sessions: a worker keeps the task it holds, since a reference is built and its expected outputs computed once per session and task; others
  take the task with most jobs left per worker. Idle sessions stay until the queue is closed or their memory is needed.
- Memory: a job starts if the owner of GPU memory grants what its task needs; meanwhile jobs of smaller tasks go on, until it has waited for
  long: then a GPU is kept free for it. One that runs out of memory all the same is judged once more, alone on its GPU.
- Verdicts: each job carries the function that takes its verdict, so that streams (`submit`, `results`), lists (`map`) and servers
  (`add`) share one queue. Equal candidates of a stream or a list are judged once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

from dvk import backends, crashes, gpu_memory, machine
from dvk.config import Config
from dvk.harness.open_sessions import OpenSession, OpenSessions
from dvk.harness.placement import is_remote
from dvk.harness.session import recording
from dvk.harness.session.judge_spec import Contract, Judge, JudgeSpec
from dvk.harness.session.single_flight import SingleFlight
from dvk.harness.session.verdict_cache import Remembered, judged, key
from dvk.harness.session.verdicts import short_of_memory
from dvk.harness.waiting_jobs import JudgeJob, Judgement, WaitingJobs
from dvk.records import Candidate, Task, Verdict

K = TypeVar("K")
JOIN_S = 5.0
"""Longest wait at close for workers that still judge; they then end with their candidates."""
LEAVE_S = 1.0
"""The same where an exception ends the work, as Ctrl-C does: what they judge is not wanted any more."""


class MemoryWasShort(Exception):
    """A candidate found the memory of its GPU taken, and has not been judged alone yet."""


def default_contract(device: str) -> Contract:
    """Default contract: on a GPU by launch plan if a candidate can be reduced to one, for ten times as many verdicts per second."""
    return "auto" if device == "cuda" else "module"


class JudgeQueue(Generic[K]):
    """Judges submitted candidates; use as a context manager or `close()` it.

    Args:
        workers: candidates in work at any time, spread over all GPUs.
        config: limits and judge settings.
        remembered: verdicts of earlier runs; None ignores them.
        spec: settings for every candidate, unless a job has others.
        memory: owner of GPU memory; by default this process's.
    """

    def __init__(
        self,
        workers: int,
        config: Config,
        remembered: Remembered | None = None,
        spec: JudgeSpec = JudgeSpec(),  # noqa: B008 - it is frozen
        *,
        memory: gpu_memory.GpuMemory | None = None,
    ):
        self.workers, self.config = max(1, workers), config
        self.remembered = (
            None if config.remote.judge else remembered
        )  # other machines' verdicts do not apply here
        self.spec = spec
        self.num_pending = 0
        """Submitted jobs without a collected result."""
        self._once: SingleFlight[Verdict] = SingleFlight()
        self._results: queue.SimpleQueue[tuple[K, Verdict | BaseException]] = queue.SimpleQueue()
        memory = memory or gpu_memory.owner()
        elsewhere = config.remote.judge is not None or config.remote.engine is not None
        self._memory, self._changed = memory, memory.changed
        self._sessions = OpenSessions(self.workers, memory, elsewhere=elsewhere)
        self._waiting = WaitingJobs()
        self._threads: set[threading.Thread] = set()
        self._entered = self._warm = self._more = False
        self._open = True

    def __enter__(self) -> JudgeQueue[K]:
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(JOIN_S if kind is None else LEAVE_S)

    def close(self, wait_s: float | None = None) -> None:
        """Accept no more work; unstarted jobs are dropped, processes end with their workers.

        Args:
            wait_s: longest wait for them; by default `JOIN_S`.
        """
        with self._changed:
            self._open = False
            self._forget(lambda job: True)
            idle, threads = self._sessions.take_idle(), list(self._threads)
            self._changed.notify_all()
        ending = [
            threading.Thread(target=self._sessions.end, args=(one,), daemon=True) for one in idle
        ]
        for thread in ending:
            thread.start()
        limit = time.monotonic() + (JOIN_S if wait_s is None else wait_s)
        for thread in threads:  # a cluster has many
            thread.join(max(0.0, limit - time.monotonic()))
        for thread in ending:
            thread.join(max(0.0, limit - time.monotonic()) if wait_s == LEAVE_S else None)

    # ------------------------------------------------------------ submitters

    def submit(self, name: K, task: Task, candidate: Candidate) -> None:
        """Submit `candidate`; its verdict appears in `results` under `name`."""
        assert self._open, "it is closed"
        self.num_pending += 1
        self.add(
            JudgeJob(
                lambda verdict: self._results.put((name, verdict)),
                Judgement(task, candidate, self.spec, self.remembered),
                once=self._once,
            )
        )

    def results(self, *, wait: bool) -> list[tuple[K, Verdict]]:
        """Return verdicts since the last call; if `wait` and there are none yet, at least one, unless nothing is pending.

        An exception of dvk while a candidate is judged becomes its verdict, `broken_task` with a traceback.

        Raises:
            MachineError: no sandbox can be started.
        """
        ready: list[tuple[K, Verdict]] = []
        while self.num_pending:
            try:
                name, result = self._results.get(block=wait and not ready)
            except queue.Empty:
                break
            if isinstance(result, BaseException):
                raise result
            self.num_pending -= 1
            ready.append((name, result))
        return ready

    def map(
        self,
        jobs: Iterable[tuple[Task, Candidate]],
        spec: JudgeSpec | None = None,
        *,
        priority: int = 0,
    ) -> Iterator[tuple[int, Verdict]]:
        """Yield (position of the job, verdict) as each ends, one per job. Several threads may call it at once.

        Outside of a `with` block of this queue, processes end with the last verdict.

        Args:
            jobs: candidates with their tasks.
            spec: settings for every candidate; by default the queue's.
            priority: smaller ones go first; submitted candidates have 0.

        Raises:
            MachineError: no sandbox can be started. Jobs in work are dropped.
        """
        asked = [Judgement(*job, spec or self.spec, self.remembered) for job in jobs]
        if not self._entered:
            given = self.config, self.remembered, self.spec
            inner = JudgeQueue[int](min(self.workers, len(asked)), *given, memory=self._memory)
            inner._entered = True
            try:
                yield from inner.map(
                    ((one.task, one.candidate) for one in asked), spec, priority=priority
                )
            finally:
                inner.close(wait_s=0.0)
            return
        answers: queue.SimpleQueue[tuple[int, Verdict | BaseException]] = queue.SimpleQueue()
        once: SingleFlight[Verdict] = SingleFlight()
        added = set[JudgeJob]()
        try:
            for position, one in enumerate(asked):
                job = JudgeJob(partial(_put, answers, position), one, priority=priority, once=once)
                added.add(job)
                self.add(job)
            for _ in asked:
                position, answer = answers.get()
                if isinstance(answer, BaseException):
                    raise answer
                yield position, answer
        finally:
            self.drop(added)

    def add(self, job: JudgeJob) -> None:
        """Queue a job; its `deliver` gets the verdict."""
        self._prewarm(job)
        with self._changed:
            if not self._open:
                return
            self._waiting.add(job)
            if len(self._threads) < self.workers:
                thread = threading.Thread(target=self._work, daemon=True)
                self._threads.add(thread)
                thread.start()
            self._changed.notify_all()

    def expect(self, more: bool) -> None:
        """Say whether jobs of other tasks are about to come: a task has one session until then, since each session prepares it again."""
        with self._changed:
            self._more = more
            self._changed.notify_all()

    def drop(self, jobs: set[JudgeJob]) -> None:
        """Forget those of the jobs that are not started."""
        with self._changed:
            self._forget(lambda job: job in jobs)
            self._changed.notify_all()

    def _forget(self, unwanted: Callable[[JudgeJob], bool]) -> None:
        for job in self._waiting.remove(unwanted):
            self._sessions.forget(job)

    def position(self, job: JudgeJob) -> int | None:
        """Return the number of jobs of its kind that are started before it; None once it is started."""
        with self._changed:
            return self._waiting.position(job)

    @property
    def num_waiting(self) -> int:
        """Return the number of submitted, unstarted jobs."""
        with self._changed:
            return len(self._waiting)

    def make_room(self) -> None:
        """End idle sessions' processes, which frees their memory, and wait until they have ended."""
        with self._changed:
            idle = self._sessions.take_idle()
        for one in idle:
            self._sessions.end(one)
        self._memory.reclaim()

    def judge_singly(self) -> None:
        """Judge one candidate at a time from now on: starting processes and building references disturb what is timed on a CPU."""
        with self._changed:
            self.workers = 1
            self._changed.notify_all()

    def warm(self) -> None:
        """Start the imports for recording launch plans, which take seconds, if there is a GPU to replay them on."""
        self._warm = True
        if machine.gpu_names():
            threading.Thread(target=recording.warm, args=(self.config.limits,), daemon=True).start()

    def _prewarm(self, job: JudgeJob) -> None:
        asked = job.judgement
        if self._warm or asked is None or asked.task.device != "cuda":
            return
        if (
            asked.spec.contract != "module"
            and backends.get(asked.candidate.backend).has_launch_plan
        ):
            self.warm()

    # ------------------------------------------------------------ workers

    def _work(self) -> None:
        """A worker, until no job waits."""
        last: str | None = None
        while (taken := self._take(last)) is not None:
            job, session = taken
            last = job.group
            if session is None:
                self._prepare(job)
            else:
                self._judge(job, session)

    def _take(self, last: str | None) -> tuple[JudgeJob, OpenSession | None] | None:
        """Return the next job with a session; without one if it is to be prepared. None if none waits or there are more workers than
        wanted: the worker ends. Waits while there is no memory for those that wait."""
        with self._changed:
            while len(self._waiting) and len(self._threads) <= self.workers:
                if (taken := self._startable(last)) is not None:
                    self._waiting.take(taken[0])
                    self._waiting.at_work[taken[0].group] += 1
                    return taken
                self._changed.wait(gpu_memory.LOOK_S)
            self._threads.discard(threading.current_thread())
            return None

    def _startable(self, last: str | None) -> tuple[JudgeJob, OpenSession | None] | None:
        """Return the first job that can start, with its session; None while there is no memory for any. Those that a GPU is kept free
        for come first: every other order may find other jobs that can start, for as long as there are any."""
        num_jobs = len(self._waiting) + sum(self._waiting.at_work.values())
        heads = list(self._waiting.heads(last))
        heads.sort(key=lambda job: not self._sessions.has_priority(job))
        for number, job in enumerate(heads):
            if job.judgement is None:
                session = None
            elif self._more and self._waiting.at_work[job.group]:
                continue
            elif (session := self._sessions.take(job, num_jobs, self._waits(job))) is None:
                continue
            for other in filter(self._waits, heads[number + 1 :]):
                self._sessions.note_waiting(other)
            return job, session
        return None

    def _waits(self, job: JudgeJob) -> bool:
        """Whether nothing of its task is at work, so that its wait for memory counts."""
        return job.alone or not self._waiting.at_work[job.group]

    def _prepare(self, job: JudgeJob) -> None:
        """Make the job's judgement; it then waits for its session, before all that came later."""
        try:
            job.judgement = job.prepare()
        except BaseException as error:  # noqa: BLE001 - its submitter decides
            job.deliver(error)
        with self._changed:
            self._waiting.at_work[""] -= 1
            if job.judgement is not None and self._open:
                self._waiting.add(job)

    def _judge(self, job: JudgeJob, session: OpenSession) -> None:
        asked = job.judgement
        assert asked is not None, "it is prepared"
        healthy = True
        answer: Verdict | BaseException | None = None
        try:
            judge = self._sessions.turn(session, asked.task, self.config)
            judge.sharers = 1 if job.alone else self.workers
            judge.make_room = self.make_room
            answer = self._verdict(judge, job, asked, session)
        except MemoryWasShort:
            healthy = False
            self._sessions.raise_estimate(asked, session)
        except Exception as error:  # noqa: BLE001 - the fence: see dvk.crashes
            healthy = False  # its state is unknown
            answer = (
                error
                if crashes.ends_the_run(error)
                else crashes.verdict(crashes.crashed(error, "judging it"), asked.spec.tier)
            )
        except BaseException as error:  # noqa: BLE001 - raised again in the submitter's thread
            healthy, answer = False, error
        self._end(job, session, healthy=healthy, again=answer is None)
        if answer is not None:
            job.deliver(answer)

    def _end(self, job: JudgeJob, session: OpenSession, *, healthy: bool, again: bool) -> None:
        """Put the session where the next job finds it, before the verdict is known; `again`: the job waits for an empty GPU."""
        with self._changed:
            self._waiting.at_work[job.group] -= 1
            if again and self._open:
                job.alone = True
                self._waiting.add(job)
            broken = session.judge is None or session.judge.broken is not None
            # Where the reference is broken, the other jobs of its task end with the same reason at once, and a later request looks again.
            keep = healthy and self._open and (not broken or self._waiting.has(job.group))
            if keep:
                self._sessions.rest(session)
        if not keep:
            self._sessions.drop(session)
        with self._changed:
            self._changed.notify_all()

    def _verdict(
        self, judge: Judge, job: JudgeJob, asked: Judgement, session: OpenSession
    ) -> Verdict:
        spec = asked.spec
        flags = spec.flags | is_remote(self.config)
        name = key(asked.task, asked.candidate, spec.tier, spec.baselines, self.config, flags)

        def work() -> Verdict:
            verdict = judged(judge, asked.candidate, spec, asked.remembered, name)
            if session.grant is None or short_of_memory(verdict) is None:
                return verdict
            if not job.alone:
                raise MemoryWasShort
            if not gpu_memory.was_short(verdict.error):  # a baseline found it taken
                return verdict
            text = gpu_memory.shorten(str(verdict.error), session.grant.num_bytes)
            return verdict.model_copy(update={"error": text})

        return job.once.do(name, work)[0]


def _put(
    answers: queue.SimpleQueue[tuple[int, Verdict | BaseException]],
    position: int,
    answer: Verdict | BaseException,
) -> None:
    answers.put((position, answer))
