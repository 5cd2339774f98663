"""Play one strategy on many tasks at once: all take a step, their candidates are judged together.

For tables over suites, where what counts is verdicts a second over all tasks; `dvk optimize` plays one
task against the clock instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dvk.records import Candidate, Episode, Task, Trace, Turn, Verdict
from dvk.search import Problem, Proposals, Strategy

Judge = Callable[[Sequence[tuple[Task, Candidate]]], Iterable[tuple[int, Verdict]]]
"""Jobs in, (position, verdict) out, one a job in any order."""


@dataclass
class _Game:
    problem: Problem
    proposals: Proposals
    batch: list[Candidate] | None
    known: dict[str, Verdict] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)

    def wanted(self, limit: int) -> list[Candidate]:
        """The batch's candidates without a verdict, each once, as many as `limit` leaves."""
        fresh = {c.id: c for c in self.batch or () if c.id not in self.known}
        return list(fresh.values())[: max(0, limit - len(self.known))]

    def answer(self) -> None:
        """Tell the strategy what became of its batch."""
        assert self.batch is not None
        try:
            self.batch = self.proposals.send([self.known.get(c.id) for c in self.batch])
        except StopIteration:
            self.batch = None

    def episode(self) -> Episode:
        skills = tuple(s.name for s in self.problem.skills)
        return Episode(task=self.problem.task, traces=(Trace(role="policy", skills=skills, turns=tuple(self.turns)),))


def play(problems: Iterable[Problem], strategy: Strategy, judge: Judge, limit: int) -> Iterator[Episode]:
    """An episode a problem, as each ends.

    Args:
        problems: what to play; none for which `strategy` raises.
        strategy: see `dvk.search`.
        judge: e.g. a `Pool`'s map at some tier.
        limit: candidates judged a problem at most; the strategy is told None for the others and ends there.
    """
    games = []
    for problem in problems:
        proposals = strategy(problem)
        games.append(_Game(problem, proposals, next(proposals, None)))
    while games:
        asked = [(game, candidate) for game in games for candidate in game.wanted(limit)]
        for position, verdict in judge([(game.problem.task, candidate) for game, candidate in asked]):
            game, candidate = asked[position]
            game.known[candidate.id] = verdict
            game.turns.append(Turn(candidate=candidate, verdict=verdict))
        going = []
        for game in games:
            if game.batch is not None:
                game.answer()
            if game.batch is None or len(game.known) >= limit:
                yield game.episode()
            else:
                going.append(game)
        games = going
