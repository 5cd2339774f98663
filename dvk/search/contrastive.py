"""Contrast: programs of unequal speed side by side with their scores, to be compared in words before another is written.

CUDA-L1 (arXiv 2507.14111): correct programs fall into buckets by score; buckets are drawn by a softmax over their scores, and
from each one program. No two in a prompt come from the same bucket, or there would be no difference to explain. A set of
programs is compared once. If none is left to compare, a program that is not right yet is repaired, each once, or
another is begun.
"""

from __future__ import annotations

import math
from collections import defaultdict

from dvk.agents.briefs import Brief
from dvk.search import Proposals, SearchProblem
from dvk.search import writer as writing
from dvk.search.archive import Archive, ArchivedProgram
from dvk.search.generations import generations
from dvk.search.writer import ProgramWriter, WriteJob

EXEMPLARS = 2
"""Programs compared in a prompt; CUDA-L1: 2."""
BUCKET = 1.1
"""Ratio of speedups between two buckets: differences within 10 % explain little."""
TEMPERATURE = 0.3
"""Softmax temperature over buckets, with speedups as shares of the best: at 0.3 half the best speed is drawn a fifth as often as the
best."""

DRAWS = 64
"""Draws before all sets count as compared: with weights, the last unlikely ones are not worth waiting for."""


def search(problem: SearchProblem) -> Proposals:
    """See the module."""
    writer = ProgramWriter(problem, "contrastive")
    writer.prose("asks for a comparison in words before code")
    compared: set[frozenset[str]] = set()
    repaired: set[str] = set()

    def following(archive: Archive) -> list[WriteJob]:
        jobs: list[WriteJob] = []
        for number in range(writing.NUM_OFFSPRING):
            exemplars = draw(archive, writer, compared)
            if exemplars:
                brief = Brief("contrast", tuple(program.turn for program in exemplars))
                jobs.append(writer.revision(brief, exemplars, f"contrast {len(compared)}"))
            elif broken := next((p for p in archive.wrong if p.candidate.id not in repaired), None):
                repaired.add(broken.candidate.id)
                jobs.append(
                    writer.revision(
                        Brief("improve", (broken.turn,)), [broken], f"repair {len(repaired)}"
                    )
                )
            else:
                jobs += writer.openings(writing.NUM_OFFSPRING - number)
                break
        return jobs

    yield from generations(writer, following)


def draw(
    archive: Archive, writer: ProgramWriter, compared: set[frozenset[str]]
) -> list[ArchivedProgram]:
    """Programs of different buckets, the slowest first, that were never compared; empty when there are none. Adds to `compared`."""
    rng = writer.rng
    filled = buckets(archive)
    if len(filled) < EXEMPLARS:
        return []
    best = max(level for level in filled)
    weights = {level: math.exp(BUCKET ** (level - best) / TEMPERATURE) for level in filled}
    for _ in range(DRAWS):
        levels: list[int] = []
        while len(levels) < EXEMPLARS:
            left = [level for level in filled if level not in levels]
            levels += rng.choices(left, [weights[level] for level in left])
        chosen = [rng.choice(filled[level]) for level in sorted(levels)]
        key = frozenset(program.candidate.id for program in chosen)
        if key not in compared:
            compared.add(key)
            return chosen
    return []


def buckets(archive: Archive) -> dict[int, list[ArchivedProgram]]:
    """Correct, timed programs by the level of their speedup: a level starts at `BUCKET` to the power of the level."""
    result: dict[int, list[ArchivedProgram]] = defaultdict(list)
    for program in reversed(archive.right):
        if program.score:
            result[math.floor(math.log(program.score) / math.log(BUCKET))].append(program)
    return dict(result)
