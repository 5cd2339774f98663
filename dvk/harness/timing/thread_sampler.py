"""Stops a candidate inside calls that look like timed ones, to see whose code its threads are in."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from dvk.harness.checking.case import Case
from dvk.harness.supervision import pc_sampling
from dvk.harness.supervision.runner_client import RunnerClient

SHORT_MS, MOST_STANDS, MOST_S, ENOUGH_SEEN, LOOKS = 0.3, 600, 12.0, 16, 2
"""Shortest call that is sampled: stopping takes about 0.1 ms, and shorter calls are mostly handing over tensors (`ops_disabled` covers
those); then the number and length of stops, the least number of threads seen, and the number of stops after each round of timed calls."""
LATER, SOONER = 1.15, 0.8
"""Step of the aim: calls differ, most of all a process's first ones; the next stop is later after one that met the call, else sooner."""


class ThreadSampler:
    """Stops calls at random times within them.

    Args:
        seed: returns the seed of a runner's call.
        put: puts a case's inputs on the board.
    """

    def __init__(self, seed: Callable[[Case], int], put: Callable[[Case], None]):
        self._seed, self._put = seed, put
        self.within_ms = 1.0
        """Time within which a call is expected to end."""

    def look_often(self, runner: RunnerClient, case: Case, seen: pc_sampling.SampledOwners) -> None:
        """Look until enough threads have been seen, or calls are too short for it."""
        end = time.monotonic() + MOST_S
        for _ in range(MOST_STANDS):
            enough = seen.count >= ENOUGH_SEEN or seen.looks >= 2 * ENOUGH_SEEN
            if enough or self.within_ms < SHORT_MS or time.monotonic() > end:
                break
            self.look(runner, case, seen)

    def look(self, runner: RunnerClient, case: Case, seen: pc_sampling.SampledOwners) -> None:
        """Sample its threads inside a call that looks, from within, like a timed one until it is over."""
        delay_s = random.random() * self.within_ms / 1e3
        if runner.pause_in_call(self._seed(case), delay_s, lambda: self._put(case)):
            seen.look()
            self.within_ms *= LATER
        else:
            self.within_ms *= SOONER
        runner.resume_call()
