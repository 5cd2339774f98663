"""Independent attempts: a model's answers to the task, without feedback. The control that refinement has to beat at equal tokens."""

from __future__ import annotations

from dvk.search import Proposals, SearchProblem
from dvk.search.refine import rounds


def search(problem: SearchProblem) -> Proposals:
    """Rounds of single turns, until nothing new comes or at the time limit."""
    yield from rounds(problem, 1)
