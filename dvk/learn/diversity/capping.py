"""Cap on each cluster; the kept rows are as different from one another as possible.

The cap is found by water-filling: the cap under which a wanted number of rows remains, so that large clusters are
cut and small ones are left alone. Kept rows of a cluster are chosen farthest-first (Gonzalez 1985) among its best rows,
by BM25 between their texts: within one cluster the structure is the same; names, sizes and wording differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rank_bm25 import BM25Okapi

_POOL = 2
"""Candidates for each kept row: the best of a cluster, so that spread does not bring in its worst."""
_QUERY_WORDS = 16
"""Rarest words by which a text is compared; common ones have almost no weight and cost as much."""
_MOST_SPREAD = 96
"""Rows of one cluster that are spread; beyond that the best follow, since comparing all pairs is quadratic."""


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


def pool(cluster: Sequence[int], cap: int) -> list[int]:
    """Rows of a cluster, best first, whose texts `keep` compares; none if all may stay."""
    return list(cluster[: _POOL * min(cap, _MOST_SPREAD)]) if len(cluster) > cap else []


def keep(cluster: Sequence[int], cap: int, places: Sequence[int]) -> list[int]:
    """The `cap` rows of a cluster that stay, in the order in which they were chosen.

    Args:
        cluster: its rows, best first.
        cap: how many may stay, at least one.
        places: `spread_out` of the texts of its pool.
    """
    if len(cluster) <= cap:
        return list(cluster)
    chosen = [cluster[place] for place in places]
    taken = set(chosen)
    return chosen + [row for row in cluster if row not in taken][: cap - len(chosen)]


def spread_out(texts: Sequence[Sequence[str]], cap: int) -> list[int]:
    """Indices of the texts of a pool, given as words, that stay because they differ."""
    return farthest_first(texts, min(cap, _MOST_SPREAD))


def farthest_first(texts: Sequence[Sequence[str]], count: int) -> list[int]:
    """Indices of `count` texts: the first, then always the one least similar to those chosen; ties to the earlier one.

    The similarity of a text to a chosen one is its BM25 score for that one's rarest words, relative to that one's own score.
    """
    index = BM25Okapi([list(text) or ["_"] for text in texts])
    # The score of each word in each text that has it, word after word, the rarest first: `index.get_scores` asks all texts for all words.
    number = {
        word: place
        for place, word in enumerate(sorted(index.idf, key=lambda word: (-index.idf[word], word)))
    }
    own = [
        np.sort([number[word] for word in found]) if text else np.zeros(0, np.int64)
        for found, text in zip(index.doc_freqs, texts)
    ]
    word = np.array([number[word] for found in index.doc_freqs for word in found])
    place = np.repeat(np.arange(len(texts)), [len(found) for found in index.doc_freqs])
    times = np.array([count for found in index.doc_freqs for count in found.values()])
    length = index.k1 * (1 - index.b + index.b * np.array(index.doc_len) / index.avgdl)
    gives = np.array([index.idf[word] for word in number])[word] * (
        times * (index.k1 + 1) / (times + length[place])
    )
    order = np.argsort(word, kind="stable")
    place, gives = place[order], gives[order]
    ends = np.bincount(word).cumsum().tolist()
    nearest = np.zeros(len(texts))
    chosen: list[int] = []
    while len(chosen) < min(count, len(texts)):
        nearest[chosen[-1:]] = np.inf
        last = int(nearest.argmin()) if chosen else 0
        chosen.append(last)
        query = [
            slice(ends[word - 1] if word else 0, ends[word])
            for word in own[last][:_QUERY_WORDS].tolist()
        ] or [slice(0, 0)]
        asked, given = (
            np.concatenate([place[part] for part in query]),
            np.concatenate([gives[part] for part in query]),
        )
        scores = np.bincount(asked, given, len(texts))
        nearest = np.maximum(
            nearest, scores / scores[last] if scores[last] > 0 else np.ones(len(texts))
        )
    return chosen
