"""The one owner of GPU memory of a run: whatever starts processes that allocate on a GPU asks it for room first.

This process starts them all and opens no CUDA context itself. It grants bytes on one GPU: jobs are spread over all GPUs, nothing is
granted that does not fit, and a job that is larger than a GPU gets an empty one. A holder that has nothing to do may keep its grant; it is
closed when another needs the room.

    with gpu_memory.owner().reserve(6 << 30) as grant:      # waits for room
        ...                                                 # start a child that sees `visible(grant.gpu)` only
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from dvk import machine
from dvk.records import Device

UNREPORTED_BYTES = 40 << 30
"""Assumed free memory of a GPU that does not report it."""
WAIT_S = 3600.0
"""Added to the wall clock of a child that may wait for memory; its steps have clocks of their parent's."""
PATIENCE_S = 10.0
"""Time after which whatever waits for room has a GPU kept free for it."""
LOOK_S = 5.0
"""Longest time between two looks of something that waits for room: patience ends without an event."""
FRESH_S = 60.0
"""Time for which the free memory that was read is believed, while nothing is granted."""


@dataclass
class Waiting:
    """Something that was refused room, and waits."""

    since: float
    """On time.monotonic's clock."""
    gpu: int | None = None
    """The GPU that is kept free for it, since it has waited for `PATIENCE_S`: nothing else starts there."""


@dataclass(eq=False)
class Grant:
    """Bytes on one GPU, until `release`."""

    gpu: int
    """Position among the visible GPUs."""
    num_bytes: int
    close: Callable[[], None] | None = None
    """Ends the holder's processes; set while they have nothing to do."""
    revoked: bool = False
    """Its holder was idle, and its bytes belong to another."""
    evicted: list[Grant] = field(default_factory=list)
    """Idle holders that the receiver closes before it allocates."""

    def evict(self) -> None:
        """Close the idle holders whose bytes it got."""
        while self.evicted:
            if (close := self.evicted.pop().close) is not None:
                close()


class GpuMemory:
    """The memory of all visible GPUs, and who holds it.

    Args:
        free: returns the free bytes of each GPU; read while nothing is granted.

    Attributes:
        changed: lock of all methods but `reserve`, `forget` and `reclaim`; notified when something is given back.
    """

    def __init__(self, free: Callable[[], Sequence[int]] | None = None):
        self._free = free or _reported
        self._capacity: tuple[int, ...] = ()
        self._looked = float("-inf")
        self._seen: str | None = None
        self._grants: list[Grant] = []
        self._waiting: dict[object, Waiting] = {}
        """Those that were refused, the first first."""
        self.changed = threading.Condition()

    @contextmanager
    def reserve(self, need: int | None, gpu: int | None = None) -> Iterator[Grant | None]:
        """Hold `need` bytes of one GPU, or a whole one (None) in the body; waits for room. None if there is no GPU.

        Args:
            gpu: the one that is meant; None: any.
        """
        who = object()
        try:
            with self.changed:
                while (grant := self.place(need, gpu, who)) is None and self._capacity:
                    self.changed.wait(LOOK_S)
        finally:
            self.forget(who)
        try:
            if grant is not None:
                grant.evict()
            yield grant
        finally:
            if grant is not None:
                with self.changed:
                    self.release(grant)

    def place(
        self, need: int | None, gpu: int | None = None, who: object | None = None
    ) -> Grant | None:
        """Return a grant on the GPU with the fewest holders at work that has room; None if there is none now.

        Args:
            need: bytes; None: all of a GPU without holders at work. More than a GPU has counts as all of it.
            gpu: the one that is meant; None: any.
            who: will ask again if it is refused; after `PATIENCE_S` a GPU is kept free for it, until it gets room or is forgotten.
        """
        fits = self._with_room(need, gpu, who)
        if not fits:
            return None
        chosen = min(
            fits,
            key=lambda one: (
                need is None or self._room(one) < need,
                sum(1 for grant in self._grants if grant.gpu == one and grant.close is None),
                -self._room(one),
            ),
        )
        grant = Grant(chosen, self._capacity[chosen] if need is None else need)
        self._evict(grant)
        self._grants.append(grant)
        self._waiting.pop(who, None)
        return grant

    def note(self, need: int | None, who: object) -> None:
        """Note that `who` waits while other work goes first: if there is no room for it now, it counts as refused."""
        self._with_room(need, None, who)

    def forget(self, who: object) -> None:
        """Something waits no longer."""
        with self.changed:
            if self._waiting.pop(who, None) is not None:
                self.changed.notify_all()

    def has_priority(self, who: object) -> bool:
        """Whether a GPU is kept free for it."""
        return who in self._waiting and self._waiting[who].gpu is not None

    def resize(self, grant: Grant, need: int | None, who: object | None = None) -> bool:
        """Have an idle holder work again with other bytes on its GPU, if there is room without closing others; `who`: as for `place`."""
        if grant.gpu in self._kept_free(who):
            return False
        others = [one for one in self._grants if one.gpu == grant.gpu and one is not grant]
        left = self._capacity[grant.gpu] - sum(one.num_bytes for one in others)
        if grant.revoked or (others and (need is None or need > left)):
            return False
        grant.num_bytes = self._capacity[grant.gpu] if need is None else need
        grant.close = None
        return True

    def rest(self, grant: Grant, close: Callable[[], None]) -> None:
        """Mark the holder as idle: `close` is called, once, if another needs its bytes."""
        grant.close = close
        self.changed.notify_all()

    def release(self, grant: Grant) -> None:
        """Give the bytes back, after the holder's processes have ended."""
        if grant in self._grants:
            self._grants.remove(grant)
        self.changed.notify_all()

    def reclaim(self) -> None:
        """Close all idle holders, and wait until their processes have ended."""
        with self.changed:
            idle = [one for one in self._grants if one.close is not None]
            for one in idle:
                self._revoke(one)
        for one in idle:
            assert one.close is not None, "it is idle"
            one.close()
        with self.changed:
            self.changed.notify_all()

    # ------------------------------------------------------------ table

    def _look(self) -> None:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")  # a rank of a training run sees one GPU
        if self._grants or (time.monotonic() - self._looked < FRESH_S and seen == self._seen):
            return
        self._capacity, self._looked, self._seen = tuple(self._free()), time.monotonic(), seen

    def _kept_free(self, who: object | None) -> set[int]:
        """Return the GPUs that are kept free for others than this one."""
        return {
            one.gpu for name, one in self._waiting.items() if name != who and one.gpu is not None
        }

    def _with_room(self, need: int | None, gpu: int | None, who: object | None) -> list[int]:
        """Return the GPUs that have room; refuse `who` if there are none."""
        self._look()
        asked = list(range(len(self._capacity))) if gpu is None else [gpu]
        kept = self._kept_free(who)
        fits = [one for one in asked if one not in kept and self._fits(one, need)]
        if not fits and who is not None and self._capacity:
            self._refuse(who, asked)
        return fits

    def _refuse(self, who: object, asked: Sequence[int]) -> None:
        """Have it wait; after `PATIENCE_S` keep the GPU free for it on which the least is at work, if no other waits for that one."""
        now = time.monotonic()
        waiting = self._waiting.setdefault(who, Waiting(now))
        open_to = [one for one in asked if one not in self._kept_free(who)]
        if waiting.gpu is None and open_to and now - waiting.since >= PATIENCE_S:
            waiting.gpu = min(open_to, key=self._bytes_at_work)

    def _bytes_at_work(self, gpu: int) -> int:
        return sum(one.num_bytes for one in self._grants if one.gpu == gpu and one.close is None)

    def _room(self, gpu: int) -> int:
        return self._capacity[gpu] - sum(one.num_bytes for one in self._grants if one.gpu == gpu)

    def _fits(self, gpu: int, need: int | None) -> bool:
        if not any(one.gpu == gpu and one.close is None for one in self._grants):
            return True
        return need is not None and need <= self._capacity[gpu] - self._bytes_at_work(gpu)

    def _evict(self, grant: Grant) -> None:
        """Revoke idle grants of its GPU, the oldest first, until it has room."""
        idle = [one for one in self._grants if one.gpu == grant.gpu and one.close is not None]
        while idle and self._room(grant.gpu) < grant.num_bytes:
            grant.evicted.append(idle[0])
            self._revoke(idle.pop(0))

    def _revoke(self, grant: Grant) -> None:
        grant.revoked = True
        self._grants.remove(grant)


def _reported() -> tuple[int, ...]:
    names = machine.gpu_names()
    free = machine.gpu_free_bytes() if names else ()
    return free if len(free) == len(names) else (UNREPORTED_BYTES,) * len(names)


@cache
def owner() -> GpuMemory:
    """Return the owner of this process."""
    return GpuMemory()


@contextmanager
def environment(device: Device, need: int | None) -> Iterator[dict[str, str]]:
    """Hold `need` bytes of a GPU, or a whole one (None), in the body; yield the variables of a child that runs there. Nothing on a CPU."""
    if device != "cuda":
        yield {}
        return
    with owner().reserve(need) as grant:
        yield environment_of(grant)


def environment_of(grant: Grant | None) -> dict[str, str]:
    """Return the variables of a child that runs on the granted GPU."""
    gpu = None if grant is None else visible(grant.gpu)
    return {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}


def visible(gpu: int) -> str | None:
    """Return CUDA_VISIBLE_DEVICES for a process that uses this GPU alone; None if there is no choice."""
    names = machine.gpu_names()
    if len(names) < 2:
        return None
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[gpu].strip() if given else str(gpu)


# ---------------------------------------------------------------- errors

SHORT = re.compile("out.of.memory(?!: its processes)|alloc(ation)?_failed", re.IGNORECASE)
"""Words of errors for lack of GPU memory, e.g. `CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate`."""
_FIGURES = re.compile(
    r"Tried to allocate (?P<asked>[\d.]+ \w+)\..*?total capacity of (?P<all>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free",
    re.DOTALL,
)


def was_short(error: str | None) -> bool:
    """Whether GPU memory was short, perhaps because of other processes: by the messages of CUDA, PyTorch, cuBLAS or cuDNN."""
    return error is not None and SHORT.search(error) is not None


def shorten(error: str, need: int | None = None) -> str:
    """Return an error for lack of memory in at most three lines, without PyTorch's list of processes; other errors as they are.

    Args:
        error: its text.
        need: bytes that the job was estimated to need; it was then tried alone on a GPU, too.
    """
    if not was_short(error):
        return error
    figures = _FIGURES.search(error)
    lines = [
        f"CUDA out of memory: {figures['asked']} asked for, {figures['free']} of {figures['all']} free"
        if figures
        else next(line.strip()[:200] for line in error.splitlines() if SHORT.search(line))
    ]
    if need is not None:
        lines.append(f"estimated at {need / 2**30:.1f} GiB, and tried again alone on its GPU")
    return "\n".join([*lines, "take smaller inputs, or a GPU with more memory"])
