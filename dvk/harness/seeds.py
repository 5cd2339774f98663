"""Seeds that tell nothing of each other.

PyTorch's generator has 2**32 seeds, so a candidate finds the one behind values that it was given by trying them all: some minutes
on a CPU, less than a second on a GPU. What it may not find are the next ones. So every seed is drawn from a secret by a keyed hash.
"""

from __future__ import annotations

import hashlib
import secrets

SECRET_BITS = 128


def secret() -> int:
    """One too large to try out."""
    return secrets.randbits(SECRET_BITS)


def derived(secret: int, *what: object) -> int:
    """A seed of 31 bits for `what`, e.g. ("timed", 3); equal for equal arguments."""
    key = (secret % (1 << SECRET_BITS)).to_bytes(SECRET_BITS // 8, "little")
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), key=key, digest_size=4).digest(), "little") >> 1
