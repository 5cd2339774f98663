"""Random numbers that belong to a conversation, not to the batch it is answered in.

A conversation's key follows from the seed, from what it says and from how many equal ones stand before it in the same call,
so that equal conversations draw differently; or from a number that the caller gives, so that two questions can be compared on common
random numbers. A key's number t is SplitMix64 (Steele, Lea & Flood 2014) of key + t.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


def keys_for(
    contents: Sequence[bytes], seed: int | None, streams: Sequence[int | None] = ()
) -> list[int]:
    """A 64-bit key for each content; a null seed draws one.

    Args:
        streams: for each content the number that its key follows from instead, or None.
    """
    chosen = secrets.randbits(63) if seed is None else seed
    seen: Counter[bytes] = Counter()
    keys = []
    for content, stream in zip_longest(contents, streams):
        if stream is not None:
            key = hashlib.blake2b(f"{chosen} stream {stream}".encode(), digest_size=8).digest()
            keys.append(int.from_bytes(key, "little"))
            continue
        digest = hashlib.blake2b(content, digest_size=16).digest()
        key = hashlib.blake2b(f"{chosen} {seen[digest]} ".encode() + digest, digest_size=8).digest()
        seen[digest] += 1
        keys.append(int.from_bytes(key, "little"))
    return keys


def as_bytes(tokens: Sequence[int]) -> bytes:
    """Token ids as content."""
    return np.asarray(tokens, dtype=np.int64).tobytes()


def uniforms(keys: Sequence[int], count: int) -> np.ndarray:
    """float32 [keys, count] in [0, 1): the first `count` numbers of each key."""
    with np.errstate(over="ignore"):
        state = (
            np.array(keys, dtype=np.uint64)[:, None]
            + np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        )
        for shift, factor in _MIX:
            state = (state ^ (state >> shift)) * factor
        state ^= state >> np.uint64(31)
    # 23 bits: with 24 the largest number times the sum of the distribution could round to that sum, past the last token.
    return (state >> np.uint64(41)).astype(np.float32) * np.float32(2.0**-23)
