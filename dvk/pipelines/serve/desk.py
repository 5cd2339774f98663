"""The requests of `dvk serve` by id, from arrival until their result is forgotten, over the judge's queue, which is bounded here.

A task is its id: an equal request under the same id joins the first, so that a client whose connection broke loses nothing
and costs nothing.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any, Protocol

from dvk.config import ServeConfig
from dvk.errors import DvkError, MachineError
from dvk.harness import JudgeQueue
from dvk.harness.waiting_jobs import JudgeJob, Judgement
from dvk.interop.kernelgym import Evaluation, EvaluationResult
from dvk.interop.kernelgym.answers import failure_of
from dvk.interop.kernelgym.fields import State
from dvk.records import Verdict, content_hash

_PRIORITY = {"high": 0, "normal": 1, "low": 2}
KEPT = 10_000
"""Results kept for later requests; at 10 kB each, 100 MB."""


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
    job: JudgeJob | None = None
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    @property
    def same(self) -> str:
        """Key of equal requests."""
        return content_hash(repr(self.request))


class Service(Protocol):
    """What a request asks of the judge, and its result: `JudgeService`."""

    def prepare(self, request: Evaluation) -> Judgement | EvaluationResult: ...

    def result(self, request: Evaluation, verdict: Verdict) -> EvaluationResult: ...


class RequestQueue:
    """Takes requests, has them judged, keeps their results. Use as a context manager, or `close()` it.

    Args:
        settings: the queue's size.
        judges: the judge's queue.
        service: reads requests and writes results; raises DvkError for an error of this machine.
    """

    def __init__(self, settings: ServeConfig, judges: JudgeQueue[Any], service: Service):
        self.settings, self._judges, self._service = settings, judges, service
        self.num_workers = judges.workers
        self.failed: str | None = None
        """The error of this machine in its last request."""
        self.num_ended = 0
        self._changed = threading.Lock()
        self._entries: OrderedDict[str, QueueEntry] = OrderedDict()
        self._open = True

    def __enter__(self) -> RequestQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Accept nothing more, and cancel all waiting requests."""
        with self._changed:
            self._open = False
            left = [entry for entry in self._entries.values() if entry.result is None]
        self._judges.drop({entry.job for entry in left if entry.job is not None})
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
        entry, fresh = QueueEntry(request), None
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
                fresh = entry.job = JudgeJob(
                    partial(self._deliver, entry),
                    prepare=partial(self._prepare, entry),
                    priority=_PRIORITY[request.priority],
                )
            if entry.result is None:
                entry._listeners.append(ended)
        if fresh is not None:
            self._judges.add(fresh)
        elif entry.result is not None:
            ended()
        return entry

    def find(self, task_id: str) -> QueueEntry | None:
        """The entry of that id, None if there is none (any more)."""
        with self._changed:
            return self._entries.get(task_id)

    @property
    def num_waiting(self) -> int:
        """Requests that no worker has taken yet."""
        return self._count("pending")

    @property
    def num_judged(self) -> int:
        """Requests in work."""
        return self._count("processing")

    def _count(self, state: State) -> int:
        return sum(entry.state == state for entry in list(self._entries.values()))

    def position(self, entry: QueueEntry) -> int | None:
        """Number of requests judged before it; None once it is in work."""
        if entry.state != "pending" or entry.job is None:
            return None
        return self._judges.position(entry.job)

    # ------------------------------------------------------------ the judge's side

    def _prepare(self, entry: QueueEntry) -> Judgement | None:
        with self._changed:
            if entry.result is not None:  # the server stops
                return None
            entry.state, entry.began = "processing", time.time()
        ready = self._service.prepare(entry.request)
        if isinstance(ready, Judgement):
            return ready
        self.failed = None
        self._end(entry, ready)
        return None

    def _deliver(self, entry: QueueEntry, answer: Verdict | BaseException) -> None:
        task_id = entry.request.task_id
        if isinstance(answer, Verdict):
            try:
                result = self._service.result(entry.request, answer)
                self.failed = None
            except Exception as error:  # noqa: BLE001 - see below
                return self._deliver(entry, error)
        elif isinstance(answer, DvkError):
            result = failure_of(task_id, answer)
            self.failed = answer.message if isinstance(answer, MachineError) else self.failed
        else:  # a bug of ours costs one request, not a worker
            self.failed = f"{type(answer).__name__}: {answer}"
            result = failure_of(
                task_id,
                MachineError(f"the judge failed: {self.failed}", "look at the server's log"),
            )
        self._end(entry, result)

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
