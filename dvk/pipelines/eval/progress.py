"""An evaluation's progress on stderr: a line for each task that ends, and one in every ten quiet seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TextIO

from dvk.pipelines.report.units import many, show_s

HEARTBEAT_S = 10.0
"""Longest silence."""


class Progress:
    """Lines from the first second on; a context manager.

    Args:
        total: tasks of the suite.
        heartbeat_s: longest silence.
        file: where to write; stderr.
    """

    def __init__(self, total: int, *, heartbeat_s: float = HEARTBEAT_S, file: TextIO | None = None):
        self.total, self._heartbeat_s, self._file = total, heartbeat_s, file or sys.stderr
        self._stage, self._ended, self._before, self._prepared, self._judged = "", 0, 0, 0, 0
        self._again = 0
        self._began = self._said = time.monotonic()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="eval-progress", daemon=True)

    def __enter__(self) -> Progress:
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._ticker.join(2)

    def stage(self, text: str) -> None:
        """Start a new stage."""
        self._stage = text
        self.say(text)

    def resumed(self, count: int) -> None:
        """Count tasks of an earlier run."""
        self._ended = self._before = count
        if count:
            self.say(f"{count} of {self.total} tasks were done before")

    def prepared(self) -> None:
        """Count an examined task."""
        self._prepared += 1

    def judged(self, count: int) -> None:
        """Count verdicts."""
        self._judged += count

    def timed_again(self) -> None:
        """Count a winner that was timed again."""
        self._again += 1

    def ended(self, said: str) -> None:
        """Count a finished task, with its line."""
        self._ended += 1
        self.say(f"[{self._ended}/{self.total}] {said}")

    def say(self, text: str) -> None:
        """Print a line now."""
        with self._lock:
            self._said = time.monotonic()
            try:
                print(" ".join(text.split()), file=self._file, flush=True)
            except (OSError, ValueError):  # the reader has closed the pipe
                self._stop.set()

    def heartbeat(self) -> str:
        """The progress as text."""
        seconds = time.monotonic() - self._began
        told = [
            f"… {show_s(seconds)}",
            self._stage,
            f"{self._ended} of {self.total} tasks done",
            f"{self._prepared} prepared",
            f"{many(self._judged, 'candidate')} judged",
        ]
        if self._again:
            told.append(f"{many(self._again, 'winner')} timed again")
        new = self._ended - self._before
        if new >= 3 and self._ended < self.total:
            told.append(f"about {show_s(seconds / new * (self.total - self._ended))} left")
        return ", ".join(part for part in told if part)

    def _tick(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(max(0.05, self._said + self._heartbeat_s - time.monotonic()))
            if not self._stop.is_set() and time.monotonic() >= self._said + self._heartbeat_s:
                self.say(self.heartbeat())
