"""Detection of machine code copied from an installed library, by its bytes, under any file or name."""

from __future__ import annotations

import mmap
import os
import sysconfig
from functools import cache

LEAST_BYTES = 1 << 16
"""Smaller libraries are glue."""
CODE_BYTES = 96
"""About twenty instructions: sequences that two programs share by chance, a function's start or a short loop, are shorter."""


def contains(code: bytes) -> bool:
    """Whether a library of this Python's packages contains these bytes; takes a second or two for all of PyTorch."""
    return any(_holds(path, code) for path in libraries())


def _holds(path: str, code: bytes) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
            return held.find(code) >= 0
    except (OSError, ValueError):
        return False


@cache
def libraries() -> tuple[str, ...]:
    """Return shared objects of installed packages, those of the numerical ones first."""
    paths = []
    for folder, _, names in os.walk(sysconfig.get_path("purelib")):
        paths += [os.path.join(folder, name) for name in names if ".so" in name]
    sizes = {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}
    return tuple(
        sorted((path for path in sizes if sizes[path] >= LEAST_BYTES), key=lambda path: sizes[path])
    )
