"""Work that is spread over processes."""

from __future__ import annotations

import os


def told(batch: list[str]) -> int:
    return os.getpid()
