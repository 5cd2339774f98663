"""Jobs of a judge queue that have not started: by priority, then by task, so that a judge session keeps its task."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dvk.harness.session.judge_spec import JudgeSpec
from dvk.harness.session.single_flight import SingleFlight
from dvk.harness.session.verdict_cache import Remembered
from dvk.records import Candidate, Task, Verdict

_numbers = itertools.count()


@dataclass(frozen=True)
class Judgement:
    """What a job asks: a candidate of a task under a specification."""

    task: Task
    candidate: Candidate
    spec: JudgeSpec
    remembered: Remembered | None = None
    """Verdicts of earlier runs; None ignores them."""


@dataclass(eq=False)
class JudgeJob:
    """One candidate to judge, and who gets its verdict.

    Attributes:
        deliver: called once, from a worker's thread: with the verdict, or the error that must end the run.
        judgement: None until `prepare` has made it.
        prepare: makes the judgement on a worker's thread; None if there is nothing left to judge, and nothing to deliver.
        priority: smaller ones go first.
        once: jobs that share it and are equal are judged once.
    """

    deliver: Callable[[Verdict | BaseException], None]
    judgement: Judgement | None = None
    prepare: Callable[[], Judgement | None] = lambda: None
    priority: int = 0
    once: SingleFlight[Verdict] = field(default_factory=SingleFlight)
    alone: bool = False
    """Memory was short: it is judged once more, with nothing else on its GPU."""
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def group(self) -> str:
        """The task's id; empty until it is known."""
        return "" if self.judgement is None else self.judgement.task.id

    @property
    def rank(self) -> tuple[int, int]:
        """Order within a group."""
        return self.priority, self.number


class WaitingJobs:
    """The jobs, in groups of one task each. Its owner holds a lock."""

    def __init__(self) -> None:
        self._groups: dict[str, list[tuple[tuple[int, int], JudgeJob]]] = {}
        self.at_work: Counter[str] = Counter()
        """Workers by task."""

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def has(self, group: str) -> bool:
        """Whether jobs of the task wait."""
        return group in self._groups

    def add(self, job: JudgeJob) -> None:
        """Add a job; one that was taken before keeps its place."""
        heapq.heappush(self._groups.setdefault(job.group, []), (job.rank, job))

    def take(self, job: JudgeJob) -> None:
        """Remove the first job of its group."""
        waiting = self._groups[job.group]
        assert heapq.heappop(waiting)[1] is job, "it is not the first"
        if not waiting:
            del self._groups[job.group]

    def remove(self, unwanted: Callable[[JudgeJob], bool]) -> list[JudgeJob]:
        """Remove jobs wherever they stand, and return them."""
        removed = [job for jobs in self._groups.values() for _, job in jobs if unwanted(job)]
        for jobs in self._groups.values():
            jobs[:] = [entry for entry in jobs if not unwanted(entry[1])]
            heapq.heapify(jobs)
        self._groups = {group: jobs for group, jobs in self._groups.items() if jobs}
        return removed

    def heads(self, last: str | None) -> Iterator[JudgeJob]:
        """Yield the first job of each group, in the order in which a worker should try them: of its last task, then of the task with most
        jobs left per worker, then those whose task is not known yet."""

        def order(group: str) -> tuple[int, bool, bool, float, int]:
            priority, number = self._groups[group][0][0]
            left = len(self._groups[group]) / (1 + self.at_work[group])
            return priority, not group, group != last, -left, number

        if not self._groups:
            return
        best = min(self._groups, key=order)
        yield self._groups[best][0][1]
        for group in sorted(self._groups.keys() - {best}, key=order):  # it lacks memory
            yield self._groups[group][0][1]

    def position(self, job: JudgeJob) -> int | None:
        """Return the number of jobs before it in its group; None if it does not wait."""
        ranks = sorted(rank for rank, _ in self._groups.get(job.group, ()))
        return ranks.index(job.rank) if job.rank in ranks else None
