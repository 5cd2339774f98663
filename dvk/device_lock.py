"""Who may use a device now: many at once to compile and check, one alone to time.

File locks, so that they hold between all dvk processes of a user on this machine, and vanish with a
killed process. On a CPU whatever else runs disturbs a measurement, so compiling and checking hold
the lane shared; on a GPU that would stop everybody for every compilation, so only timing takes it, a
language model that writes, and what is checked for a claim: they would fill the GPU between and under the calls that are timed.
A gate before the lane keeps newcomers from starving who waits to be alone.
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
"""About what ten judges that stand in line take to time a launch plan each: work and measurements then share a GPU evenly."""


class DeviceLock:
    """The lane of one device, e.g. `cpu` or `gpu-<uuid>`."""

    def __init__(self, name: str, folder: str | None = None):
        folder = folder or os.path.join(shared_folder(), "lanes")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._gate = os.open(os.path.join(folder, f"{name}.gate"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._turn = os.open(os.path.join(folder, f"{name}.turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lane = os.open(os.path.join(folder, f"{name}.lane"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Work that may run beside others' but not beside a measurement."""
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
    def shared_in_turns(self, rest: Callable[[], None] = lambda: None) -> Iterator[Callable[[Callable[[], None] | None], None]]:
        """`shared`, for long work that can stop for others: it calls the function given now and then, which lets whoever waits to
        measure go first once `HOLD_S` have passed, and before calls `rest`, to end what is under way. What that function is given,
        which may wait for who measures, is called with the lane given up."""
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
        """All cores for a moment, beside work that needs one; `waits` is called first where somebody else has them.

        Teams of threads that together outnumber the cores spin for longer than they work.
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
        """A measurement."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lane, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(self._lane, fcntl.LOCK_UN)
            fcntl.flock(self._gate, fcntl.LOCK_UN)


def of_cpu() -> str:
    """The lane of this process's cores: judges that were given some of their own (taskset) do not wait for the others."""
    mine = os.sched_getaffinity(0)
    return "cpu" if len(mine) == os.cpu_count() else f"cpu-{content_hash(*map(str, sorted(mine)))}"


def of_gpu(index: int = 0) -> str:
    """The lane of a GPU, by this process's numbers; the same for processes that number GPUs otherwise."""
    import torch

    return f"gpu-{getattr(torch.cuda.get_device_properties(index), 'uuid', index)}"


def shared_folder() -> str:
    """A folder that all sandboxed children of this user share, whatever their TMPDIR."""
    return os.path.join("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir(), f"dvk-{os.getuid()}")
