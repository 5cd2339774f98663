"""The seats of a cluster: free, taken and lost ones. No Ray call is made under the lock: its callbacks take it, too.

A seat is opened if a caller waits and none is free, and Ray places it where there is room, spread over the nodes. A seat without room stays
requested, so that a node that joins later is used. A lost seat is replaced soon: its user waits like the others, and opens another.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from dvk.cluster.connection import Cluster
from dvk.errors import MachineError
from dvk.harness.remote.node import Seat, SeatConfig
from dvk.records import Device

PATIENCE_S = 300.0
"""Longest time without any seat: replacing a node takes minutes."""
TOLD_S = 20.0
"""Time without a seat after which a waiting user sees a message."""
FAILURES = 5
"""Consecutive seats that failed to open after which the cluster counts as broken."""


@dataclass(frozen=True)
class SeatRequest:
    """Resources of a seat: `share` of a GPU, or one CPU."""

    device: Device
    share: float = 1.0

    @property
    def what(self) -> str:
        """Return Ray's form."""
        return "GPU" if self.device == "cuda" else "CPU"


@dataclass(eq=False)
class SeatSlot:
    """A seat that is taken or free."""

    actor: Any
    want: SeatRequest
    node: str = ""
    free: bool = False
    num_failed: int = 0
    """Number of failures when it was requested: seats that start on one node die with it, and are one failure."""
    task: str = ""
    """The task it holds."""
    kind: SeatConfig | None = field(default=None, repr=False)


class Seats:
    """The seats of one cluster; threads share it.

    Attributes:
        num_lost: seats that died while in use.
    """

    def __init__(self, cluster: Cluster):
        self.cluster, self.num_lost = cluster, 0
        self._seat = cluster.ray.remote(Seat)
        self._changed = threading.Condition()
        self._places: list[SeatSlot] = []
        self._coming: Counter[SeatRequest] = Counter()
        self._waiting: Counter[SeatRequest] = Counter()
        self._failed: list[str] = []

    def acquire(
        self, want: SeatRequest, kind: SeatConfig, task: str, before: SeatSlot | None = None
    ) -> SeatSlot:
        """Return a seat for the caller alone, until `release` or `lose`: preferably its previous one, or one that holds its task.

        Raises:
            MachineError: none was available for long.
        """
        with self._changed:
            self._waiting[want] += 1
        try:
            alive, told = time.monotonic(), False
            while True:
                with self._changed:
                    if (place := self._free(want, kind, task, before)) is not None:
                        place.free, place.kind, place.task = False, kind, task
                        return place
                    if len(self._failed) >= FAILURES:
                        raise MachineError(
                            f"no judge starts on the Ray cluster: {self._failed[-1]}",
                            "look at the logs of its nodes",
                        )
                    if opens := self._coming[want] < self._waiting[want]:
                        self._coming[want] += 1
                    else:
                        self._changed.wait(1.0)
                    if any(place.want == want for place in self._places):
                        alive = time.monotonic()
                if opens:
                    self._ask(want)
                    continue
                waited = time.monotonic() - alive
                if waited > TOLD_S and not told:
                    told = True
                    print(
                        f"waiting for a free {want.what} of the Ray cluster `{self.cluster.engine}`",
                        file=sys.stderr,
                        flush=True,
                    )
                if waited > PATIENCE_S:
                    problem = f"the Ray cluster `{self.cluster.engine}` has had no free {want.what} for {PATIENCE_S:g} s"
                    raise MachineError(
                        problem,
                        "see `ray status`; add nodes, or free those in use, and continue with --resume",
                    )
        finally:
            with self._changed:
                self._waiting[want] -= 1

    def release(self, place: SeatSlot) -> None:
        """Return the seat; its work is done."""
        with self._changed:
            place.free = True
            self._changed.notify_all()

    def lose(self, place: SeatSlot, why: str | None = None) -> None:
        """Drop the seat, and ignore its later messages.

        Args:
            why: it died, and its candidate goes to another; None: it is no longer needed.
        """
        gone = [place]
        with self._changed:
            if why is not None:
                self.num_lost += 1
                # Free ones there may have died with it. A candidate that got one after the other would be blamed for them.
                gone += [other for other in self._places if other.free and other.node == place.node]
            self._places = [other for other in self._places if other not in gone]
        if why is not None:
            print(
                f"a judge on {place.node} was lost, its candidate goes to another: {why}",
                file=sys.stderr,
                flush=True,
            )
        if self.cluster.ray.is_initialized():
            for one in gone:
                self.cluster.ray.kill(one.actor)

    def sharers(self, place: SeatSlot) -> int:
        """Return the seats on its node, this one included."""
        with self._changed:
            return max(1, sum(other.node == place.node for other in self._places))

    def _free(
        self, want: SeatRequest, kind: SeatConfig, task: str, before: SeatSlot | None
    ) -> SeatSlot | None:
        free = [place for place in self._places if place.free and place.want == want]
        return max(
            free,
            key=lambda place: (
                place is before,
                place.kind == kind and place.task == task,
                place.kind == kind,
            ),
            default=None,
        )

    def _ask(self, want: SeatRequest) -> None:
        needs = (
            {"num_gpus": want.share, "num_cpus": 0} if want.device == "cuda" else {"num_cpus": 1}
        )
        place = SeatSlot(
            self._seat.options(**needs, scheduling_strategy="SPREAD").remote(),
            want,
            num_failed=len(self._failed),
        )
        self.cluster.actors.append(place.actor)
        place.actor.ready.remote().future().add_done_callback(
            lambda answer: self._came(place, answer)
        )

    def _came(self, place: SeatSlot, answer: Future[str]) -> None:
        """Runs in a thread of Ray's."""
        error = answer.exception()
        with self._changed:
            self._coming[place.want] -= 1
            if error is None:
                place.node, place.free = answer.result(), True
                self._places.append(place)
                self._failed.clear()
            elif place.num_failed == len(self._failed):
                self._failed.append(str(error).strip().splitlines()[-1])
            self._changed.notify_all()


_lock = threading.Lock()
_known: Seats | None = None


def seats_of(cluster: Cluster) -> Seats:
    """Return the seats of a cluster, the same for all of this process."""
    global _known
    with _lock:
        if _known is None or _known.cluster is not cluster:
            _known = Seats(cluster)
        return _known
