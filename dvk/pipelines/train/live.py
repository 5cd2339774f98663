"""The loop on stderr: the current step's stage, and a line for each finished step."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live as Screen
from rich.text import Text

from dvk.pipelines.report.counted import EVERY_S
from dvk.pipelines.report.units import show_s
from dvk.records import Role, Status, Turn

COLUMNS = (
    ("step", "step", "{:.0f}"),
    ("reward", "reward_turn_1", "{:.2f}"),
    ("right", "right", "{:.0%}"),
    ("fast_1", "fast_1", "{:.0%}"),
    ("kept", "kept", "{:.0%}"),
    ("entropy", "entropy", "{:.3f}"),
    ("skills", "skills", "{:.0f}"),
    ("play s", "play_s", "{:.0f}"),
    ("learn s", "learn_s", "{:.0f}"),
    ("val fast_1", "val_fast_1", "{:.0%}"),
)
"""Heading, key of metrics.jsonl, form."""


class TrainingView:
    """Use as a context manager.

    Args:
        num_steps: of the whole run.
        quiet: show nothing.
    """

    def __init__(self, num_steps: int, *, quiet: bool = False):
        self.console = Console(file=sys.stderr, highlight=False, emoji=False, quiet=quiet)
        self.num_steps = num_steps
        watched = self.console.is_terminal and not quiet
        self._screen = (
            Screen(console=self.console, refresh_per_second=2, transient=True) if watched else None
        )
        self._counts: Counter[str] = Counter()
        self._began = time.monotonic()
        self._headed = False
        self._stage, self._ended, self._took, self._done = "starting", 0, 0.0, 0
        self._every_s = 1.0 if watched else EVERY_S
        self._stop = threading.Event()
        self._ticker = (
            threading.Thread(target=self._tick, name="train-view", daemon=True)
            if not quiet
            else None
        )

    def __enter__(self) -> TrainingView:
        if self._screen is not None:
            self._screen.start()
        if self._ticker is not None:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._screen is not None:
            self._screen.stop()

    def stage(self, text: str, step: int | None = None) -> None:
        """Start a stage, e.g. `learning`; of which step, counted from 0."""
        self._stage = f"step {step + 1} of {self.num_steps}, {text}" if step is not None else text

    def line(self) -> str:
        """The current step's stage, and an estimate of the time left."""
        counts = self._counts
        told = [self._stage, show_s(time.monotonic() - self._began)]
        if counts:
            told.append(
                f"{counts['selection']} selections, {counts['policy']} kernels ({counts['right']} right), "
                f"{counts['summary']} summaries"
            )
        if self._ended:
            told.append(
                f"about {show_s(self._took / self._ended * (self.num_steps - self._done))} left"
            )
        return ", ".join(told)

    def _tick(self) -> None:
        while not self._stop.wait(self._every_s):
            if self._screen is not None:
                self._screen.update(Text(self.line()))
            else:
                self.say(self.line())

    def say(self, text: str) -> None:
        """A separate line."""
        self.console.print(text, soft_wrap=True, markup=False)

    def turn(self, role: Role, turn: Turn) -> None:
        """A turn has ended."""
        self._counts[role] += 1
        if role == "policy":
            self._counts["right"] += turn.verdict is not None and turn.verdict.status is Status.OK
        if self._screen is not None:
            self._screen.update(Text(self.line()))

    def step(self, row: Mapping[str, Any]) -> None:
        """A step has ended."""
        if not self._headed:
            self.console.print(
                "  ".join(f"{heading:>10}" for heading, _, _ in COLUMNS), soft_wrap=True
            )
            self._headed = True
        cells = [
            form.format(row[key]) if isinstance(row.get(key), (int, float)) else ""
            for _, key, form in COLUMNS
        ]
        self.console.print("  ".join(f"{cell:>10}" for cell in cells), soft_wrap=True)
        self._counts.clear()
        now = time.monotonic()
        self._ended, self._took, self._began = self._ended + 1, self._took + now - self._began, now
        self._done = int(row.get("step", self._done))
