"""Holds a model that writes in this process between two of its steps, so that something else can have the machine.

The model's thread looks in at every few tokens (`check`); whoever else wants the machine lets it go on (`release`) and
holds it (`hold`), and from then on it computes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

GLANCE_S = 0.1
"""How often one that is held looks whether all is over."""


class OutOfTime(Exception):
    """The search's time is over: the model is asked nothing more, or is no longer waited for."""


class PauseGate:
    """See the module; released at first.

    Args:
        over: nothing more is to be written.

    Attributes:
        held_s: seconds that the model was held, in all.
    """

    def __init__(self, over: Callable[[], bool]):
        self.over, self.held_s = over, 0.0
        self._go, self._parked = threading.Event(), threading.Event()
        self._go.set()

    def check(self) -> None:
        """Return when the model may go on.

        Raises:
            OutOfTime: it may not any more.
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
        """Let it go on."""
        self._go.set()

    def hold(self, writer: threading.Thread) -> None:
        """Return when `writer` is held, or has ended."""
        self._go.clear()
        while writer.is_alive() and not self._parked.wait(GLANCE_S / 10):
            pass
