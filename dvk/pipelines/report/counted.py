"""Progress of a stage that counts: a bar on a terminal, elsewhere a plain line now and then, with an estimate."""

from __future__ import annotations

import math
import sys
import threading
import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dvk.pipelines.report.units import show_s

EVERY_S = 15.0
"""Longest silence without a terminal."""


class WordCount(Progress):
    """A subset of rich's `Progress`.

    Args:
        what: the counted things, e.g. `tasks`.
        more: columns behind the counts, on a terminal.
        quiet: show nothing at all.
        console: stderr by default.
        every_s: between two plain lines.
        budget_s: seconds after which the work ends in any case: a plain line promises no more.
    """

    def __init__(
        self,
        what: str,
        *more: ProgressColumn,
        quiet: bool = False,
        console: Console | None = None,
        every_s: float = EVERY_S,
        budget_s: float | None = None,
    ):
        console = console or Console(file=sys.stderr)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(f"{{task.completed:.0f}}/{{task.total:.0f}} {what}"),
            *more,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        super().__init__(
            *columns,
            console=console,
            disable=quiet or not console.is_terminal,
            refresh_per_second=2,
        )
        self._what, self._every_s = what, every_s
        self._budget_s = math.inf if budget_s is None else budget_s
        self._plain = not quiet and not console.is_terminal
        self._before: dict[TaskID, float] = {}
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def start(self) -> None:
        """Start showing."""
        super().start()
        if self._plain and self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, name="counted", daemon=True)
            self._ticker.start()

    def stop(self) -> None:
        """Stop showing."""
        self._ended.set()
        super().stop()

    def lines(self) -> list[str]:
        """The fallback without a terminal: one line a stage that has not ended."""
        return [self._line(task.id) for task in self.tasks if not task.finished]

    def _line(self, number: TaskID) -> str:
        task = self._tasks[number]
        before = self._before.setdefault(number, task.completed)
        seconds, done = task.elapsed or 0.0, task.completed - before
        told = [
            f"{task.description}: {task.completed:,.0f} of {task.total or 0:,.0f} {self._what}",
            show_s(seconds),
        ]
        if done > 0 and task.total:
            left = seconds / done * (task.total - task.completed)
            told.append(f"about {show_s(min(left, max(0.0, self._budget_s - seconds)))} left")
        return ", ".join(told)

    def _tick(self) -> None:
        self.lines()  # earlier work is no basis for an estimate
        said = time.monotonic()
        while not self._ended.wait(min(1.0, self._every_s)):
            if time.monotonic() - said < self._every_s:
                continue
            said = time.monotonic()
            for line in self.lines():
                try:
                    print(line, file=self.console.file, flush=True)
                except (OSError, ValueError):  # the reader has closed the pipe
                    return
