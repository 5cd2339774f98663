"""Judged programs of one search, ordered by speed and nearness to correctness, with their distances.

A program's score is its mean speedup (of logarithms, over its measurements) with an interval, or none while it is not right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import stdev

from dvk.agents.dialects import Dialect, ProseDialect
from dvk.records import Candidate, Skill, Status, Turn, Verdict
from dvk.search.novelty import distance

_NEARNESS = {
    Status.OK: 5,
    Status.MISMATCH: 4,
    Status.LAUNCH_ERROR: 3,
    Status.TIMEOUT: 3,
    Status.COMPILE_ERROR: 2,
    Status.REJECTED: 1,
    Status.CHEAT: 0,
    Status.BROKEN_TASK: 0,
}
"""Stages that a program reached: a wrong result is nearer to right than a compile error."""
LEVEL = 1.96
"""Standard errors of a mean in half of its 95 % interval."""


@dataclass(eq=False)
class ArchivedProgram:
    """One attempt with its conversation, its origin, and all its measurements."""

    turn: Turn
    """The model's program; with its first verdict once it has been judged."""
    skills: tuple[Skill, ...] = ()
    """Skills in its prompt."""
    parents: tuple[ArchivedProgram, ...] = ()
    idea: str = ""
    """Differences from its parents, in the author's words."""
    short: str = ""
    """The text that the source is assembled from, if the model writes no whole files."""
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def candidate(self) -> Candidate:
        """The parsed answer."""
        assert self.turn.candidate is not None, "a program has been read"
        return self.turn.candidate

    @property
    def text(self) -> str:
        """The text that novelty is measured on: the model's code, without the parts that every program of the task has."""
        return self.short or self.candidate.source

    @property
    def right(self) -> bool:
        """Whether it was judged, and correct each time."""
        return bool(self.verdicts) and all(verdict.status is Status.OK for verdict in self.verdicts)

    @property
    def score(self) -> float:
        """Mean speedup over eager; 0 if wrong or not timed."""
        logs = self._logs()
        return math.exp(sum(logs) / len(logs)) if logs else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """About 95 % of the mean; both 0 without a score.

        Half of its width, in logarithms, is what the measurements' own intervals say (added in quadrature, divided by their
        number) or what their scatter says, whichever is larger: processes differ by more than their clocks do.
        """
        logs = self._logs()
        if not logs:
            return 0.0, 0.0
        own = [
            math.log(v.timing.speedup.hi / v.timing.speedup.lo) / 2
            for v in self.verdicts
            if v.timing is not None
        ]
        half = math.sqrt(sum(width**2 for width in own)) / len(own)
        if len(logs) > 1:
            half = max(half, LEVEL * stdev(logs) / math.sqrt(len(logs)))
        mean = sum(logs) / len(logs)
        return math.exp(mean - half), math.exp(mean + half)

    @property
    def nearness(self) -> int:
        """Rank of the last verdict, see `_NEARNESS`."""
        return _NEARNESS[self.verdicts[-1].status] if self.verdicts else -1

    def _logs(self) -> list[float]:
        if not self.right:
            return []
        return [
            math.log(verdict.timing.speedup.value)
            for verdict in self.verdicts
            if verdict.timing is not None
        ]


def of_seeds(seeds: Sequence[Turn], dialect: Dialect) -> list[ArchivedProgram]:
    """Judged seeds as programs of an archive, right ones by speed, then wrong ones by how near they are.

    None for a dialect that reads no whole files, and none that are refused as cheating: a model would repeat it.
    """
    if not isinstance(dialect, ProseDialect):
        return []
    made = [
        ArchivedProgram(
            turn.model_copy(update={"completion": dialect.write_policy(turn.candidate.source)}),
            verdicts=[turn.verdict],
        )
        for turn in seeds
        if turn.candidate is not None
        and turn.verdict is not None
        and turn.verdict.status not in (Status.CHEAT, Status.BROKEN_TASK)
    ]
    return sorted(made, key=lambda one: (one.right, one.score, one.nearness), reverse=True)


class Archive:
    """The programs that were judged, in the order they came."""

    def __init__(self) -> None:
        self.programs: list[ArchivedProgram] = []

    def add(self, program: ArchivedProgram) -> None:
        """Add a judged program."""
        self.programs.append(program)

    @property
    def right(self) -> list[ArchivedProgram]:
        """Correct ones, the fastest first, the earlier of equals first."""
        return sorted((p for p in self.programs if p.right), key=lambda p: -p.score)

    @property
    def wrong(self) -> list[ArchivedProgram]:
        """The others, the nearest to right first, the latest of equals first."""
        return sorted(
            reversed([p for p in self.programs if not p.right]), key=lambda p: -p.nearness
        )

    def ranked(self) -> list[ArchivedProgram]:
        """All: right ones by speed, then wrong ones by how near they are."""
        return [*self.right, *self.wrong]

    def unlike(self, number: int, beside: Sequence[ArchivedProgram]) -> list[ArchivedProgram]:
        """`count` right programs that are farthest from those in `beside` and from each other, the farthest first."""
        chosen: list[ArchivedProgram] = []
        left = [program for program in self.right if program not in beside]
        while left and len(chosen) < number:
            farthest = max(left, key=lambda program: gap(program, [*beside, *chosen]))
            left.remove(farthest)
            chosen.append(farthest)
        return chosen


def gap(program: ArchivedProgram, others: Sequence[ArchivedProgram]) -> float:
    """Distance to the nearest of `others`; 1 if there is none."""
    return min((distance(program.text, other.text) for other in others), default=1.0)
