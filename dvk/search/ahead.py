"""An iterator that runs in a thread, one item ahead, so that its reader can do other work while an item takes long."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")

LOOK_S = 0.5
"""Longest time until the thread sees that its reader has left."""


class Ahead(Generic[T]):
    """The items of an iterable, see `prepared_ahead`.

    Attributes:
        ended: whether all have been taken.
    """

    def __init__(self, items: Iterable[T]):
        self.ended = False
        self._left = False
        self._ready: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(maxsize=1)
        self._thread = threading.Thread(target=self._run, args=(items,), daemon=True)
        self._thread.start()

    def take(self, wait_s: float | None) -> T | None:
        """Return the next item; None if there are no more, or none within `wait_s` (None: wait for it).

        Raises:
            BaseException: what the iterable raised.
        """
        if self.ended:
            return None
        try:
            item = self._ready.get(timeout=wait_s)
        except queue.Empty:
            return None
        if isinstance(item, tuple):
            return item[0]
        self.ended = True
        if item is not None:
            raise item
        return None

    def leave(self) -> None:
        """Take no more; the iterable ends after its current item."""
        self._left = self.ended = True

    def _run(self, items: Iterable[T]) -> None:
        source = iter(items)
        last: BaseException | None = None
        try:
            for item in source:
                if not self._offer((item,)):
                    break
        except BaseException as error:  # noqa: BLE001 - raised again in the reader's thread
            last = error
        finally:
            if (close := getattr(source, "close", None)) is not None:
                close()
        self._offer(last)

    def _offer(self, found: tuple[T] | BaseException | None) -> bool:
        """Put it where the reader finds it; returns whether there still is a reader."""
        while not self._left:
            try:
                self._ready.put(found, timeout=LOOK_S)
                return True
            except queue.Full:
                continue
        return False


@contextmanager
def prepared_ahead(items: Iterable[T]) -> Iterator[Ahead[T]]:
    """Run the iterable in a thread while the body reads it."""
    ahead = Ahead(items)
    try:
        yield ahead
    finally:
        ahead.leave()
