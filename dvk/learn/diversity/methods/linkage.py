"""Agglomerative clustering with average linkage, cut at a similarity: two clusters join while their average similarity is high enough.

The nearest-neighbour chain (Murtagh 1983) needs O(n²) time and one matrix; average linkage is reducible, so the merges are
those of the textbook algorithm. Ties go to the lower index, so equal input gives equal output.
"""

from __future__ import annotations

import numpy as np

from dvk.config import DiversityConfig

SIMILAR = 0.6
"""Average similarity within a cluster of structures: the same kernel with one operator more or less."""


def labels(similarity: np.ndarray, settings: DiversityConfig) -> np.ndarray:
    """Clusters at average similarity `settings.similar` or more."""
    number = len(similarity)
    near = similarity.astype(np.float32, copy=True)
    np.fill_diagonal(near, -1.0)
    weight = np.ones(number, dtype=np.float32)
    parent = np.arange(number)
    alive = np.ones(number, dtype=bool)
    chain: list[int] = []
    while True:
        if not chain:
            rest = np.flatnonzero(alive)
            if not rest.size:
                break
            chain.append(int(rest[0]))
        last = chain[-1]
        best = int(near[last].argmax())
        if len(chain) > 1 and near[last, chain[-2]] >= near[last, best]:
            best = chain[-2]
        if near[last, best] < SIMILAR:
            # No remaining cluster is similar enough to it, and by reducibility no later one will be.
            _retire(near, alive, chain.pop())
        elif len(chain) > 1 and best == chain[-2]:
            chain.pop()
            chain.pop()
            kept, gone = min(last, best), max(last, best)
            joined = (near[kept] * weight[kept] + near[gone] * weight[gone]) / (
                weight[kept] + weight[gone]
            )
            weight[kept] += weight[gone]
            dead = near[kept] < 0
            near[kept] = near[:, kept] = np.where(dead, np.float32(-1.0), joined)
            near[kept, kept] = -1.0
            parent[gone] = kept
            _retire(near, alive, gone)
        else:
            chain.append(best)
    for row in range(number):
        parent[row] = parent[
            parent[row]
        ]  # a row's parent has a lower index, and so is already final
    return np.unique(parent, return_inverse=True)[1].reshape(number)


def _retire(near: np.ndarray, alive: np.ndarray, row: int) -> None:
    """Take a row out of further merging."""
    alive[row] = False
    near[row] = near[:, row] = -1.0
