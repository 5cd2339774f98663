"""Clusters of rows of equal structure, within one kind, back end and signature family at a time.

Rows with equal sketches are one point. A family with too many points for a similarity matrix is clustered
from a seeded sample; the other points join the cluster of the most similar sampled point, and those without
a similar one are sampled in their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from dvk import registry
from dvk.config import DiversityConfig
from dvk.learn.diversity import sketches
from dvk.learn.diversity.methods import METHODS
from dvk.learn.diversity.methods.linkage import SIMILAR
from dvk.learn.diversity.rows import ExampleRows
from dvk.learn.spread import spread

CLUSTER_SAMPLE = 1000
"""Structures of a family clustered at once: a matrix of 4 MB, 50 ms."""

Method = Callable[[np.ndarray, DiversityConfig], np.ndarray]
_CHUNK = 4096
"""Points compared with a sample at a time: 16 MB; and rows sent to a process at a time, as whole families."""
_ALONE = 20_000
"""Rows below which clustering is faster than starting processes."""


def assign(
    rows: ExampleRows,
    members: Sequence[int],
    settings: DiversityConfig,
    seed: int,
    workers: int = 1,
) -> np.ndarray:
    """A cluster number from 0 for each of `members`, shape (len(members),), int64.

    Args:
        workers: processes; each clusters some of the families.

    Raises:
        UsageError: unknown method.
        MachineError: the method needs a package that is not installed.
    """
    if settings.method == "none":
        return np.arange(len(members))
    _method(settings)  # an unknown method raises before the work starts
    groups: dict[tuple[str, str, str], list[int]] = {}
    for position, member in enumerate(members):
        row = rows.facts[member]
        groups.setdefault((row.kind, row.backend, row.family), []).append(position)
    chosen = np.asarray(members, dtype=np.int64)
    # The largest first, so that no process is left with one of them at the end; many small ones at a time.
    keys = sorted(groups, key=lambda key: (-len(groups[key]), key))
    batches = list(_batches([len(groups[key]) for key in keys]))
    labels: dict[tuple[str, str, str], np.ndarray] = {}
    shapes = ([rows.shape[chosen[groups[key]]] for key in keys[batch]] for batch in batches)
    for found, batch in zip(
        spread(
            partial(_of_groups, settings, seed), shapes, workers if len(members) > _ALONE else 1
        ),
        batches,
    ):
        labels.update(zip(keys[batch], found))
    clusters = np.empty(len(members), dtype=np.int64)
    first = 0
    for key in sorted(groups):
        clusters[groups[key]] = first + labels[key]
        first += int(labels[key].max()) + 1
    return clusters


def _batches(sizes: Sequence[int]) -> Iterator[slice]:
    """Neighbours that make a few thousand rows together, or one that has more."""
    begin = held = 0
    for end, size in enumerate(sizes, start=1):
        held += size
        if held >= _CHUNK or end == len(sizes):
            yield slice(begin, end)
            begin, held = end, 0


def _of_groups(
    settings: DiversityConfig, seed: int, groups: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The labels of some families' rows, each from 0."""
    result = []
    for shape in groups:
        # As bytes, whose comparison is ten times faster than by column, in the same order.
        _, first, where = np.unique(
            np.ascontiguousarray(shape).view(f"V{shape.shape[1]}")[:, 0],
            return_index=True,
            return_inverse=True,
        )
        result.append(_labels(shape[first], _method(settings), settings, seed)[where.reshape(-1)])
    return result


def _method(settings: DiversityConfig) -> Method:
    method: Method = registry.resolve(settings.method, METHODS, "clustering method")
    return method


def _labels(points: np.ndarray, method: Method, settings: DiversityConfig, seed: int) -> np.ndarray:
    """A label for each of the distinct points, shape (points,), int64."""
    # The points are sorted by contents, so the sample depends on contents and seed alone.
    rest = np.random.default_rng(seed).permutation(len(points))
    labels = np.empty(len(points), dtype=np.int64)
    first = 0
    while rest.size:
        sample, rest = np.sort(rest[:CLUSTER_SAMPLE]), rest[CLUSTER_SAMPLE:]
        found = method(sketches.similarities(points[sample], points[sample]), settings)
        labels[sample] = first + found
        far = []
        for start in range(0, rest.size, _CHUNK):
            chunk = rest[start : start + _CHUNK]
            near = sketches.similarities(points[chunk], points[sample])
            joins = near.max(axis=1) >= SIMILAR
            labels[chunk[joins]] = first + found[near[joins].argmax(axis=1)]
            far.append(chunk[~joins])
        rest = np.concatenate(far) if far else rest
        first += int(found.max()) + 1
    return labels
