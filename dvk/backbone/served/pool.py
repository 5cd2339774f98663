"""Several servers as one: a prompt's rollouts go to the server that has its prefix in its cache, idle servers take others' work.

A server that does not answer is left out, its requests go to the others, and it is asked again at the next call.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from dvk.backbone.served.http import Refused, Unreachable
from dvk.backbone.served.server import Prompt, ServedSample, Server, Weights
from dvk.errors import DvkError, MachineError

ATTEMPTS = 4
"""Tries of one request on servers that are alive."""
PAUSE_S = 1.0
"""Before the second try; it doubles with each."""
BUSY = (429, 500, 502, 503, 504)
"""Statuses after which the same request may succeed."""

Answer = ServedSample | str
"""What was sampled, or why nothing was."""


class ServerPool:
    """See the module.

    Args:
        servers: none connected yet.
        concurrency: requests in flight at one server.
        revive: starts a server again that was started here; returns whether it runs. None: others start them.
        turn: held by a thread while a request of it is answered.

    Raises:
        MachineError: none answers.
        UsageError: one serves another model than the others.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        concurrency: int,
        revive: Callable[[Server], bool] | None = None,
        turn: Callable[[], AbstractContextManager[object]] = nullcontext,
    ):
        self.servers, self.concurrency, self.revive, self.turn = servers, concurrency, revive, turn
        self.weights: Weights | None = None
        self._why = ""
        self._asleep: list[Server] = []
        for server in servers:
            self._join(server)
        self._need_one()

    @property
    def alive(self) -> list[Server]:
        """Servers that answered last."""
        return [server for server in self.servers if server.alive]

    @property
    def context(self) -> int:
        """Longest sequence in tokens that all of them take."""
        return min(server.context for server in self.alive)

    def publish(self, weights: Weights) -> None:
        """Have all servers sample from these weights from now on.

        Raises:
            MachineError: one cannot load them, or none answers.
        """
        self.weights = weights
        self.wake()
        self._rejoin()
        failed: list[DvkError] = []

        def load(server: Server) -> None:
            try:
                server.load(weights)
            except Unreachable as error:
                self._lose(server, str(error))
            except DvkError as error:
                failed.append(error)

        _side_by_side([partial(load, server) for server in self.alive])
        if failed:
            raise failed[0]
        self._need_one()

    def sleep(self) -> None:
        """Have the servers free their GPUs' memory until the next `publish` or `run`."""
        for server in self.alive:
            try:
                server.sleep()
                self._asleep.append(server)
            except (Unreachable, Refused) as error:
                _say(f"{server} keeps its memory while the learner updates: {error}")

    def wake(self) -> None:
        """End `sleep`."""
        while self._asleep:
            server = self._asleep.pop()
            try:
                server.wake()
            except (Unreachable, Refused) as error:
                self._lose(server, str(error))

    def run(self, prompts: Sequence[Prompt], groups: Sequence[int]) -> list[Answer]:
        """The answers, in order.

        Args:
            prompts: requests.
            groups: of each; prompts of one group share a long prefix.

        Raises:
            MachineError: no server is left, or one cannot load the weights.
            UsageError: one refuses the key or the model.
        """
        self.wake()
        self._rejoin()
        batch = _Batch(self, prompts, groups)
        while batch.missing:
            self._need_one()
            batch.deal()
            work = [
                partial(batch.work, server)
                for server in self.alive
                for _ in range(min(self.concurrency, batch.missing))
            ]
            _side_by_side(work)
            if batch.failed:
                raise batch.failed[0]
        return [batch.answers[number] for number in range(len(prompts))]

    def _rejoin(self) -> None:
        for server in self.servers:
            if not server.alive and server.is_healthy():
                self._join(server)
                if server.alive:
                    _say(f"{server} answers again")

    def _join(self, server: Server) -> None:
        try:
            server.connect()
        except Unreachable as error:
            self._lose(server, str(error))

    def _lose(self, server: Server, why: str) -> None:
        """Leave a server out; said once."""
        was_alive = server.alive or not self._why
        server.alive, server.loaded, self._why = False, None, f"{server}: {why}"
        left = len(self.alive)
        if was_alive and (left or self.revive is not None):
            _say(f"{server} is left out ({why}); {left} of {len(self.servers)} left")

    def _need_one(self) -> None:
        if not self.alive and self.revive is not None:
            for server in self.servers:
                if self.revive(server):
                    self._join(server)
        if not self.alive:
            raise MachineError(
                f"no server answers; the last was {self._why}",
                "start it; a run resumes with --resume",
            )

    def attempt(self, server: Server, prompt: Prompt, tries: int) -> Answer | None:
        """An answer; None if another try, on this or another server, may bring one.

        Raises:
            DvkError: no request can be answered.
        """
        try:
            with self.turn():
                return server.complete(prompt, self.weights)
        except Unreachable as error:
            why = str(error)
            if not server.is_healthy():
                self._lose(server, why)
                return None if tries < ATTEMPTS else f"{server}: {why}"
        except Refused as error:
            why = error.said
            if error.status not in BUSY:
                return why
            if error.status == 500 and not server.is_healthy():
                self._lose(server, why)
                return None if tries < ATTEMPTS else f"{server}: {why}"
        if tries >= ATTEMPTS:
            return f"{server}: {why}"
        time.sleep(PAUSE_S * 2 ** (tries - 1))
        return None


class _Batch:
    """The requests of one call: which wait where, and what came of them."""

    def __init__(self, pool: ServerPool, prompts: Sequence[Prompt], groups: Sequence[int]):
        self.pool, self.prompts, self.groups = pool, prompts, groups
        self.answers: dict[int, Answer] = {}
        self.failed: list[DvkError] = []
        self._tries = [0] * len(prompts)
        self._queues: dict[str, deque[int]] = {}
        self._lock = threading.Lock()

    @property
    def missing(self) -> int:
        """Requests without an answer."""
        return len(self.prompts) - len(self.answers)

    def deal(self) -> None:
        """Give each living server its groups, the largest first to the one that has least."""
        waiting: dict[int, list[int]] = {}
        for number, group in enumerate(self.groups):
            if number not in self.answers:
                waiting.setdefault(group, []).append(number)
        self._queues = {server.url: deque() for server in self.pool.alive}
        for numbers in sorted(waiting.values(), key=len, reverse=True):
            min(self._queues.values(), key=len).extend(numbers)

    def work(self, server: Server) -> None:
        """Answer requests until none waits, or the server does not answer: then others have its requests."""
        while server.alive and not self.failed and (number := self._next(server)) is not None:
            self._tries[number] += 1
            try:
                answer = self.pool.attempt(server, self.prompts[number], self._tries[number])
            except DvkError as error:
                self.failed.append(error)
                return
            with self._lock:
                if answer is not None:
                    self.answers[number] = answer
                else:
                    self._queues[server.url].appendleft(number)

    def _next(self, server: Server) -> int | None:
        """A request of the server's queue, else of the longest."""
        with self._lock:
            mine = self._queues[server.url]
            queue = mine or max(self._queues.values(), key=len)
            return queue.popleft() if queue else None


def _side_by_side(work: Sequence[Callable[[], None]]) -> None:
    """Run all, each in a thread. Threads are daemons: a server that never answers does not keep an ended process alive."""
    errors: list[BaseException] = []

    def guarded(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
