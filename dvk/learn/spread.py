"""Ordered parallel map over batches in several processes: results in order, a few batches ahead of the consumer."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import chain, islice
from multiprocessing import connection
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


def spread(work: Callable[[A], B], batches: Iterable[A], workers: int) -> Iterator[B]:
    """`work(batch)` for every batch, in order.

    Args:
        work: a module-level function, or a partial of one; it is sent once to each process, batches and results each time.
        batches: taken as they are needed.
        workers: processes; with one, or with a single batch, the work is done here.
    """
    source = iter(batches)
    first = list(islice(source, 2))
    if workers <= 1 or len(first) < 2:
        yield from map(work, chain(first, source))
        return
    pending: deque[Future[B]] = deque()
    # Spawned, not forked: this process may have threads of torch or the tokenizer.
    with ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(work,),
    ) as processes:
        try:
            for batch in chain(first, source):
                pending.append(processes.submit(_call, batch))
                while pending and (len(pending) >= 2 * workers or pending[0].done()):
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


_work: Callable[[Any], Any]


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    end_with_parent()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _call(batch: Any) -> Any:
    return _work(batch)


def end_with_parent() -> None:
    """End a worker when its parent has ended, for any reason; a worker would wait for input forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
