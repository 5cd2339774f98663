"""Near-duplicates: of rows that say almost the same under the same conditions, the best one stays.

Banded locality-sensitive hashing whose recall is not a matter of luck. Two sketches of `places` numbers that agree in a
share of `threshold` or more differ in at most m = floor((1 − threshold) · places) places. Cut into more than m bands,
at least one band is without a difference: every such pair meets in a bucket (pigeonhole principle).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def num_bands(places: int, threshold: float) -> int:
    """The fewest bands of equal width that no pair of that agreement can slip through."""
    most = int((1 - threshold) * places + 1e-9)
    return next(bands for bands in range(1, places + 1) if places % bands == 0 and bands > most)


def find(sketch: np.ndarray, alike: np.ndarray, order: Sequence[int], threshold: float) -> np.ndarray:
    """For every row the row that is kept in its place, or −1 where it is kept itself; shape (rows,), int64.

    No two rows that are kept have equal `alike` and agree in `threshold` of their places or more.

    Args:
        sketch: shape (rows, places), uint32.
        alike: rows of different values are never duplicates, shape (rows,), uint64.
        order: every row once, best first: a row stays unless an earlier one that stays is a near-duplicate of it.
        threshold: estimated Jaccard similarity from which on two rows are near-duplicates.
    """
    rows, places = sketch.shape
    instead = np.full(rows, -1, dtype=np.int64)
    if not rows:
        return instead
    bands = num_bands(places, threshold)
    least = int(np.ceil(threshold * places - 1e-9))
    keys = _buckets(sketch, alike, bands)
    buckets: dict[int, list[int]] = {}
    for row in order:
        mine = keys[row].tolist()
        met = dict.fromkeys(other for key in mine for other in buckets.get(key, ()))
        if met:
            others = np.fromiter(met, dtype=np.int64, count=len(met))
            others = others[alike[others] == alike[row]]
            agree = (sketch[others] == sketch[row]).sum(axis=1)
            if agree.size and agree.max() >= least:
                instead[row] = others[int(agree.argmax())]
                continue
        for key in mine:
            buckets.setdefault(key, []).append(row)
    return instead


def _buckets(sketch: np.ndarray, alike: np.ndarray, bands: int) -> np.ndarray:
    """A 64-bit key for every row and band, shape (rows, bands): of the band, its contents and `alike`."""
    rows, places = sketch.shape
    keys = np.empty((rows, bands), dtype=np.uint64)
    width = places // bands
    for band in range(bands):
        key = alike.astype(np.uint64) ^ np.uint64((band + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
        for place in range(band * width, (band + 1) * width):
            key = (key ^ sketch[:, place].astype(np.uint64)) * np.uint64(0xFF51AFD7ED558CCD)
            key ^= key >> np.uint64(32)
        keys[:, band] = key
    return keys
