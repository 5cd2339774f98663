"""Evidence of skills from searches on this machine: a gain for each skill and task, in the library's file.

A search that ends adds its measurements in one transaction. They are read as one entry of evidence for each skill; the skills themselves,
and their history, stay as they are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from dvk.errors import LibraryError
from dvk.skills.usage import LEVEL, estimate

if TYPE_CHECKING:
    from dvk.records import Skill
    from dvk.skills.library import Library

SEARCH = "search"


class SearchedGain(NamedTuple):
    """A skill's gain on the task of a search.

    Attributes:
        log: logarithm of the speed with its change over the speed without.
        clock: standard deviation of it by the clock.
    """

    skill: str
    log: float
    clock: float


def add(
    library: Library, machine: str, backend: str, task: str, gains: Sequence[SearchedGain]
) -> None:
    """Record a search's gains; nothing if the library cannot be written, since a search must not end for that."""
    rows = [(g.skill, machine, backend, task, g.log, g.clock) for g in gains]
    if rows:
        with suppress(LibraryError):
            library.run_all("INSERT OR REPLACE INTO searched VALUES (?, ?, ?, ?, ?, ?)", rows)


def with_searched(
    library: Library, skills: Iterable[Skill], machine: str, backend: str
) -> list[Skill]:
    """The skills, each with what searches on a machine measured of it as a last entry of its evidence."""
    sql = "SELECT skill, log_gain, clock FROM searched WHERE machine = ? AND backend = ?"
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with suppress(LibraryError):
        for name, log, clock in library.run(sql, (machine, backend)):
            pairs[name].append((log, clock))
    result = []
    for skill in skills:
        if gains := pairs.get(skill.name):
            logs = [log for log, _ in gains]
            mean, lo, hi = estimate(logs, [1.0] * len(logs), LEVEL)
            entry = {
                "source": SEARCH,
                "machine": machine,
                "backend": backend,
                "tasks": len(logs),
                "gain": math.exp(mean),
                "lo": None if lo is None else math.exp(lo),
                "hi": None if hi is None else math.exp(hi),
            }
            skill = skill.model_copy(update={"evidence": (*skill.evidence, entry)})
        result.append(skill)
    return result
