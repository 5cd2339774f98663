"""A queue by mean score: the best-looking programs are measured again if noise could decide, and improved.

POLCA (arXiv 2603.14769): candidates wait in a priority queue keyed by the mean of their noisy scores. Popped candidates
are measured again, a model proposes from their feedback and from a running summary of the whole search, and a proposal
is admitted only if it is not within ε of a kept one. Here a program is measured again only while its interval overlaps
the leader's (for the leader: any other), since more would change no choice; and wrong programs do not count as kept, or no
small mistake could be repaired.

A model without prose keeps no summary in prose: the summary agent's notes take its place, in the form it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

from dvk.agents import summary
from dvk.agents.briefs import Brief
from dvk.agents.dialects import ProseDialect
from dvk.agents.reading import MalformedAnswer
from dvk.backbone import Completion
from dvk.records import Skill, Trace
from dvk.search import Proposals, SearchProblem
from dvk.search.archive import Archive, ArchivedProgram, gap
from dvk.search.generations import Patience, judge_all, new
from dvk.search.repeats import repeat
from dvk.search.writer import ProgramWriter, WriteJob

POPPED = 5
"""Programs taken from the queue per step; POLCA: 5."""
MEASUREMENTS = 4
"""Most measurements of one program; the mean's error falls with the square root, so a fifth gains a tenth."""
NOVELTY = 0.005
"""Least distance (see dvk.search.novelty) of a new program from every correct one: other names, layout or comments have 0, one changed
number in a file of 300 lines 0.006. POLCA's 0.02 is a distance of embeddings."""
SUMMARY_TOKENS = 400
"""Tokens of the running summary: one page, as much as feedback on one attempt."""

TOLD = 3
"""Right programs in the trace that notes are taken from: the slowest, one between and the best, as in a conversation of three turns."""


def search(problem: SearchProblem) -> Proposals:
    """See the module."""
    writer = ProgramWriter(problem, "polca")
    archive, memory, patience = Archive(), RunningSummary(writer), Patience()
    for program in writer.seeds:
        archive.add(program)
    jobs = proposals(writer, memory, archive.ranked()[:POPPED], 0)
    again: list[ArchivedProgram] = []
    step = 0
    while True:
        programs = admitted(new(writer.write(jobs)), archive, writer)
        measured = [
            (program, repeat(program.candidate, len(program.verdicts) + 1)) for program in again
        ]
        if not (yield from judge_all(writer, programs, measured)):
            return
        for program in programs:
            archive.add(program)
        if patience.spent(bool(programs or again)):
            return
        step += 1
        popped = archive.ranked()[:POPPED]
        again = [program for program in popped if uncertain(program, archive.right)]
        memory.update(archive, programs)
        jobs = proposals(writer, memory, popped, step)


def proposals(
    writer: ProgramWriter, memory: RunningSummary, popped: Sequence[ArchivedProgram], step: int
) -> list[WriteJob]:
    """One job a program taken from the queue; openings while it is empty."""
    if not popped:
        return writer.openings()
    return [
        writer.revision(
            Brief("improve", (program.turn,), memory.text),
            [program],
            f"step {step}, from place {place}",
            memory.notes,
        )
        for place, program in enumerate(popped, 1)
    ]


def admitted(
    programs: Sequence[ArchivedProgram], archive: Archive, writer: ProgramWriter
) -> list[ArchivedProgram]:
    """Those that are farther than `NOVELTY` from every right program and from each other, to be judged; the others are only kept."""
    right = archive.right
    net: list[ArchivedProgram] = []
    for program in programs:
        if gap(program, [*right, *net]) > NOVELTY:
            net.append(program)
        else:
            writer.keep("policy", program.turn, program.skills)
    return net


def uncertain(program: ArchivedProgram, right: Sequence[ArchivedProgram]) -> bool:
    """Whether another measurement could change the leader.

    Args:
        program: taken from the queue.
        right: all correct programs, the best mean first.
    """
    if not program.right or not program.score or len(program.verdicts) >= MEASUREMENTS:
        return False
    rivals = right[1:] if program is right[0] else right[:1]
    lo, hi = program.interval
    return any(
        rival.interval[0] <= hi and lo <= rival.interval[1] for rival in rivals if rival.score
    )


class RunningSummary:
    """The running summary: prose, or notes for a model that reads only those."""

    def __init__(self, writer: ProgramWriter):
        self.writer = writer
        self.text = ""
        self.notes: tuple[Skill, ...] = ()
        self._best: ArchivedProgram | None = None

    def update(self, archive: Archive, new: Sequence[ArchivedProgram]) -> None:
        """Update it with a step's new programs; unchanged if the answer does not parse."""
        if isinstance(self.writer.dialect, ProseDialect):
            if new:
                self._words(self.writer.dialect, new)
        else:
            self._notes(archive)

    def _words(self, dialect: ProseDialect, new: Sequence[ArchivedProgram]) -> None:
        num_tokens = SUMMARY_TOKENS
        turns = [program.turn for program in new]
        question = dialect.digest(
            self.writer.subject, self.text, turns, num_tokens, self.writer.agents
        )
        (found,) = self.writer.parsed_answers(
            "summary", [question], lambda answer: dialect.read_digest(answer, num_tokens)
        )
        self.text = found or self.text

    def _notes(self, archive: Archive) -> None:
        """Whether a summary is due: there is a new best program and something it is better than."""
        timed = [program for program in reversed(archive.right) if program.score]
        if len(timed) < 2 or timed[-1] is self._best:
            return
        self._best = timed[-1]
        told = (
            [timed[0], *timed[len(timed) // 2 : -1][: TOLD - 2], timed[-1]]
            if len(timed) > 2
            else timed
        )
        trace = Trace(role="policy", turns=tuple(program.turn for program in told))
        writer = self.writer

        def read(answer: Completion) -> tuple[Skill, ...]:
            found = summary.read(
                writer.dialect, writer.subject, answer, trace, writer.agents, {"source": "run"}
            )
            if found.malformed:
                raise MalformedAnswer(found.malformed)
            return found.skills

        question = writer.dialect.summary(writer.subject, trace, (), writer.agents)
        (notes,) = writer.parsed_answers("summary", [question], read)
        self.notes = notes or self.notes
