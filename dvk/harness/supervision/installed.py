"""Is this machine code a copy out of an installed library? By its bytes, whatever file or name it was put under."""

from __future__ import annotations

import mmap
import os
import sysconfig
from functools import cache

LEAST_BYTES = 1 << 16
"""Smaller libraries are glue."""
CODE_BYTES = 96
"""About twenty instructions: what two programs share by chance, a function's start or a short loop, is shorter."""


def contains(code: bytes) -> bool:
    """Some library of this Python's packages holds these bytes; a second or two for all of PyTorch."""
    return any(_holds(path, code) for path in libraries())


def _holds(path: str, code: bytes) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
            return held.find(code) >= 0
    except (OSError, ValueError):
        return False


@cache
def libraries() -> tuple[str, ...]:
    """Shared objects of installed packages, those of the numerical ones first."""
    found = []
    for folder, _, names in os.walk(sysconfig.get_path("purelib")):
        found += [os.path.join(folder, name) for name in names if ".so" in name]
    sizes = {path: os.path.getsize(path) for path in found if os.path.isfile(path)}
    return tuple(sorted((path for path in sizes if sizes[path] >= LEAST_BYTES), key=lambda path: sizes[path]))
