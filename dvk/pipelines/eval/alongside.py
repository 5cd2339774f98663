"""Second times of winners, taken while other tasks are still searched.

A task's judge session still holds its reference when its search ends, so that timing its winner again then costs half of what it costs
later; and compiling a baseline keeps cores at work while the GPU times others. Claims wait until all searches have ended. So do all second
times on a CPU, whose cores the search takes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from dvk.records import Episode

Timed = Callable[[Sequence[Episode]], Iterator[dict[str, Any]]]
"""The rows of episodes, as they are measured."""


class Alongside:
    """Measures the rows of episodes in threads, and writes each as soon as it is known; a context manager.

    An error ends the measuring; `finish` raises it. Threads that are left at an exit write nothing any more.

    Args:
        timed: measures an episode.
        write: keeps a row; called by one thread at a time.
        num_threads: episodes at a time.
        at_once: measure each episode when it is added; else all of them together in `finish`.
    """

    def __init__(
        self,
        timed: Timed,
        write: Callable[[dict[str, Any]], None],
        num_threads: int,
        *,
        at_once: bool = True,
    ):
        self._timed, self._write, self._num_threads = timed, write, num_threads
        self._at_once, self._later = at_once, list[Episode]()
        self._waiting: queue.SimpleQueue[Sequence[Episode]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._num_threads_up = 0
        self._left = 0
        self._error: BaseException | None = None
        self._open = True

    def __enter__(self) -> Alongside:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._open = False

    @property
    def num_left(self) -> int:
        """Episodes that are not finished."""
        return self._left + len(self._later)

    def add(self, *episodes: Episode) -> None:
        """Measure episodes as soon as threads are free."""
        if not self._at_once:
            self._later += episodes
            return
        for episode in episodes:
            self._start([episode])

    def finish(self) -> None:
        """Wait until all episodes are measured.

        Raises:
            BaseException: what ended the measuring.
        """
        if self._later:
            self._start(self._later)
            self._later = []
        with self._changed:
            while self._left and self._error is None:
                self._changed.wait()
            if self._error is not None:
                raise self._error

    def _start(self, episodes: Sequence[Episode]) -> None:
        with self._changed:
            self._left += len(episodes)
            self._waiting.put(episodes)
            if self._num_threads_up < min(self._num_threads, self._left):
                self._num_threads_up += 1
                threading.Thread(target=self._work, name="second-times", daemon=True).start()

    def _work(self) -> None:
        try:
            while self._open and self._error is None:
                episodes = self._waiting.get()
                for row in self._timed(episodes):
                    self._keep(row)
                with self._changed:
                    self._left -= len(episodes)
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _keep(self, row: dict[str, Any]) -> None:
        with self._changed:
            if self._open:
                self._write(row)
