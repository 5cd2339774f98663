"""The loop on stderr: what the step at hand is at, and a line for each that ended."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live as Screen
from rich.text import Text

from dvk.records import Role, Status, Turn

COLUMNS = (("step", "step", "{:.0f}"), ("reward", "reward_turn_1", "{:.2f}"), ("right", "right", "{:.0%}"), ("fast_1", "fast_1", "{:.0%}"),
           ("kept", "kept", "{:.0%}"), ("entropy", "entropy", "{:.3f}"), ("skills", "skills", "{:.0f}"), ("play s", "play_s", "{:.0f}"),
           ("learn s", "learn_s", "{:.0f}"), ("val fast_1", "val_fast_1", "{:.0%}"))  # fmt: skip
"""Heading, key of metrics.jsonl, form."""


class Live:
    """Use as a context manager.

    Args:
        num_steps: of the whole run.
        quiet: say nothing.
    """

    def __init__(self, num_steps: int, *, quiet: bool = False):
        self.console = Console(file=sys.stderr, highlight=False, emoji=False, quiet=quiet)
        self.num_steps = num_steps
        watched = self.console.is_terminal and not quiet
        self._screen = Screen(console=self.console, refresh_per_second=2, transient=True) if watched else None
        self._counts: Counter[str] = Counter()
        self._began = time.monotonic()
        self._headed = False

    def __enter__(self) -> Live:
        if self._screen is not None:
            self._screen.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._screen is not None:
            self._screen.stop()

    def say(self, text: str) -> None:
        """A line of its own."""
        self.console.print(text, soft_wrap=True, markup=False)

    def turn(self, role: Role, turn: Turn) -> None:
        """A turn has ended."""
        self._counts[role] += 1
        if role == "policy":
            self._counts["right"] += turn.verdict is not None and turn.verdict.status is Status.OK
        if self._screen is not None:
            counts = self._counts
            said = f"{counts['selection']} selections, {counts['policy']} kernels ({counts['right']} right), {counts['summary']} summaries"
            self._screen.update(Text(f"{time.monotonic() - self._began:4.0f} s  {said}"))

    def step(self, row: Mapping[str, Any]) -> None:
        """A step has ended."""
        if not self._headed:
            self.console.print("  ".join(f"{heading:>10}" for heading, _, _ in COLUMNS), soft_wrap=True)
            self._headed = True
        cells = [form.format(row[key]) if isinstance(row.get(key), (int, float)) else "" for _, key, form in COLUMNS]
        self.console.print("  ".join(f"{cell:>10}" for cell in cells), soft_wrap=True)
        self._counts.clear()
        self._began = time.monotonic()
