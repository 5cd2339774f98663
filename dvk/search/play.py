"""Play one strategy on many tasks, several at a time: each continues as soon as its own candidates are judged.

It serves tables over suites, where verdicts a second over all tasks count; `dvk optimize` plays one
task against the clock instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from dvk import crashes
from dvk.composer import CannotCompose
from dvk.records import Candidate, Episode, Task, Trace, Turn, Verdict
from dvk.search import Proposals, SearchProblem, Strategy
from dvk.search.ahead import prepared_ahead

LOOK_S = 0.2
"""Longest wait for the next problem while others are played."""


class JudgeClient(Protocol):
    """Queue in which candidates are judged as they come: `dvk.harness.queue.JudgeQueue`."""

    workers: int

    def expect(self, more: bool) -> None: ...

    def submit(self, name: tuple[int, str], task: Task, candidate: Candidate) -> None: ...

    def results(self, *, wait: bool) -> Sequence[tuple[tuple[int, str], Verdict]]: ...


@dataclass
class _Game:
    problem: SearchProblem
    strategy: Strategy
    proposals: Proposals | None = None
    batch: list[Candidate] | None = None
    known: dict[str, Verdict] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    asked: dict[str, Candidate] = field(default_factory=dict)
    """Candidates being judged."""

    def next_candidates(self, limit: int) -> list[Candidate]:
        """The batch's candidates without a verdict, each once, as many as `limit` leaves."""
        fresh = {c.id: c for c in self.batch or () if c.id not in self.known}
        return list(fresh.values())[: max(0, limit - len(self.known))]

    def answer(self) -> None:
        """Send the strategy its batch's verdicts, and return its next proposals; at first, only the latter.

        An exception in it ends the game: it is the last turn's verdict.
        """
        try:
            if self.proposals is None:
                self.proposals = self.strategy(self.problem)
                self.batch = next(self.proposals)
            else:
                self.batch = self.proposals.send([self.known.get(c.id) for c in self.batch or ()])
        except StopIteration:
            self.batch = None
        except Exception as error:  # the fence: see dvk.crashes
            if crashes.ends_the_run(error):
                raise
            cannot = isinstance(error, CannotCompose)
            crash = (
                crashes.Crashed(f"it cannot be composed: {error}")
                if cannot
                else crashes.crashed(error, "composing it")
            )
            self.turns.append(Turn(verdict=crashes.verdict(crash, "search")))
            self.batch = None

    def episode(self) -> Episode:
        skills = tuple(s.name for s in self.problem.skills)
        return Episode(
            task=self.problem.task,
            traces=(Trace(role="policy", skills=skills, turns=tuple(self.turns)),),
        )


def play(
    problems: Iterable[SearchProblem], strategy: Strategy, judging: JudgeClient, limit: int
) -> Iterator[Episode]:
    """Yield an episode a problem, as each ends.

    Args:
        problems: what to play, taken as there is room, in another thread: one that takes long to prepare holds up no other.
        strategy: see `dvk.search`.
        judging: as many problems are played at a time as it has workers, so that each can stay with one task.
        limit: candidates judged a problem at most; the strategy gets None for the others and ends there.
    """
    games: dict[int, _Game] = {}
    number = 0
    judging.expect(True)
    with ExitStack() as leaving, prepared_ahead(problems) as ahead:
        leaving.callback(judging.expect, False)
        while True:
            while len(games) < judging.workers and not ahead.ended:
                problem = ahead.take(LOOK_S if games else None)
                if problem is None:
                    break
                game = _Game(problem, strategy)
                game.answer()
                if advance(number, game, judging, limit):
                    games[number] = game
                else:
                    yield game.episode()
                number += 1
            if not games and ahead.ended:
                return
            full = len(games) >= judging.workers or ahead.ended
            judging.expect(not full)
            yield from _judged(games, judging, limit, wait=full)


def _judged(
    games: dict[int, _Game], judging: JudgeClient, limit: int, *, wait: bool
) -> Iterator[Episode]:
    """Continue the games whose verdicts have come; yield the episodes of those that end."""
    for (number, id_), verdict in judging.results(wait=wait) if games else ():
        game = games[number]
        game.known[id_] = verdict
        game.turns.append(Turn(candidate=game.asked.pop(id_), verdict=verdict))
        if game.asked:
            continue
        game.answer()
        if not advance(number, game, judging, limit):
            yield games.pop(number).episode()


def advance(number: int, game: _Game, judging: JudgeClient, limit: int) -> bool:
    """Have the game's next candidates judged; returns whether there were any."""
    while game.batch is not None and len(game.known) < limit:
        for candidate in game.next_candidates(limit):
            game.asked[candidate.id] = candidate
            judging.submit((number, candidate.id), game.problem.task, candidate)
        if game.asked:
            return True
        game.answer()
    return False
