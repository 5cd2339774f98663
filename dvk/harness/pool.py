"""Judge many candidates at once, each in a fresh process of its own, verdicts as they come.

Local processes. Timing is serial a device (`lanes`), so more workers than cores pay where compiling
dominates. Threads here only wait for sockets; what runs, runs in the children.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence

from dvk.config import Config
from dvk.harness.judge import judge
from dvk.records import Candidate, Task, Tier, Verdict


class Pool:
    """`workers` candidates in work at any time.

    Args:
        workers: how many.
        config: limits and judge settings.
    """

    def __init__(self, workers: int, config: Config):
        self.workers = max(1, workers)
        self.config = config

    def map(
        self, jobs: Iterable[tuple[Task, Candidate]], *, tier: Tier = "search", baselines: Sequence[str] = ()
    ) -> Iterator[tuple[int, Verdict]]:
        """(position of the job, verdict) as each ends; jobs are drawn as workers get free.

        Raises:
            MachineError: no sandbox can be started. Jobs in work are given up.
        """
        source = enumerate(jobs)
        results: queue.SimpleQueue[tuple[int, Verdict] | BaseException | None] = queue.SimpleQueue()
        lock = threading.Lock()
        stop = threading.Event()

        def work() -> None:
            try:
                while not stop.is_set():
                    with lock:
                        job = next(source, None)
                    if job is None:
                        break
                    position, (task, candidate) = job
                    (verdict,) = judge(task, [candidate], tier=tier, baselines=baselines, config=self.config)
                    results.put((position, verdict))
                results.put(None)
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                results.put(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(self.workers)]
        for thread in threads:
            thread.start()
        running = len(threads)
        try:
            while running:
                result = results.get()
                if result is None:
                    running -= 1
                elif isinstance(result, BaseException):
                    raise result
                else:
                    yield result
        finally:
            stop.set()
