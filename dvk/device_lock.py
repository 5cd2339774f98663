"""Locks on a device: many processes compile and check at once, one alone times.

File locks hold between all dvk processes of a user on this machine and vanish with a killed process. On a CPU every other process
disturbs a measurement, so compiling and checking hold the device lock shared. On a GPU that would block every compilation, so only three
kinds of work take it: timing, a language model that writes, and the checks of a claim, whose work would overlap timed calls. A gate
before the lock keeps newcomers from starving a process that waits for it exclusively.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from dvk.records import content_hash

HOLD_S = 0.5
"""About the time that ten queued judges take to time a launch plan each: work and measurements then share a GPU evenly."""


class DeviceLock:
    """The lock of one device, e.g. `cpu` or `gpu-<uuid>`."""

    def __init__(self, name: str, folder: str | None = None):
        folder = folder or os.path.join(shared_folder(), "lanes")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._gate = os.open(
            os.path.join(folder, f"{name}.gate"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        self._turn = os.open(
            os.path.join(folder, f"{name}.turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        self._lane = os.open(
            os.path.join(folder, f"{name}.lane"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock shared: the work may run alongside others' work but not alongside a measurement."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lane, fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._lane, fcntl.LOCK_UN)

    @contextmanager
    def shared_in_turns(
        self, rest: Callable[[], None] = lambda: None
    ) -> Iterator[Callable[[Callable[[], None] | None], None]]:
        """Hold the lock like `shared`, for long work that can yield, and return a function that the work calls now and then. Once `HOLD_S`
        have passed, that function calls `rest`, which ends pending work, and releases the lock for a moment, so that waiting measurements
        go first. With an argument it always releases the lock, and calls the argument meanwhile, which may wait for a measurement."""
        with ExitStack() as held:
            held.enter_context(self.shared())
            since = time.monotonic()

            def give_way(meanwhile: Callable[[], None] | None = None) -> None:
                nonlocal since
                if meanwhile is not None or time.monotonic() - since > HOLD_S:
                    rest()
                    held.close()
                    if meanwhile is not None:
                        meanwhile()
                    held.enter_context(self.shared())
                    since = time.monotonic()

            yield give_way

    @contextmanager
    def all_cores(self, waits: Callable[[], None]) -> Iterator[None]:
        """Hold all cores for a moment, alongside work that needs one; `waits` is called first if another process holds them.

        Thread pools that together outnumber the cores spin for longer than they work.
        """
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(self._turn, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock alone, to measure."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lane, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(self._lane, fcntl.LOCK_UN)
            fcntl.flock(self._gate, fcntl.LOCK_UN)


def of_cpu() -> str:
    """Return the lock of this process's cores: judges with their own cores (taskset) do not wait for others."""
    mine = os.sched_getaffinity(0)
    return "cpu" if len(mine) == os.cpu_count() else f"cpu-{content_hash(*map(str, sorted(mine)))}"


def of_gpu(index: int = 0) -> str:
    """Return the lock of a GPU by this process's numbering; equal for processes that number GPUs otherwise."""
    import torch

    return f"gpu-{getattr(torch.cuda.get_device_properties(index), 'uuid', index)}"


def shared_folder() -> str:
    """Return a folder that all sandboxed children of this user share, whatever their TMPDIR."""
    return os.path.join(
        "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir(), f"dvk-{os.getuid()}"
    )
