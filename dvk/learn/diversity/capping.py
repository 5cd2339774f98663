"""So many of each cluster, and those as different from one another as they can be.

The level is found by water-filling: the cap under which a wanted number of rows remains, so that large clusters are
cut and small ones are left alone. What stays of a cluster is chosen farthest-first (Gonzalez 1985) among its best rows,
by BM25 between their texts: within one cluster the structure is the same, and what differs is names, sizes and wording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rank_bm25 import BM25Okapi

_POOL = 2
"""Rows looked at for each that stays: the best of a cluster, so that spread does not bring in its worst."""
_QUERY_WORDS = 16
"""Rarest words that a text is compared by; common ones weigh next to nothing and cost as much."""
_MOST_SPREAD = 96
"""Rows of one cluster that are spread; beyond that the best follow, for comparing all pairs is quadratic."""


def water_level(sizes: Sequence[int], goal: int) -> int:
    """The least cap under which clusters of `sizes` keep `goal` rows or more; the largest size if they never do."""
    ordered = np.sort(np.asarray(sizes, dtype=np.int64))
    if not ordered.size or ordered.sum() <= goal:
        return int(ordered.max(initial=0))
    low, high = 0, int(ordered[-1])
    while low < high:
        middle = (low + high) // 2
        if int(np.minimum(ordered, middle).sum()) >= goal:
            high = middle
        else:
            low = middle + 1
    return low


def keep(cluster: Sequence[int], cap: int, words: Callable[[Sequence[int]], list[list[str]]]) -> list[int]:
    """The `cap` rows of a cluster that stay, in the order in which they were chosen.

    Args:
        cluster: its rows, best first.
        cap: how many may stay, at least one.
        words: gives the texts of some rows as words.
    """
    if len(cluster) <= cap:
        return list(cluster)
    spread = min(cap, _MOST_SPREAD)
    pool = list(cluster[: _POOL * spread])
    chosen = [pool[place] for place in farthest_first(words(pool), spread)]
    taken = set(chosen)
    return chosen + [row for row in cluster if row not in taken][: cap - spread]


def farthest_first(texts: Sequence[Sequence[str]], count: int) -> list[int]:
    """Positions of `count` texts: the first, then always the one least like those chosen; ties to the earlier one.

    The likeness of a text to one chosen is its BM25 score for that one's rarest words, as a share of its own.
    """
    index = BM25Okapi([list(text) or ["_"] for text in texts])
    nearest = np.zeros(len(texts))
    chosen: list[int] = []
    while len(chosen) < min(count, len(texts)):
        nearest[chosen[-1:]] = np.inf
        last = int(nearest.argmin()) if chosen else 0
        chosen.append(last)
        query = sorted(set(texts[last]), key=lambda word: (-index.idf.get(word, 0.0), word))[:_QUERY_WORDS]
        scores = index.get_scores(query) if query else np.zeros(len(texts))
        own = scores[last]
        nearest = np.maximum(nearest, scores / own if own > 0 else np.ones(len(texts)))
    return chosen
