"""Single-flight: concurrent calls with one key share one result; the first caller works, the others wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Results by key, for threads. It keeps every result, so it should live no longer than one run.

    A caller that fails raises its exception alone, and one of the waiting callers works instead.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._answers: dict[str, T] = {}
        self._working: set[str] = set()

    def do(self, key: str, work: Callable[[], T]) -> tuple[T, bool]:
        """Return (result, whether this call worked for it).

        Raises:
            Whatever `work` raises in this thread.
        """
        with self._changed:
            while key in self._working:
                self._changed.wait()
            if key in self._answers:
                return self._answers[key], False
            self._working.add(key)
        try:
            answer = work()
        except BaseException:  # after any exception others must not wait forever
            with self._changed:
                self._working.discard(key)
                self._changed.notify_all()
            raise
        with self._changed:
            self._answers[key] = answer
            self._working.discard(key)
            self._changed.notify_all()
        return answer, True
