"""A search's progress on stderr while it works: the best so far, the budget, the last candidates.

A terminal gets a small view redrawn in place by one thread: at most four times a second on changes
and once a second for the clock. A redraw costs 1.2 ms of one core
(`test_live.py` holds it below 1 %), so it continues while candidates are timed: 0.1 % of one core against
medians of interleaved pairs. Anything else gets plain lines: one an improvement, and one every ten
quiet seconds. stdout is never written. A terminal that goes away does not stop a search.

The cursor stays visible, so that a kill or Ctrl-Z leaves nothing to repair.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from types import TracebackType
from typing import Literal, TextIO

from rich.console import Console
from rich.live import Live as Screen
from rich.text import Text

from dvk.records import Interval, Turn
from dvk.speedups import shown

REDRAW_S = 0.25
"""Shortest time between two redraws."""
CLOCK_S = 1.0
"""Longest time between two redraws: the clock is seen to run."""
HEARTBEAT_S = 10.0
"""Longest silence in plain lines."""
NUM_RECENT = 6
BAR = 32


class SearchView:
    """The view of one search; use as a context manager.

    Args:
        budget_s: seconds the search may take.
        name: the module's name.
        quiet: show nothing at all.
        elapsed_s: seconds already spent, when a run is resumed.
        several: there are several proposers, so each candidate's is named.
        file: where to write; stderr.
    """

    def __init__(
        self,
        budget_s: float,
        *,
        name: str = "",
        quiet: bool = False,
        elapsed_s: float = 0.0,
        several: bool = False,
        file: TextIO | None = None,
    ):
        self.budget_s = budget_s
        self.name = name
        self.several = several
        self._console = Console(file=file or sys.stderr, highlight=False, emoji=False)
        screen = self._console.is_terminal and not self._console.is_dumb_terminal
        self._mode: Literal["quiet", "plain", "screen"] = (
            "quiet" if quiet else "screen" if screen else "plain"
        )
        self._view: Screen | None = None
        self._ticker: threading.Thread | None = None
        self._stop, self._changed = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._start = time.monotonic() - elapsed_s
        self._offset_s = elapsed_s
        self._said = time.monotonic()
        self._stage = self._trying = self._writing = ""
        self._counts: Counter[str] = Counter()
        self._faster: dict[str, tuple[bool, Interval, str]] = {}
        self._recent: deque[tuple[int, str, bool, str]] = deque(maxlen=NUM_RECENT)

    def __enter__(self) -> SearchView:
        self._start = time.monotonic() - self._offset_s
        self._said = time.monotonic()
        if self._mode == "screen":
            self._view = Screen(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                get_renderable=self._render,
            )
            self._view.start()
            self._console.show_cursor(True)
        if self._mode != "quiet":
            self._ticker = threading.Thread(target=self._tick, name="live-view", daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._stop.set()
            self._changed.set()
            if self._ticker is not None:
                self._ticker.join(timeout=2)
        finally:
            if self._view is not None:
                try:
                    self._view.stop()
                except (OSError, ValueError):  # the terminal is gone, with the view
                    pass

    # ------------------------------------------------------------ events

    def stage(self, text: str) -> None:
        """The search entered a new stage, e.g. `capturing the graph`."""
        with self._lock:
            self._stage, self._trying = _line(text), ""
        self._changed.set()

    def note(self, text: str) -> None:
        """A message that should not be missed: a separate line above the view."""
        if self._view is not None:
            self._console.print(_line(text), style="dim", markup=False)
        elif self._mode == "plain":
            self._say(_line(text))

    def trying(self, title: str, proposer: str = "") -> None:
        """A candidate went to the judge; `proposer` is named if there are several."""
        with self._lock:
            self._trying = _line(f"{proposer}: {title}" if proposer else title)
        self._changed.set()

    def asking(self, name: str, number: int) -> None:
        """The model `name` began to write so many answers; 0: it is done."""
        with self._lock:
            self._writing = (
                _line(f"{name} writes {number} answer{'s' if number > 1 else ''}") if number else ""
            )
        self._changed.set()

    def judged(self, turn: Turn) -> None:
        """A verdict came."""
        with self._lock:
            before = self._best()
            self._take(turn)
            best = self._best()
        self._changed.set()
        if self._mode == "plain" and best is not None and best != before:
            self._say(_best_line(*best))

    def resumed(self, turns: Iterable[Turn]) -> None:
        """Verdicts of an earlier process: counted, and not announced again."""
        with self._lock:
            for turn in turns:
                self._take(turn)
        self._changed.set()

    @property
    def best(self) -> Interval | None:
        """Speedup of the best so far, None while nothing was faster."""
        with self._lock:
            result = self._best()
        return result[1] if result else None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._start

    # ------------------------------------------------------------ state

    def _take(self, turn: Turn) -> None:
        verdict, candidate = turn.verdict, turn.candidate
        outcome = verdict.status.value.replace("_", " ") if verdict else "no verdict"
        title = (
            _line(candidate.title or candidate.proposer) if candidate else "no code in the answer"
        )
        if self.several and candidate and candidate.title:
            title = _line(f"{candidate.proposer}: {title}")
        timing = verdict.timing if verdict else None
        self._trying = ""
        confirmation = verdict is not None and verdict.tier == "claim"
        self._counts[outcome] += not confirmation  # a stage without new candidates
        faster = verdict is not None and verdict.faster
        figures = shown(timing.speedup) if timing else outcome
        self._recent.append((self._counts.total(), figures, faster, title))
        if candidate is None or verdict is None:
            return
        if (
            faster
            and timing is not None
            and (confirmation or not self._faster.get(candidate.id, (False,))[0])
        ):
            self._faster[candidate.id] = (confirmation, timing.speedup, title)
        elif confirmation:  # the confirmation refuted it
            self._faster.pop(candidate.id, None)

    def _best(self) -> tuple[bool, Interval, str] | None:
        """(confirmed, speedup, title); confirmations before all others."""
        return max(
            self._faster.values(), key=lambda found: (found[0], found[1].value), default=None
        )

    # ------------------------------------------------------------ output

    def _tick(self) -> None:
        """The ticker thread: redraw on changes and by the clock, or break a long silence."""
        while not self._stop.is_set():
            if self._mode == "screen":
                self._changed.wait(CLOCK_S)
                self._changed.clear()
                if not self._stop.is_set():
                    self._draw()
                self._stop.wait(REDRAW_S)
            else:
                self._stop.wait(max(0.05, self._said + HEARTBEAT_S - time.monotonic()))
                if not self._stop.is_set() and time.monotonic() >= self._said + HEARTBEAT_S:
                    self._say(self._heartbeat())

    def _draw(self) -> None:
        try:
            assert self._view is not None
            self._view.refresh()
        except (OSError, ValueError):  # the terminal is gone
            self._stop.set()

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        try:
            self._console.file.write(f"{_clock(self.elapsed_s):>8}  {text}\n")
            self._console.file.flush()
        except (OSError, ValueError):  # the reader has closed the pipe
            self._mode = "quiet"
            self._stop.set()

    def _heartbeat(self) -> str:
        with self._lock:
            best, tried = self._best(), self._counts.total()
            doing = [part for part in (self._writing, self._trying) if part] or [self._stage]
        found = shown(best[1]) if best else "nothing faster yet"
        return ", ".join(part for part in (f"{tried} tried", found, *doing) if part)

    def _render(self) -> Text:
        with self._lock:
            best, recent, counts = self._best(), list(self._recent), self._counts.copy()
            stage, trying, writing = self._stage, self._trying, self._writing
        rows = [Text.assemble((_line(self.name) or "dvk", "bold"), "  ", (stage, "dim"))]
        rows.append(self._bar())
        found = (_best_line(*best), "bold cyan") if best else ("nothing faster yet", "dim")
        rows.append(Text.assemble("best  ", found))
        if counts:
            listed = " · ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
            rows.append(Text.assemble(f"{counts.total()} tried  ", (listed, "dim")))
        for number, figures, faster, title in recent:
            style = "cyan" if faster else "dim"
            rows.append(
                Text.assemble((f"{number:>5}  ", "dim"), (f"{figures:<20}  ", style), title)
            )
        if writing:
            rows.append(Text.assemble("    …  ", (f"{'asking':<20}  {writing}", "dim")))
        if trying:
            rows.append(Text.assemble("    …  ", (f"{'judging':<20}  {trying}", "dim")))
        for row in rows:
            row.truncate(max(1, self._console.width - 1), overflow="ellipsis")
        return Text("\n", no_wrap=True).join(rows)

    def _bar(self) -> Text:
        elapsed = self.elapsed_s
        share = min(1.0, elapsed / self.budget_s) if self.budget_s > 0 else 1.0
        done = round(BAR * share)
        times = f"  {_clock(elapsed)} of {_clock(self.budget_s)}"
        return Text.assemble(("━" * done, "cyan"), ("─" * (BAR - done), "dim"), times)


def _best_line(confirmed: bool, speedup: Interval, title: str) -> str:
    return f"{shown(speedup)}{' confirmed' if confirmed else ''}  {title}"


def _line(text: str) -> str:
    """Foreign text as one line without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60}:{whole % 60:02d} min"
