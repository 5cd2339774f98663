"""The judge sessions of a queue: at work and idle ones, each with the GPU memory that it was granted.

Starting a session's processes takes seconds, so idle ones stay: first for a job of their task, then for another task under the same
settings. The owner of GPU memory closes them when others need the room.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dvk import gpu_memory, machine
from dvk.config import Config
from dvk.gpu_memory import GpuMemory, Grant
from dvk.harness.placement import open_session
from dvk.harness.session.judge_spec import Judge, JudgeSpec
from dvk.harness.session.memory_estimate import bytes_to_judge
from dvk.harness.waiting_jobs import JudgeJob, Judgement
from dvk.records import Device, Task


@dataclass(eq=False)
class OpenSession:
    """A judge session of a queue; its processes start with its first candidate."""

    kind: JudgeSpec
    """Its fixed settings."""
    task: Task
    grant: Grant | None
    """None: it takes no memory of a GPU here."""
    judge: Judge | None = field(default=None, repr=False)

    displaced: list[OpenSession] = field(default_factory=list, repr=False)
    """Idle sessions that it replaces; closed before it starts."""

    @property
    def device(self) -> Device:
        """Its task's device."""
        return self.task.device

    def close(self) -> None:
        """End its processes."""
        if self.judge is not None:
            self.judge.close()


class OpenSessions:
    """At most `workers` sessions. Methods are called under the lock of `memory`, unless they say otherwise.

    Args:
        workers: most sessions.
        memory: owner of GPU memory; None: candidates are judged elsewhere.
    """

    def __init__(self, workers: int, memory: GpuMemory, *, elsewhere: bool = False):
        self.workers, self._memory, self._elsewhere = workers, memory, elsewhere
        self._idle: list[OpenSession] = []
        self._num_at_work = 0
        self._doubled: Counter[str] = Counter()
        """How often a task took more memory than estimated."""

    def need(self, judgement: Judgement) -> int:
        """Return bytes of GPU memory that judging takes; 0: none of this machine's."""
        if self._elsewhere or judgement.task.device != "cuda" or not machine.gpu_names():
            return 0
        spec = judgement.spec
        need = bytes_to_judge(judgement.task, len(spec.baselines) + (spec.tier == "claim"))
        return need << self._doubled[judgement.task.id]

    def raise_estimate(self, judgement: Judgement, session: OpenSession) -> None:
        """Double the estimate for a task that ran out of what the session was granted. Not under the lock."""
        with self._memory.changed:
            if session.grant is not None and session.grant.num_bytes >= self.need(judgement):
                self._doubled[judgement.task.id] += 1

    def take(self, job: JudgeJob, num_jobs: int, waits: bool = True) -> OpenSession | None:
        """Return a session for the job's task; None while there is no memory for it.

        Args:
            num_jobs: jobs in the queue, which limit the sessions worth having.
            waits: if there is none, a GPU is kept free for its task after a while.
        """
        asked = job.judgement
        assert asked is not None, "it is prepared"
        need, kind = None if job.alone else self.need(asked), asked.spec.of_session
        self._idle = self._living()
        alike = [one for one in self._idle if (one.kind, one.device) == (kind, asked.task.device)]
        full = self._num_at_work + len(self._idle) >= min(self.workers, max(1, num_jobs))
        mine = [one for one in alike if one.task.id == asked.task.id]
        for one in [*reversed(mine), *(alike if full else ())]:
            if one.grant is None or self._memory.resize(one.grant, need, self._name(job)):
                self._idle.remove(one)
                self._num_at_work += 1
                self.forget(job)
                return one
        grant = (
            None if need == 0 else self._memory.place(need, who=self._name(job) if waits else None)
        )
        if grant is None and need != 0:
            return None
        session = OpenSession(kind, asked.task, grant)
        if self._idle and self._num_at_work + len(self._idle) >= self.workers:
            session.displaced.append(self._busy(self._idle.pop(0)))
        self._num_at_work += 1
        return session

    def note_waiting(self, job: JudgeJob) -> None:
        """Others go before the job; if there is no memory for it either, its wait for memory counts from now on."""
        if job.judgement is not None and (need := self.need(job.judgement)):
            self._memory.note(None if job.alone else need, self._name(job))

    def has_priority(self, job: JudgeJob) -> bool:
        """Whether a GPU is kept free for jobs of its task, which have waited for long."""
        return self._memory.has_priority(self._name(job))

    def forget(self, job: JudgeJob) -> None:
        """No GPU needs to be kept free for it."""
        self._memory.forget(self._name(job))

    def _name(self, job: JudgeJob) -> tuple[int, str, bool]:
        """Name of what waits for memory: a task of this queue, since any of its jobs may be the next."""
        return id(self), job.group, job.alone

    def turn(self, session: OpenSession, task: Task, config: Config) -> Judge:
        """Return the session's judge, ready for the task. Not under the lock: it may wait for processes that end."""
        while session.displaced:
            self.end(session.displaced.pop())
        if session.grant is not None:
            session.grant.evict()
        session.task = task
        if session.judge is None:
            gpu = None if session.grant is None else gpu_memory.visible(session.grant.gpu)
            session.judge = open_session(task, config, session.kind, gpu=gpu)
        elif session.judge.task.id != task.id:
            session.judge.switch_task(task)
        return session.judge

    def rest(self, session: OpenSession) -> None:
        """Keep a session whose work is done for the next job."""
        self._num_at_work -= 1
        self._idle.append(session)
        if session.grant is not None:
            self._memory.rest(session.grant, session.close)

    def drop(self, session: OpenSession) -> None:
        """Close a session whose work is done. Not under the lock."""
        self.end(session)
        with self._memory.changed:
            self._num_at_work -= 1

    def end(self, session: OpenSession) -> None:
        """End the processes, then give back their memory. Not under the lock."""
        session.close()
        if session.grant is not None:
            with self._memory.changed:
                self._memory.release(session.grant)

    def take_idle(self) -> list[OpenSession]:
        """Remove and return all idle sessions; the caller ends them."""
        idle, self._idle = self._living(), []
        return [self._busy(one) for one in idle]

    def _living(self) -> list[OpenSession]:
        return [one for one in self._idle if one.grant is None or not one.grant.revoked]

    def _busy(self, session: OpenSession) -> OpenSession:
        """Its memory cannot be taken from it any more."""
        if session.grant is not None:
            session.grant.close = None
        return session
