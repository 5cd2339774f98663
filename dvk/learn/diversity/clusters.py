"""Clusters of rows of equal structure, within one kind, back end and signature family at a time.

Rows whose sketches are equal are one point. A family of more points than a similarity matrix should have is clustered
from a seeded sample; the other points join the cluster of the sampled point they are most like, and those that are like
none are sampled in their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dvk import registry
from dvk.config import Diversity
from dvk.learn.diversity import sketches
from dvk.learn.diversity.methods import METHODS
from dvk.learn.diversity.rows import Rows

Method = Callable[[np.ndarray, Diversity], np.ndarray]
_CHUNK = 4096
"""Points compared with a sample at a time: 16 MB."""


def assign(rows: Rows, members: Sequence[int], settings: Diversity, seed: int) -> np.ndarray:
    """A cluster number from 0 for each of `members`, shape (len(members),), int64.

    Raises:
        UsageError: unknown method.
        MachineError: the method needs a package that is not installed.
    """
    if settings.method == "none":
        return np.arange(len(members))
    method: Method = registry.resolve(settings.method, METHODS, "clustering method")
    groups: dict[tuple[str, str, str], list[int]] = {}
    for position, member in enumerate(members):
        row = rows.facts[member]
        groups.setdefault((row.kind, row.backend, row.family), []).append(position)
    clusters = np.empty(len(members), dtype=np.int64)
    chosen = np.asarray(members, dtype=np.int64)
    first = 0
    for key in sorted(groups):
        positions = np.array(groups[key])
        points, where = np.unique(rows.shape[chosen[positions]], axis=0, return_inverse=True)
        labels = _labels(points, method, settings, seed)
        clusters[positions] = first + labels[where.reshape(-1)]
        first += int(labels.max()) + 1
    return clusters


def _labels(points: np.ndarray, method: Method, settings: Diversity, seed: int) -> np.ndarray:
    """A label for each of the distinct points, shape (points,), int64."""
    # The points are in the order of their contents, so the sample depends on nothing but contents and seed.
    rest = np.random.default_rng(seed).permutation(len(points))
    labels = np.empty(len(points), dtype=np.int64)
    first = 0
    while rest.size:
        sample, rest = np.sort(rest[: settings.cluster_sample]), rest[settings.cluster_sample :]
        found = method(sketches.similarities(points[sample], points[sample]), settings)
        labels[sample] = first + found
        far = []
        for start in range(0, rest.size, _CHUNK):
            chunk = rest[start : start + _CHUNK]
            near = sketches.similarities(points[chunk], points[sample])
            joins = near.max(axis=1) >= settings.similar
            labels[chunk[joins]] = first + found[near[joins].argmax(axis=1)]
            far.append(chunk[~joins])
        rest = np.concatenate(far) if far else rest
        first += int(found.max()) + 1
    return labels
