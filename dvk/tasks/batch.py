"""Batches of small requests in few sandboxed children: order kept, and a request that kills its child fails alone.

    for index, answer in each("dvk.tasks.hygiene:child", requests, limits):
        ...                        # answer is the child's dict, or the Death of the child

The child's function receives one message `{"requests": [...]}` and sends one answer per request, in order.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any

from dvk import gpu_memory
from dvk.config import Limits
from dvk.sandbox import Death, SandboxSession

Answers = list[dict[str, Any] | Death]
LOOK_S = 0.5
"""Longest time until the thread that reads requests sees that its reader has left."""


def each(
    target: str,
    requests: Iterable[dict[str, Any]],
    limits: Limits,
    *,
    per_child: int = 200,
    num_workers: int = 1,
    env: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, dict[str, Any] | Death]]:
    """Return answers in the order of the requests.

    Args:
        target: `package.module:function` for the children.
        requests: consumed in another thread as needed, a few blocks ahead.
        limits: `wall_s` is for one request; the rest for a child.
        per_child: requests per child at most; the first children get fewer.
        num_workers: children at a time.
        env: more environment variables for the children, set before they import anything.
    """
    index = 0
    with (
        ThreadPoolExecutor(num_workers) as pool,
        _Feeder(requests, per_child, num_workers) as feeder,
    ):
        feeder.start(lambda block: pool.submit(_block, target, block, limits, dict(env or {})))
        while (future := feeder.take()) is not None:
            for answer in future.result():
                yield index, answer
                index += 1


class _Feeder:
    """Reads requests in a thread and gives them out in blocks, so that a slow source delays no answer that is there.

    The first blocks are small: the first answers come early.

    Args:
        requests: the source, read by the thread alone.
        per_child: requests of a block at most.
        num_workers: blocks at work; as many wait.
    """

    def __init__(self, requests: Iterable[dict[str, Any]], per_child: int, num_workers: int):
        self._source, self._per_child = iter(requests), per_child
        self._ready: queue.Queue[Future[Answers] | BaseException | None] = queue.Queue(
            2 * num_workers
        )
        self._left = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> _Feeder:
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread after the request that it waits for, and drop what has not begun."""
        self._left.set()
        if self._thread is not None:
            self._thread.join()
        while not self._ready.empty():
            if isinstance(one := self._ready.get_nowait(), Future):
                one.cancel()

    def start(self, submit: Callable[[list[dict[str, Any]]], Future[Answers]]) -> None:
        """Begin to read; `submit` gets each block."""
        self._thread = threading.Thread(target=self._run, args=(submit,), daemon=True)
        self._thread.start()

    def take(self) -> Future[Answers] | None:
        """Return the answers of the next block; None after the last.

        Raises:
            BaseException: from the source.
        """
        one = self._ready.get()
        if isinstance(one, BaseException):
            raise one
        return one

    def _run(self, submit: Callable[[list[dict[str, Any]]], Future[Answers]]) -> None:
        last: BaseException | None = None
        size = 1
        try:
            while not self._left.is_set() and (block := list(islice(self._source, size))):
                self._put(submit(block))
                size = min(2 * size, self._per_child)
        except BaseException as error:  # noqa: BLE001 - raised again in the reader's thread
            last = error
        finally:
            if (close := getattr(self._source, "close", None)) is not None:
                close()
        self._put(last)

    def _put(self, one: Future[Answers] | BaseException | None) -> None:
        while not self._left.is_set():
            with suppress(queue.Full):
                self._ready.put(one, timeout=LOOK_S)
                return
        if isinstance(one, Future):
            one.cancel()


def _block(
    target: str, block: list[dict[str, Any]], limits: Limits, env: dict[str, str]
) -> Answers:
    answers: Answers = []
    while len(answers) < len(block):
        answers += _in_one_child(target, block[len(answers) :], limits, env)
    return answers


def _in_one_child(
    target: str, rest: list[dict[str, Any]], limits: Limits, env: dict[str, str]
) -> Iterator[dict[str, Any] | Death]:
    """The answers of one child, the last of which is its death if it died."""
    wall_s = limits.wall_s * (len(rest) + 1) + gpu_memory.WAIT_S
    whole = limits.model_copy(update={"wall_s": wall_s})
    # With small operators, more than one thread per core only waits.
    late_env = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    isolate = limits.reference_isolation("cpu")
    gpus: list[int] = []
    with (
        ExitStack() as held,
        SandboxSession(target, whole, env=env, late_env=late_env, isolate=isolate) as session,
    ):
        session.send({"requests": rest})
        for _ in rest:
            answer = _answer(session, limits.wall_s, held, gpus)
            yield answer
            if isinstance(answer, Death):
                return


def _answer(
    session: SandboxSession, wall_s: float, held: ExitStack, gpus: list[int]
) -> dict[str, Any] | Death:
    """The answer to one request. A child that needs a GPU for it gets memory, which it keeps until it asks again or ends; `gpus` then has
    the GPU, since its context stays there."""
    while True:
        answer = session.receive(wall_s)
        if isinstance(answer, Death):
            return answer
        if "needs" not in answer.value:
            return answer.value
        held.close()
        gpu = gpus[0] if gpus else None
        grant = held.enter_context(gpu_memory.owner().reserve(answer.value["needs"], gpu))
        gpus[:] = [] if grant is None else [grant.gpu]
        session.send({"env": gpu_memory.environment_of(grant)})
