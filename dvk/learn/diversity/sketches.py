"""MinHash: sets of token shingles as fixed-size sketches whose agreement estimates Jaccard similarity.

For each of `size` random permutations a sketch keeps the least image of the set; two sets agree in one place with
probability |A ∩ B| / |A ∪ B| (Broder 1997). The standard error of an estimate is at most 0.5 / √size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_BLOCK = 1 << 15
"""Shingles hashed at a time: they fit in the L2 cache."""
_EMPTY = np.uint32(0xFFFFFFFF)


def shingles(tokens: np.ndarray, width: int) -> np.ndarray:
    """The distinct `width`-grams of a token sequence as 32-bit hashes, ascending; a shorter text is one shingle."""
    flat, _ = _hashed([tokens], width)
    return np.unique(flat)


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """|A ∩ B| / |A ∪ B| of two sorted sets without repeats; 1 for two empty ones."""
    common = np.intersect1d(a, b, assume_unique=True).size
    union = a.size + b.size - common
    return common / union if union else 1.0


def sketch(texts: Sequence[np.ndarray], width: int, size: int, salt: int = 0) -> np.ndarray:
    """Sketches of many texts, shape (len(texts), size), uint32.

    Args:
        texts: token sequences; an empty one gets the sketch of the empty set.
        width: tokens a shingle.
        size: permutations, fixed by `salt` and equal in every run.
    """
    flat, counts = _hashed(texts, width)
    random = np.random.default_rng([salt, 0x5EED])
    factors = random.integers(0, 1 << 32, size, dtype=np.uint32) | np.uint32(1)
    offsets = random.integers(0, 1 << 32, size, dtype=np.uint32)
    made = np.full((len(texts), size), _EMPTY, dtype=np.uint32)
    filled = np.flatnonzero(counts)
    if not filled.size:
        return made
    starts = np.concatenate([[0], np.cumsum(counts[filled])[:-1]])
    # Whole texts a block, so that `reduceat` never splits one.
    edges = np.searchsorted(starts, np.arange(0, flat.size, _BLOCK))
    edges = np.unique(np.append(edges, filled.size))
    for first, last in zip(edges[:-1], edges[1:]):
        end = starts[last] if last < starts.size else flat.size
        block, inside = flat[starts[first] : end], starts[first:last] - starts[first]
        images = np.empty_like(block)
        for place in range(size):
            np.multiply(block, factors[place], out=images)
            np.add(images, offsets[place], out=images)
            # The low bits of a product depend on few bits of its factor; folding the high bits in makes the order uniform.
            np.bitwise_xor(images, images >> np.uint32(15), out=images)
            made[filled[first:last], place] = np.minimum.reduceat(images, inside)
    return made


def similarities(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Estimated Jaccard of every row of `a` with every row of `b`, shape (len(a), len(b)), float32.

    Sketches have at most 255 places; one byte a place is fastest, and agrees by chance in 1 of 256 places.
    """
    # One place at a time, both columns contiguous and the counts in bytes: memory traffic is the bottleneck.
    left, right = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
    agree = np.zeros((len(a), len(b)), dtype=np.uint8)
    equal = np.empty(agree.shape, dtype=bool)
    for mine, theirs in zip(left, right):
        np.equal(mine[:, None], theirs[None, :], out=equal)
        np.add(agree, equal.view(np.uint8), out=agree)
    return agree * np.float32(1.0 / a.shape[1])


def _hashed(texts: Sequence[np.ndarray], width: int) -> tuple[np.ndarray, np.ndarray]:
    """All shingles of all texts, concatenated, and the count of each text (repeats within a text included)."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    counts = np.where(lengths > 0, np.maximum(lengths - width + 1, 1), 0)
    # Each text is padded at its end with width - 1 zeros; shingles that reach into them are dropped,
    # except for a text shorter than one shingle.
    padded = np.zeros(int((lengths + width - 1).sum()) + width, dtype=np.uint64)
    starts = np.concatenate([[0], np.cumsum(lengths + width - 1)])[:-1]
    for start, text in zip(starts, texts):
        padded[start : start + len(text)] = text
    total = padded.size - width
    mixed = np.zeros(total, dtype=np.uint64)
    for offset in range(width):
        mixed = _mix(mixed ^ padded[offset : offset + total])
    keep = np.zeros(total + 1, dtype=np.int8)
    np.add.at(keep, starts[counts > 0], 1)
    np.add.at(keep, (starts + counts)[counts > 0], -1)
    return (mixed[np.cumsum(keep[:-1]).astype(bool)] >> np.uint64(32)).astype(np.uint32), counts


def _mix(values: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser: every bit of the input reaches every bit of the output."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
