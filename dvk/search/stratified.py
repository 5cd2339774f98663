"""Plans that cover what the composer can do for a task, for tables of measured plans (`dvk.composer.plan_list`)."""

from __future__ import annotations

from dvk.composer import CannotCompose
from dvk.composer.plan_list import listed
from dvk.records import Candidate
from dvk.search import SearchProblem
from dvk.search.composer import Planner


def plans(problem: SearchProblem, count: int, seed: int) -> list[tuple[str, Candidate]]:
    """Up to `count` distinct candidates, each with its kind: default, structure, algorithm or random.

    Raises:
        CannotCompose: there is no graph, or the default cannot be composed.
    """
    planner = Planner(problem)
    found: dict[str, tuple[str, Candidate]] = {}
    for kind, plan, _ in listed(planner, count, seed):
        if len(found) >= count:
            break
        try:
            candidate = planner.candidate(plan, kind)
        except CannotCompose:
            if not found:
                raise
            continue
        found.setdefault(candidate.id, (kind, candidate))
    return list(found.values())
