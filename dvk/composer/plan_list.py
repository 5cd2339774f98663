"""The plans of a task in the order in which they are worth measuring: what tables hold, and what an answer is chosen from.

The default first; each other structure (recipes that may lose); each algorithm of each kernel, those that move most bytes first; then
random mixtures. Every recipe and every algorithm occurs before any is repeated. Equal seeds give equal lists, so a table of measured plans
and a model that chooses among such a list speak of the same plans.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from dvk.composer.algorithms import algorithms
from dvk.composer.codegen.base import codegen
from dvk.composer.compose import Plan
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.kernel_classes import group_equal_kernels
from dvk.composer.plan_space import MEASURED, PlanSpace

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


def listed(space: PlanSpace, count: int, seed: int) -> Iterator[tuple[str, Plan, str]]:
    """Distinct plans, each with its kind (default, structure, algorithm or random) and its text.

    Args:
        count: plans wanted; ends the random mixtures. More than `count` may come.

    Raises:
        CannotCompose: the default's kernels cannot be made.
    """
    seen: set[str] = set()
    for kind, plan in _ordered(space, random.Random(seed), count):
        if (text := space.text(plan)) not in seen:
            seen.add(text)
            yield kind, plan, text


def texts(space: PlanSpace, count: int, seed: int = 0) -> tuple[str, ...]:
    """The first `count` plans as text, or as many as there are."""
    return tuple(text for _, _, text in islice(listed(space, count, seed), count))


def _ordered(space: PlanSpace, rng: random.Random, count: int) -> Iterator[tuple[str, Plan]]:
    (default, _), *others = space.structures()
    yield "default", default
    structures = [plan for plan, _ in others]
    rng.shuffle(structures)
    alone = list(_algorithms(space, default, rng))
    # Structures and algorithms in turn: neither takes the room of the other.
    for position in range(max(len(structures), len(alone))):
        if position < len(structures):
            yield "structure", structures[position]
        if position < len(alone):
            yield "algorithm", alone[position]
    for _ in range(TRIES * count):
        yield "random", _mixture(space, default, rng)


def _algorithms(space: PlanSpace, default: Plan, rng: random.Random) -> Iterator[Plan]:
    """Each other algorithm of each group of equal kernels, with a random one of its schedules."""
    groups = group_equal_kernels(space.fused(default.recipes).ordered)
    for group in sorted(groups, key=lambda g: -sum(k.num_bytes for k in g)):
        for options in _options(space, group[0]):
            schedule = rng.choice(options)
            yield Plan(default.recipes, {kernel.name: schedule for kernel in group})


def _mixture(space: PlanSpace, default: Plan, rng: random.Random) -> Plan:
    recipes = default.recipes
    if rng.random() < HALF:
        always = tuple(r for r in recipes if r not in MEASURED)
        shares = {"cuda_graph": REPLAYED}
        drawn = [r for r in space.order if r in MEASURED and rng.random() < shares.get(r, HALF)]
        recipes = (*always, *drawn)
    schedules: dict[str, Schedule] = {}
    for group in group_equal_kernels(space.fused(recipes).ordered):
        schedule = rng.choice(rng.choice(_options(space, group[0])))
        schedules.update({kernel.name: schedule for kernel in group})
    return Plan(recipes, schedules)


def _options(space: PlanSpace, kernel: Kernel) -> list[list[Schedule]]:
    """Schedules by algorithm; one group where algorithms have no names."""
    if space.backend in WITH_ALGORITHMS and kernel.family in WITH_NAMES:
        with suppress(CannotCompose):  # the C++ back end's products have no names
            return list(algorithms(kernel, space.backend, space.target).values())
    return [list(codegen(space.backend).schedules(kernel, space.target))]
