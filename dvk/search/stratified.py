"""Plans that cover what the composer can do for a task, for tables of measured plans.

The default first; each other structure (recipes that may lose); each algorithm of each kernel, those that move most bytes first; then
random mixtures. Every recipe and every algorithm occurs before any is repeated, so far as the count permits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from dvk.composer import CannotCompose, Plan, codegen
from dvk.composer.algorithms import algorithms
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.plan_space import MEASURED
from dvk.records import Candidate
from dvk.search import SearchProblem
from dvk.search.classes import group_equal_kernels
from dvk.search.composer import Planner

HALF = 0.5
"""Share of random mixtures that change recipes; the others change schedules alone."""
REPLAYED = 0.1
"""Share of those that become a CUDA graph: it pays in few tasks, and none of their kernels' differences is seen where it does not."""
TRIES = 6
"""Draws per plan asked for: a small task has few."""
WITH_ALGORITHMS = ("cpp", "triton")
"""Back ends whose algorithms have names."""
WITH_NAMES = ("pointwise", "row", "column", "product")
"""Families of kernels whose algorithms have names; windows and scans have few schedules."""


def plans(problem: SearchProblem, count: int, seed: int) -> list[tuple[str, Candidate]]:
    """Up to `count` distinct candidates, each with its kind: default, structure, algorithm or random.

    Raises:
        CannotCompose: there is no graph, or the default cannot be composed.
    """
    planner, rng = Planner(problem), random.Random(seed)
    found: dict[str, tuple[str, Candidate]] = {}
    seen: set[str] = set()
    for kind, plan in _ordered(planner, rng, count):
        if len(found) >= count:
            break
        if (line := planner.text(plan)) in seen:
            continue
        seen.add(line)
        try:
            candidate = planner.candidate(plan, kind)
        except CannotCompose:
            if not found:
                raise
            continue
        found.setdefault(candidate.id, (kind, candidate))
    return list(found.values())


def _ordered(planner: Planner, rng: random.Random, count: int) -> Iterator[tuple[str, Plan]]:
    (default, _), *others = planner.structures()
    yield "default", default
    structures = [plan for plan, _ in others]
    rng.shuffle(structures)
    alone = list(_algorithms(planner, default, rng))
    # Structures and algorithms in turn: neither takes the room of the other.
    for position in range(max(len(structures), len(alone))):
        if position < len(structures):
            yield "structure", structures[position]
        if position < len(alone):
            yield "algorithm", alone[position]
    for _ in range(TRIES * count):
        yield "random", _mixture(planner, default, rng)


def _algorithms(planner: Planner, default: Plan, rng: random.Random) -> Iterator[Plan]:
    """Each other algorithm of each group of equal kernels, with a random one of its schedules."""
    groups = group_equal_kernels(planner.fused(default.recipes).ordered)
    for group in sorted(groups, key=lambda g: -sum(k.num_bytes for k in g)):
        for options in _options(planner, group[0]):
            schedule = rng.choice(options)
            yield Plan(default.recipes, {kernel.name: schedule for kernel in group})


def _mixture(planner: Planner, default: Plan, rng: random.Random) -> Plan:
    recipes = default.recipes
    if rng.random() < HALF:
        always = tuple(r for r in recipes if r not in MEASURED)
        shares = {"cuda_graph": REPLAYED}
        drawn = [r for r in planner.order if r in MEASURED and rng.random() < shares.get(r, HALF)]
        recipes = (*always, *drawn)
    schedules: dict[str, Schedule] = {}
    for group in group_equal_kernels(planner.fused(recipes).ordered):
        schedule = rng.choice(rng.choice(_options(planner, group[0])))
        schedules.update({kernel.name: schedule for kernel in group})
    return Plan(recipes, schedules)


def _options(planner: Planner, kernel: Kernel) -> list[list[Schedule]]:
    """Schedules by algorithm; one group where algorithms have no names."""
    backend, target = planner.problem.backend, planner.problem.target
    if backend in WITH_ALGORITHMS and kernel.family in WITH_NAMES:
        return list(algorithms(kernel, backend, target).values())
    return [list(codegen(backend).schedules(kernel, target))]
