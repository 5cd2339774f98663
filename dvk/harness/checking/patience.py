"""A limit on the time of a user's code that runs in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Interrupt the body's Python, e.g. an endless loop, after this time; in the main thread only.

    Raises:
        TimeoutError: the time was over.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ended(*_: object) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ended)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
