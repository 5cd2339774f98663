"""One change at a time: a reviewer reads a program's measurements and names exactly one change, a writer makes it.

CudaForge (arXiv 2511.01884). While the program is not right, the reviewer sees the error alone and names a repair; speed
is mentioned only once it is right. Memory is the current program with its last findings. Unlike there, a change is kept
only if it made the program faster: else it is undone, and listed for the reviewer so that it is not named again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dvk.agents import feedback
from dvk.agents.briefs import Brief, ReviewAdvice
from dvk.agents.dialects import ProseDialect
from dvk.records import show_ratio
from dvk.search import Proposals, SearchProblem
from dvk.search.archive import ArchivedProgram
from dvk.search.generations import Patience, judge_all, new
from dvk.search.writer import ProgramWriter, WriteJob

BRANCHES = 2
"""Programs improved in parallel, so that a model that batches is used; CudaForge: 1."""
ROUNDS = 10
"""Changes to a program before it is restarted; CudaForge: 10."""
REPAIRS = 3
"""Attempts to repair a change before it is undone: most repairs take one or two."""
HISTORY = 5
"""Failed changes to include in the prompt, so that the model does not repeat them."""


def search(problem: SearchProblem) -> Proposals:
    """See the module."""
    writer = ProgramWriter(problem, "judge")
    dialect = writer.prose("has a reviewer say in words what to change")
    patience = Patience()
    branches = [
        Branch.of(writer.seeds[n % len(writer.seeds)]) if writer.seeds else Branch()
        for n in range(BRANCHES)
    ]
    number = 0
    while True:
        number += 1
        jobs = asked(writer, dialect, branches, number)
        written = writer.write(jobs)
        if not (yield from judge_all(writer, new(written))):
            return
        for branch, program in zip(branches, written, strict=True):
            branch.next_round(program)
        if patience.spent(bool(new(written))):
            return


@dataclass
class Branch:
    """One program on its way."""

    current: ArchivedProgram | None = None
    """The one to change next; None: start a new one."""
    best: ArchivedProgram | None = None
    """The fastest right one, restored after a failed change."""
    tried: list[str] = field(default_factory=list)
    """Changes of `best` that failed, each with its result."""
    change: str = ""
    """The change in progress; empty at a new beginning or when only findings are passed on."""
    broke: str = ""
    """The change that made `current` wrong."""
    repairs: int = 0
    """Repair attempts so far."""
    rounds: int = 0

    @classmethod
    def of(cls, program: ArchivedProgram) -> Branch:
        """A branch that begins with a judged program."""
        return cls(current=program, best=program if program.right else None)

    def next_round(self, program: ArchivedProgram | None) -> None:
        """Advance after a round.

        Args:
            program: the new program, judged; None if there was none.
        """
        self.rounds += 1
        if program is not None:
            if not program.right:
                self._wrong(program)
            elif self.best is None or program.score > self.best.score:
                self.current = self.best = program
                self.tried, self.broke, self.repairs = [], "", 0
            else:
                self._undone(
                    self.broke or self.change,
                    f"no faster: {show_ratio(program.score)} after {show_ratio(self.best.score)}"
                    if program.score and self.best.score
                    else "right, and not timed",
                )
        elif self.change:
            self._undone(self.broke or self.change, "nothing new was written")
        if self.rounds >= ROUNDS:
            self.current = self.best = None
            self.tried, self.broke, self.repairs, self.rounds = [], "", 0, 0

    def _wrong(self, program: ArchivedProgram) -> None:
        if self.current is not None and not self.current.right:
            self.repairs += 1
        else:
            self.broke, self.repairs = self.change, 0
        self.current = program
        if self.repairs >= REPAIRS:
            self._undone(self.broke or self.change, feedback.short(program.verdicts[-1]))

    def _undone(self, change: str, why: str) -> None:
        """Back to the best; if there is none, to a new beginning."""
        if self.best is not None and change:
            self.tried = [*self.tried, f"{' '.join(change.split())} ({why})"][-HISTORY:]
        self.current, self.broke, self.repairs = self.best, "", 0


def asked(
    writer: ProgramWriter, dialect: ProseDialect, branches: Sequence[Branch], number: int
) -> list[WriteJob]:
    """A job a branch: a beginning, or the change that the reviewer names now."""
    going = [branch for branch in branches if branch.current is not None]
    advice = iter(review(writer, dialect, going))
    openings = iter(writer.openings(len(branches) - len(going), f"round {number}, opening"))
    jobs = []
    for place, branch in enumerate(branches, 1):
        branch.change = ""
        if branch.current is None:
            jobs.append(next(openings))
            continue
        said = next(advice)
        title = f"round {number}, branch {place}"
        if said is None:  # unparsable: only the findings are passed on
            brief = Brief("improve", (branch.current.turn,))
        else:
            branch.change = said.change
            brief = Brief("change", (branch.current.turn,), change=said.change)
        jobs.append(writer.revision(brief, [branch.current], title))
    return jobs


def review(
    writer: ProgramWriter, dialect: ProseDialect, branches: Sequence[Branch]
) -> list[ReviewAdvice | None]:
    """The reviewer's answer on each branch's program; None if it could not be parsed."""
    questions = []
    for branch in branches:
        assert branch.current is not None, "it has a program"
        tried = branch.tried if branch.current is branch.best else ()
        questions.append(dialect.advise(writer.subject, branch.current.turn, tried, writer.agents))
    return writer.parsed_answers("selection", questions, dialect.read_advice)
