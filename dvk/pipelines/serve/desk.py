"""The bounded queue of `dvk serve`, and its workers: a thread each, which waits for the judge's processes.

A task is its id: an equal request under the same id joins the first, so that a client whose connection broke loses nothing
and costs nothing.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from dvk.config import ServeConfig
from dvk.errors import DvkError, MachineError
from dvk.interop.kernelgym import Evaluation, EvaluationResult
from dvk.interop.kernelgym.answers import failure_of
from dvk.interop.kernelgym.fields import State
from dvk.records import content_hash

_PRIORITY = {"high": 0, "normal": 1, "low": 2}
KEPT = 10_000
"""Results kept for later requests; at 10 kB each, 100 MB."""
JOIN_S = 1.0
"""Timeout at closing for judges in progress; their processes end with this one."""


class QueueFull(Exception):
    """The queue is full."""


class TaskIdTaken(Exception):
    """Another request has this id and has not ended."""


class QueueClosed(Exception):
    """The server is stopping."""


@dataclass
class QueueEntry:
    """One request, from its arrival until its result is forgotten."""

    request: Evaluation
    state: State = "pending"
    result: EvaluationResult | None = None
    submitted: float = field(default_factory=time.time)
    began: float | None = None
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    @property
    def same(self) -> str:
        """Key of equal requests."""
        return content_hash(repr(self.request))


class RequestQueue:
    """Takes requests, has them judged, keeps their results. Use as a context manager, or `close()` it.

    Args:
        settings: the queue's size.
        workers: requests in flight.
        answer: judges one, given the worker's number; raises DvkError for an error of this machine.
    """

    def __init__(
        self,
        settings: ServeConfig,
        workers: int,
        answer: Callable[[Evaluation, int], EvaluationResult],
    ):
        self.settings, self.num_workers, self._answer = settings, max(1, workers), answer
        self.failed: str | None = None
        """The error of this machine in its last request."""
        self.num_ended = 0
        self._changed = threading.Condition()
        self._entries: OrderedDict[str, QueueEntry] = OrderedDict()
        self._heap: list[tuple[int, int, str]] = []
        self._numbers = itertools.count()
        self._open = True
        self._threads = [
            threading.Thread(target=self._work, args=(n,), daemon=True)
            for n in range(self.num_workers)
        ]

    def __enter__(self) -> RequestQueue:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        until = time.monotonic() + JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Accept nothing more, and cancel all waiting requests."""
        with self._changed:
            self._open = False
            left = [entry for entry in self._entries.values() if entry.result is None]
            self._changed.notify_all()
        for entry in left:
            self._end(
                entry,
                failure_of(
                    entry.request.task_id,
                    MachineError("the server was stopped", "ask again when it is back"),
                ),
            )

    @property
    def closed(self) -> bool:
        """Whether it accepts nothing more."""
        return not self._open

    # ------------------------------------------------------------ clients

    def submit(self, request: Evaluation, ended: Callable[[], None]) -> QueueEntry:
        """The entry of a request, new or known; `ended` is called once, from any thread, when it has its result.

        Raises:
            Full, Taken, Closed: it is not accepted.
        """
        entry = QueueEntry(request)
        with self._changed:
            if not self._open:
                raise QueueClosed
            known = self._entries.get(request.task_id)
            if known is not None and known.same != entry.same and known.result is None:
                raise TaskIdTaken
            again = (
                known is not None
                and known.result is not None
                and (request.force_refresh or known.state == "failed")
            )
            if known is not None and known.same == entry.same and not again:
                entry = known
            else:
                if self.num_waiting >= self.settings.queue:
                    raise QueueFull
                self._entries[request.task_id] = entry
                self._entries.move_to_end(request.task_id)
                heapq.heappush(
                    self._heap, (_PRIORITY[request.priority], next(self._numbers), request.task_id)
                )
                self._changed.notify()
            if entry.result is None:
                entry._listeners.append(ended)
                return entry
        ended()
        return entry

    def find(self, task_id: str) -> QueueEntry | None:
        """The entry of that id, None if there is none (any more)."""
        with self._changed:
            return self._entries.get(task_id)

    @property
    def num_waiting(self) -> int:
        """Requests that no worker has taken yet."""
        return len(self._heap)

    @property
    def num_judged(self) -> int:
        """Requests in work."""
        return sum(entry.state == "processing" for entry in list(self._entries.values()))

    def position(self, entry: QueueEntry) -> int | None:
        """Number of requests judged before it; None once it is in work."""
        with self._changed:
            order = [task_id for _, _, task_id in sorted(self._heap)]
        return (
            order.index(entry.request.task_id)
            if entry.state == "pending" and entry.request.task_id in order
            else None
        )

    # ------------------------------------------------------------ workers

    def _work(self, number: int) -> None:
        while (entry := self._take()) is not None:
            request = entry.request
            try:
                result = self._answer(request, number)
            except DvkError as error:
                result = failure_of(request.task_id, error)
                self.failed = error.message if isinstance(error, MachineError) else self.failed
            except Exception as error:  # noqa: BLE001 - a bug of ours costs one request, not a worker
                self.failed = f"{type(error).__name__}: {error}"
                result = failure_of(
                    request.task_id,
                    MachineError(f"the judge failed: {self.failed}", "look at the server's log"),
                )
            else:
                self.failed = None
            self._end(entry, result)

    def _take(self) -> QueueEntry | None:
        with self._changed:
            while self._open:
                if self._heap:
                    entry = self._entries[heapq.heappop(self._heap)[2]]
                    entry.state, entry.began = "processing", time.time()
                    return entry
                self._changed.wait()
            return None

    def _end(self, entry: QueueEntry, result: EvaluationResult) -> None:
        with self._changed:
            if entry.result is not None:
                return
            now = time.time()
            entry.result = result.model_copy(
                update={
                    "submitted_at": _iso(entry.submitted),
                    "completed_at": _iso(now),
                    "processing_time": round(now - (entry.began or now), 4),
                }
            )
            entry.state = result.status  # type: ignore[assignment]  # ours are among them
            self.num_ended += 1
            listeners, entry._listeners = entry._listeners, []
            ended = [name for name, one in self._entries.items() if one.result is not None]
            for name in ended[: max(0, len(ended) - KEPT)]:
                del self._entries[name]
        for listener in listeners:
            listener()


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).isoformat()
