"""Items made in a thread, some ahead of their consumer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Runs `items` in a thread; use as a context manager.

    Args:
        items: what to make; an exception in it is raised by `take`.
        most: items made and not taken at any time.
    """

    def __init__(self, items: Iterator[T], most: int):
        self.ended = False
        """Whether `take` has returned every item."""
        self._items, self._closed = items, False
        self._room = threading.Semaphore(most)
        self._made: queue.SimpleQueue[tuple[T] | BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Ahead[T]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._room.release()

    def take(self, *, wait: bool) -> tuple[T] | None:
        """The next item. None if there is no more, or if none is made yet and `wait` is false.

        Raises:
            Exception: what making it raised.
        """
        if self.ended:
            return None
        try:
            found = self._made.get(block=wait)
        except queue.Empty:
            return None
        if isinstance(found, tuple):
            self._room.release()
            return found
        self.ended = True
        if found is not None:
            raise found
        return None

    def _run(self) -> None:
        try:
            for item in self._items:
                self._made.put((item,))
                self._room.acquire()
                if self._closed:
                    break
            self._made.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again by `take`
            self._made.put(error)
        finally:
            if isinstance(self._items, Generator):
                self._items.close()
