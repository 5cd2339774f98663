"""Stop a runner with all processes it may have started, and ensure that none of them runs meanwhile.

A stop of its process group reaches neither a child in a separate session nor an orphan that was adopted elsewhere. All of them are below
the warden, which adopts orphans, so everything there is stopped except processes from before the candidate. A process may start another, or
continue one, until it is stopped: the walk is repeated until one finds all of them stopped and none new.
"""

from __future__ import annotations

import os
import signal
import time

from dvk.harness.transport import process_memory
from dvk.harness.transport.link import Gone
from dvk.sandbox import proctree

STOP_S = 5.0
LOOK_S = 0.00005
SLACK_S = 0.0005
"""Processor time that may still be counted for a process just stopped."""


class PausedTree:
    """One runner's processes.

    Args:
        pid: the runner's, in a separate process group; no candidate code has run in it yet.
        trusted: it runs no candidate code, so that its group contains all its processes.
    """

    def __init__(self, pid: int, trusted: bool):
        self.pid, self._trusted = pid, trusted
        self._root = proctree.parent(pid) or pid
        self._spared = {self._root, pid, *proctree.below(self._root)}
        self._others: set[int] = set()
        self.stopped = False

    def stop(self, surely: bool = False) -> None:
        """Stop them all; `surely`: and wait until they are stopped.

        Raises:
            Gone: the runner has ended.
        """
        self._group(signal.SIGSTOP)
        self.stopped = True
        limit = time.monotonic() + STOP_S
        while True:
            new = (
                set()
                if self._trusted
                else set(proctree.below(self._root)) - self._spared - self._others
            )
            self._others |= new
            running = (
                [pid for pid in (self.pid, *self._others) if not process_memory.stopped(pid)]
                if surely
                else list(new)
            )
            proctree.signal_all(running, signal.SIGSTOP)
            if not new and not (surely and running):
                return
            if time.monotonic() > limit:
                raise Gone
            if running:  # a thread must run to stop, and on a busy machine it waits for this core
                time.sleep(LOOK_S)

    def wake(self) -> None:
        """Continue them.

        Raises:
            Gone: the runner has ended.
        """
        if self.stopped:
            proctree.signal_all(list(self._others), signal.SIGCONT)
            self._others.clear()
            self._group(signal.SIGCONT)
            self.stopped = False

    def used_s(self) -> float:
        """Return processor seconds of the stopped processes in all; 0 if unknown."""
        total = 0.0
        for pid in () if self._trusted else (self.pid, *self._others):
            try:
                total += process_memory.processor_s(pid)
            except OSError:
                continue
        return total

    def _group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except OSError:
            raise Gone from None
