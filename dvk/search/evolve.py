"""Evolution: programs are improved and crossed, and a small archive of the best and of those unlike them lives on.

Two things are chosen separately, as in EvoEngineer (arXiv 2510.03760): a child's prompt and operation (mutation or
crossover), and which programs may be parents. The population is Kernel-Smith's archive (2603.28342), the best programs
and diverse ones, and both kinds are shown with the parent. Insights need no extra call of the model: they are the idea
that an answer states, with its measured effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dvk.agents import feedback
from dvk.agents.briefs import Brief
from dvk.records import Turn, show_ratio
from dvk.search import Proposals, SearchProblem
from dvk.search import writer as writing
from dvk.search.archive import Archive, ArchivedProgram, gap
from dvk.search.generations import generations
from dvk.search.writer import ProgramWriter, WriteJob

TOP = 3
"""Best programs in the archive; with `DIVERSE` EvoEngineer's population of 5."""
DIVERSE = 2
"""Programs in it for their dissimilarity."""
CROSSOVER = 0.25
"""Share of children with two parents: a mutation keeps more of what works."""
INSIGHTS = 6
"""Ideas in the prompt with their results, largest changes first: half a page."""


def search(problem: SearchProblem) -> Proposals:
    """See the module."""
    writer = ProgramWriter(problem, "evolve")
    generation = 0

    def following(archive: Archive) -> list[WriteJob]:
        nonlocal generation
        generation += 1
        return children(writer, archive, generation)

    yield from generations(writer, following)


def children(writer: ProgramWriter, archive: Archive, generation: int) -> list[WriteJob]:
    """The next generation: the members of the population are parents in turn, from generation to generation."""
    members = population(archive)
    if not members:
        return writer.openings()
    lessons = "\n".join(f"- {line}" for line in insights(archive, INSIGHTS))
    jobs = []
    for child in range(writing.NUM_OFFSPRING):
        parent = members[((generation - 1) * writing.NUM_OFFSPRING + child) % len(members)]
        title = f"generation {generation}, child {child + 1}"
        others = [member for member in members if member is not parent and member.right]
        if parent.right and others and writer.rng.random() < CROSSOVER:
            parents = sorted(
                [max(others, key=lambda other: gap(other, [parent])), parent], key=lambda p: p.score
            )
            jobs.append(writer.revision(Brief("combine", _turns(parents), lessons), parents, title))
        else:
            shown = _turns([*examples(archive, parent), parent])
            jobs.append(writer.revision(Brief("improve", shown, lessons), [parent], title))
    return jobs


def population(archive: Archive) -> list[ArchivedProgram]:
    """Candidates for parents: the best few and those least similar to them; while nothing is right, those nearest to it."""
    if not archive.right:
        return archive.wrong[: TOP + DIVERSE]
    top = archive.right[:TOP]
    return [*top, *archive.unlike(DIVERSE, top)]


def examples(archive: Archive, parent: ArchivedProgram) -> list[ArchivedProgram]:
    """The best program and the one most unlike it and the parent, the slower first."""
    best = [program for program in archive.right[:1] if program is not parent]
    other = archive.unlike(1, [parent, *best])
    return sorted([*best, *other], key=lambda program: program.score)


def insights(archive: Archive, most: int) -> list[str]:
    """Ideas with their outcomes: those that changed most first, then those that broke something, the latest first."""
    changed: list[tuple[float, str]] = []
    broke: list[str] = []
    for program in archive.programs:
        before = max((parent.score for parent in program.parents), default=0.0)
        if not program.idea or not before:
            continue
        if program.right and program.score:
            text = f"{program.idea}: from {show_ratio(before)} to {show_ratio(program.score)}"
            changed.append((abs(math.log(program.score / before)), text))
        elif not program.right:
            broke.append(f"{program.idea}: {feedback.short(program.verdicts[-1])}")
    told = [text for _, text in sorted(reversed(changed), key=lambda pair: -pair[0])]
    return list(dict.fromkeys([*told, *reversed(broke)]))[:most]


def _turns(programs: Sequence[ArchivedProgram]) -> tuple[Turn, ...]:
    return tuple(program.turn for program in programs)
