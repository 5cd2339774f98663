"""Pauses a model that writes in this process between two of its steps, so that other work can have the machine.

The model's thread calls `check` every few tokens; the other side resumes it (`release`) and
pauses it (`hold`), after which it computes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

GLANCE_S = 0.1
"""Interval at which a paused model checks whether the search is over."""


class OutOfTime(Exception):
    """The search's time is over: the model gets no more questions, and its pending answers are dropped."""


class PauseGate:
    """See the module; released at first.

    Args:
        over: whether all writing is to end.

    Attributes:
        held_s: seconds that the model was paused, in all.
    """

    def __init__(self, over: Callable[[], bool]):
        self.over, self.held_s = over, 0.0
        self._go, self._parked = threading.Event(), threading.Event()
        self._go.set()

    def check(self) -> None:
        """Return when the model may continue.

        Raises:
            OutOfTime: the search is over.
        """
        if self.over():
            raise OutOfTime
        if self._go.is_set():
            return
        began = time.perf_counter()
        self._parked.set()
        try:
            while not self._go.wait(GLANCE_S):
                if self.over():
                    raise OutOfTime
        finally:
            self._parked.clear()
            self.held_s += time.perf_counter() - began

    def release(self) -> None:
        """Resume it."""
        self._go.set()

    def hold(self, writer: threading.Thread) -> None:
        """Return when `writer` is paused, or has ended."""
        self._go.clear()
        while writer.is_alive() and not self._parked.wait(GLANCE_S / 10):
            pass
