"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from typing import Any


def wait_for(done: Any, seconds: float = 20.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.02)
    return found
