"""Many tasks, a few at a time, on verdicts that we make up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dvk.records import Candidate, Interval, Status, Task, Timing, Verdict
from dvk.search import Proposals, SearchProblem
from dvk.search.play import play


def problem(name: str) -> Any:
    return SimpleNamespace(
        task=Task(id=name, name=name, source="", entry="Model", kind="module"), skills=()
    )


def candidate(text: str) -> Candidate:
    return Candidate(source=text, backend="cpp")


def climb(given: SearchProblem) -> Proposals:
    """Goes on from the better of two, three times."""
    best = 0
    for _ in range(3):
        batch = [candidate(f"{given.task.name} {best + step}") for step in (1, 2)]
        verdicts = yield batch
        best = max([best, *(int(v.timing.candidate_ms) for v in verdicts if v and v.timing)])


class Judge:
    """Two workers; the last submitted is judged first."""

    def __init__(self) -> None:
        self.workers = 2
        self.calls: list[str] = []
        self.waiting: list[tuple[Any, Candidate]] = []
        self.most_tasks = 0
        self.expected = False

    def expect(self, more: bool) -> None:
        self.expected = more

    def submit(self, name: Any, task: Task, candidate: Candidate) -> None:
        self.calls.append(candidate.source)
        self.waiting.append((name, candidate))
        self.most_tasks = max(self.most_tasks, len({c.source.split()[0] for _, c in self.waiting}))

    def results(self, *, wait: bool) -> list[tuple[Any, Verdict]]:
        assert wait and self.waiting
        name, one = self.waiting.pop()
        value = int(one.source.split()[1])
        interval = Interval(value=1, lo=1, hi=1)
        timing = Timing(
            candidate_ms=value, reference_ms=1, speedup=interval, num_pairs=9, seconds=0
        )
        return [(name, Verdict(status=Status.OK, tier="search", stage="done", timing=timing))]


def test_every_task_is_played_to_its_end_and_nothing_is_judged_twice() -> None:
    judge = Judge()
    episodes = list(play([problem(name) for name in "abc"], climb, judge, limit=100))
    assert sorted(judge.calls) == sorted(f"{name} {i}" for name in "abc" for i in range(1, 7))
    assert judge.calls.index("a 3") > judge.calls.index("a 2"), (
        "a task's next batch waits for the verdicts of its last"
    )
    assert judge.most_tasks == 2, "one task a worker"
    assert sorted(e.task.name for e in episodes) == ["a", "b", "c"]
    for episode in episodes:
        played = sorted(t.candidate.source for t in episode.traces[0].turns if t.candidate)
        assert played == [f"{episode.task.name} {i}" for i in range(1, 7)]


class Patient(Judge):
    """Has an answer whether or not it is waited for."""

    def results(self, *, wait: bool) -> list[tuple[Any, Verdict]]:
        return super().results(wait=True) if self.waiting else []


def test_a_task_that_takes_long_to_prepare_holds_up_no_other() -> None:
    judge, ended = Patient(), threading.Event()

    def problems() -> Iterator[Any]:
        yield problem("quick")
        assert ended.wait(20), "the first waits for the second"
        yield problem("slow")

    names = []
    for episode in play(problems(), climb, judge, limit=100):
        names.append(episode.task.name)
        ended.set()
    assert names == ["quick", "slow"]


def test_an_error_in_preparing_ends_the_run_and_a_reader_that_leaves_ends_preparing() -> None:
    closed = threading.Event()

    def failing() -> Iterator[Any]:
        yield problem("a")
        raise OSError("no space left")

    def endless() -> Iterator[Any]:
        try:
            while True:
                yield problem("a")
        finally:
            closed.set()

    judge = Patient()
    with pytest.raises(OSError, match="no space left"):
        list(play(failing(), climb, judge, limit=100))
    assert not judge.expected, "the queue's next user gets several sessions a task"
    playing = play(endless(), climb, Patient(), limit=100)
    assert next(playing).task.name == "a"
    playing.close()  # type: ignore[attr-defined]
    assert closed.wait(10)


def test_the_limit_ends_a_game() -> None:
    judge = Judge()
    episodes = list(play([problem("a")], climb, judge, limit=3))
    assert judge.calls == ["a 1", "a 2", "a 3"]
    assert len(episodes) == 1 and len(episodes[0].traces[0].turns) == 3


def test_a_strategy_without_proposals_ends_at_once() -> None:
    def none(given: SearchProblem) -> Proposals:
        return
        yield []

    episodes = list(play([problem("a")], none, Judge(), limit=3))
    assert len(episodes) == 1 and episodes[0].traces[0].turns == ()
