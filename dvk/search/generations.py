"""Rounds of writing and judging for strategies with a `ProgramWriter` and an `Archive`, until time is over or nothing new comes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from dvk.records import Candidate, Status, Verdict
from dvk.search import Proposals
from dvk.search.archive import Archive, ArchivedProgram
from dvk.search.writer import ProgramWriter, WriteJob

STALL_ROUNDS = 3
"""Consecutive rounds without a new program that end the search: a small model repeats itself at times."""

Judging = Generator[list[Candidate], list["Verdict | None"], bool]
Following = Callable[[Archive], list[WriteJob]]
"""Writes the next generation, given all that was judged."""


def generations(writer: ProgramWriter, following: Following) -> Proposals:
    """Openings, or the jobs of `following` on the user's candidates; then those of `following`, round by round."""
    archive, patience = Archive(), Patience()
    for program in writer.seeds:
        archive.add(program)
    jobs = following(archive) if writer.seeds else writer.openings()
    while jobs:
        programs = new(writer.write(jobs))
        if not (yield from judge_all(writer, programs)):
            return
        for program in programs:
            archive.add(program)
        if patience.spent(bool(programs)):
            return
        jobs = following(archive)


def new(written: Sequence[ArchivedProgram | None]) -> list[ArchivedProgram]:
    """The items that are not None."""
    return [program for program in written if program is not None]


def judge_all(
    writer: ProgramWriter,
    programs: Sequence[ArchivedProgram],
    again: Sequence[tuple[ArchivedProgram, Candidate]] = (),
) -> Judging:
    """Have programs judged; False when the search is over, at the time limit or because the reference is broken.

    Args:
        writer: keeps the conversations that made them.
        programs: new ones; their verdicts become part of their turns.
        again: known ones, each with the candidate by which it is measured once more; judged first.
    """
    if not programs and not again:
        return True
    try:
        verdicts = yield [
            *(candidate for _, candidate in again),
            *(program.candidate for program in programs),
        ]
        for program, verdict in zip(
            [*(program for program, _ in again), *programs], verdicts, strict=True
        ):
            if verdict is None:
                continue
            program.verdicts.append(verdict)
            if program.turn.verdict is None:
                program.turn = program.turn.model_copy(update={"verdict": verdict})
        return all(
            verdict is not None and verdict.status is not Status.BROKEN_TASK for verdict in verdicts
        )
    finally:  # the time limit may strike in the middle: recorded answers stay
        for program in programs:
            writer.keep("policy", program.turn, program.skills)


class Patience:
    """Counts consecutive rounds without anything new."""

    def __init__(self) -> None:
        self.barren = 0

    def spent(self, new: bool) -> bool:
        """Record a round; returns whether the limit is reached."""
        self.barren = 0 if new else self.barren + 1
        return self.barren >= STALL_ROUNDS
