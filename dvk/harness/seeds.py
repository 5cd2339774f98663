"""Independent seeds.

PyTorch's generator has 2**32 seeds, so a candidate can find the seed of given values by brute force: some minutes on a CPU, less than a
second on a GPU. It must not find the next ones, so every seed is drawn from a secret by a keyed hash.
"""

from __future__ import annotations

import hashlib
import secrets

SECRET_BITS = 128


def secret() -> int:
    """Return a secret too large for brute force."""
    return secrets.randbits(SECRET_BITS)


def derived(secret: int, *what: object) -> int:
    """Return a seed of 31 bits for `what`, e.g. ("timed", 3); equal for equal arguments."""
    key = (secret % (1 << SECRET_BITS)).to_bytes(SECRET_BITS // 8, "little")
    return (
        int.from_bytes(
            hashlib.blake2b(repr(what).encode(), key=key, digest_size=4).digest(), "little"
        )
        >> 1
    )
