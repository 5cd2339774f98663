"""Many tasks in lockstep, on verdicts that we make up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from dvk.records import Candidate, Interval, Status, Task, Timing, Verdict
from dvk.search import Problem, Proposals
from dvk.search.play import play


def problem(name: str) -> Any:
    return SimpleNamespace(task=Task(id=name, name=name, source="", entry="Model", kind="module"), skills=())


def candidate(text: str) -> Candidate:
    return Candidate(source=text, backend="cpp")


def climb(given: Problem) -> Proposals:
    """Goes on from the better of two, three times."""
    best = 0
    for _ in range(3):
        batch = [candidate(f"{given.task.name} {best + step}") for step in (1, 2)]
        verdicts = yield batch
        best = max([best, *(int(v.timing.candidate_ms) for v in verdicts if v and v.timing)])


class Judge:
    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, jobs: Sequence[tuple[Task, Candidate]]) -> Iterator[tuple[int, Verdict]]:
        self.calls.append([c.source for _, c in jobs])
        for position in reversed(range(len(jobs))):
            value = int(jobs[position][1].source.split()[1])
            one = Interval(value=1, lo=1, hi=1)
            timing = Timing(candidate_ms=value, reference_ms=1, speedup=one, num_pairs=9, seconds=0)
            yield position, Verdict(status=Status.OK, tier="search", stage="done", timing=timing)


def test_all_tasks_step_together_and_nothing_is_judged_twice() -> None:
    judge = Judge()
    episodes = list(play([problem("a"), problem("b")], climb, judge, limit=100))
    assert judge.calls == [["a 1", "a 2", "b 1", "b 2"], ["a 3", "a 4", "b 3", "b 4"], ["a 5", "a 6", "b 5", "b 6"]]
    assert sorted(e.task.name for e in episodes) == ["a", "b"]
    first = episodes[0]
    played = sorted(t.candidate.source for t in first.traces[0].turns if t.candidate)
    assert played == [f"{first.task.name} {i}" for i in range(1, 7)]


def test_the_limit_ends_a_game() -> None:
    judge = Judge()
    episodes = list(play([problem("a")], climb, judge, limit=3))
    assert judge.calls == [["a 1", "a 2"], ["a 3"]]
    assert len(episodes) == 1 and len(episodes[0].traces[0].turns) == 3


def test_a_strategy_without_proposals_ends_at_once() -> None:
    def none(given: Problem) -> Proposals:
        return
        yield []

    episodes = list(play([problem("a")], none, Judge(), limit=3))
    assert len(episodes) == 1 and episodes[0].traces[0].turns == ()
