"""Random plans: the control for strategies.

Draws recipes and schedules uniformly, seeded by the configuration, without looking at verdicts. As with every search of the composer,
the last candidate is the model as it is where nothing was shown to be faster (`as_it_is`).
"""

from __future__ import annotations

import random

from dvk.composer import Plan, codegen
from dvk.composer.plan_space import MEASURED
from dvk.search import Proposals, SearchProblem, as_it_is
from dvk.search.composer import Planner

BATCH = 8
MAX_PLANS = 512
"""Enough for any budget: the search ends at the time limit."""


def search(problem: SearchProblem) -> Proposals:
    """Endless plans, as far as the budget reaches."""
    planner = Planner(problem)
    yield from as_it_is.last(_drawn(problem, planner), planner.unchanged, problem.limit)


def _drawn(problem: SearchProblem, planner: Planner) -> Proposals:
    rng = random.Random(problem.config.seed)
    writer = codegen(problem.backend)
    always = tuple(r for r in planner.order if r not in MEASURED)
    optional = [r for r in planner.order if r in MEASURED]
    seen: set[str] = set()
    for start in range(0, MAX_PLANS, BATCH):
        batch = []
        for number in range(start, start + BATCH):
            recipes = (*always, *(r for r in optional if rng.random() < 0.5))
            kernels = planner.fused(recipes).ordered
            plan = Plan(
                recipes, {k.name: rng.choice(writer.schedules(k, problem.target)) for k in kernels}
            )
            candidate = planner.candidate(plan, f"random {number}")
            if candidate.id not in seen:
                seen.add(candidate.id)
                batch.append(candidate)
        if not batch:
            return
        yield batch
