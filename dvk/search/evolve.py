"""Evolution: programs are improved and crossed, and a small archive of the best and of those unlike them lives on.

Two things are chosen separately, as EvoEngineer (arXiv 2510.03760) does: a child's prompt and operation
(traverse technique: `information`; mutation or crossover), and which programs may be parents (population management).
Kernel-Smith's archive (2603.28342), top plus diverse, is the default population, and both kinds are shown with the
parent. Insights need no extra call of the model; they are the search's observations: the idea that an answer states, with its
effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dvk.agents import feedback
from dvk.agents.briefs import Brief
from dvk.config import EvolveConfig
from dvk.records import Turn, show_ratio
from dvk.search import Proposals, SearchProblem
from dvk.search.archive import Archive, ArchivedProgram, gap
from dvk.search.generations import generations
from dvk.search.writer import ProgramWriter, WriteJob

TOP = 3
"""Best programs in the archive; with `diverse` EvoEngineer's population of 5."""
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
    settings = writer.settings
    members = population(archive, settings.evolve)
    if not members:
        return writer.openings(settings.openings)
    told = insights(archive, INSIGHTS) if settings.evolve.information != "free" else []
    lessons = "\n".join(f"- {line}" for line in told)
    jobs = []
    for child in range(settings.offspring):
        parent = members[((generation - 1) * settings.offspring + child) % len(members)]
        title = f"generation {generation}, child {child + 1}"
        others = [member for member in members if member is not parent and member.right]
        if parent.right and others and writer.rng.random() < CROSSOVER:
            parents = sorted(
                [max(others, key=lambda other: gap(other, [parent])), parent], key=lambda p: p.score
            )
            jobs.append(writer.revision(Brief("combine", _turns(parents), lessons), parents, title))
        else:
            beside = examples(archive, parent) if settings.evolve.information == "full" else []
            jobs.append(
                writer.revision(
                    Brief("improve", _turns([*beside, parent]), lessons), [parent], title
                )
            )
    return jobs


def population(archive: Archive, settings: EvolveConfig) -> list[ArchivedProgram]:
    """Candidates for parents, the fittest first; while nothing is right, those nearest to it."""
    size = 1 if settings.population == "single" else TOP + DIVERSE
    if not archive.right:
        return archive.wrong[:size]
    if settings.population != "diverse":
        return archive.right[:size]
    top = archive.right[:TOP]
    return [*top, *archive.unlike(DIVERSE, top)]


def examples(archive: Archive, parent: ArchivedProgram) -> list[ArchivedProgram]:
    """The best program and the one most unlike it and the parent, the slower first: what `full` information adds."""
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
