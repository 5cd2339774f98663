"""Near-duplicates: of rows with almost the same text under the same conditions, the best one stays.

Banded locality-sensitive hashing with guaranteed recall. Two sketches of `places` numbers that agree in a
share of `threshold` or more differ in at most m = floor((1 − threshold) · places) places. Cut into more than m bands,
at least one band has no difference: every such pair meets in a bucket (pigeonhole principle).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_FEW = 64
"""Rows up to which all pairs are compared: hashing takes longer for so few."""


def num_bands(places: int, threshold: float) -> int:
    """The fewest bands of equal width that find every pair of that agreement."""
    most = int((1 - threshold) * places + 1e-9)
    return next(bands for bands in range(1, places + 1) if places % bands == 0 and bands > most)


def find(
    sketch: np.ndarray, alike: np.ndarray, order: Sequence[int], threshold: float
) -> np.ndarray:
    """For every row the row kept in its place, or −1 if it is kept itself; shape (rows,), int64.

    No two kept rows have equal `alike` and agree in `threshold` of their places or more.

    Args:
        sketch: shape (rows, places), uint32.
        alike: rows of different values are never duplicates, shape (rows,), uint64.
        order: every row once, best first: a row stays unless an earlier one that stays is a near-duplicate of it; where there
            are several, of the most similar one, of those the best.
        threshold: estimated Jaccard similarity at which two rows count as near-duplicates.
    """
    rows, places = sketch.shape
    instead = np.full(rows, -1, dtype=np.int64)
    least = int(np.ceil(threshold * places - 1e-9))
    ranked = np.asarray(order, dtype=np.int64)
    ranked = ranked[np.argsort(alike[ranked], kind="stable")]
    # Most rows are alike to a few others or to none: only those are compared.
    edges = np.concatenate([[0], np.flatnonzero(np.diff(alike[ranked])) + 1, [rows]])
    several = np.flatnonzero(np.diff(edges) > 1)
    for first, last in zip(edges[several].tolist(), edges[several + 1].tolist()):
        group = ranked[first:last]
        found = (
            _all_pairs(sketch[group], least)
            if len(group) <= _FEW
            else _banded(sketch[group], least, threshold)
        )
        again = np.flatnonzero(found >= 0)
        instead[group[again]] = group[found[again]]
    return instead


def _all_pairs(sketch: np.ndarray, least: int) -> np.ndarray:
    """As `find`, of rows that are all alike, the best first."""
    instead = np.full(len(sketch), -1, dtype=np.int64)
    kept = [0]
    for row in range(1, len(sketch)):
        agree = (sketch[kept] == sketch[row]).sum(axis=1)
        if agree.max() >= least:
            instead[row] = kept[int(agree.argmax())]
        else:
            kept.append(row)
    return instead


def _banded(sketch: np.ndarray, least: int, threshold: float) -> np.ndarray:
    """As `_all_pairs`, of many rows: only those are compared that have a band in common."""
    instead = np.full(len(sketch), -1, dtype=np.int64)
    keys = _buckets(sketch, num_bands(sketch.shape[1], threshold))
    buckets: dict[int, list[int]] = {}
    for row, mine in enumerate(keys.tolist()):
        met = sorted({other for key in mine for other in buckets.get(key, ())})
        if met:
            agree = (sketch[met] == sketch[row]).sum(axis=1)
            if agree.max() >= least:
                instead[row] = met[int(agree.argmax())]
                continue
        for key in mine:
            buckets.setdefault(key, []).append(row)
    return instead


def _buckets(sketch: np.ndarray, bands: int) -> np.ndarray:
    """A 64-bit key for every row and band, shape (rows, bands): of the band and its contents."""
    rows, places = sketch.shape
    keys = np.empty((rows, bands), dtype=np.uint64)
    width = places // bands
    for band in range(bands):
        key = np.full(rows, (band + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
        for place in range(band * width, (band + 1) * width):
            key = (key ^ sketch[:, place].astype(np.uint64)) * np.uint64(0xFF51AFD7ED558CCD)
            key ^= key >> np.uint64(32)
        keys[:, band] = key
    return keys
