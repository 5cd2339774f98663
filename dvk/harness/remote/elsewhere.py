"""What all judges on other machines have in common: no process is held here, and this machine's memory and cores do not matter."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from dvk.config import Config
from dvk.records import Candidate, Task, Tier, Verdict

S = TypeVar("S", bound="JudgeElsewhere")


class JudgeElsewhere:
    """A `Judge` by another machine; subclasses say how it is asked.

    Args:
        task: the reference.
        config: its `remote` section says where.
    """

    def __init__(self, task: Task, config: Config):
        self.task, self.config = task, config
        self.broken: str | None = None
        # Set by the queue, and not read: the other machine has its own.
        self.sharers = 1
        self.make_room: Callable[[], None] = lambda: None
        self.decide_by: float | None = None

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: there is no process here."""

    def switch_task(self, task: Task) -> None:
        """Switch to another task."""
        self.task = task

    def judge(
        self,
        candidate: Candidate,
        tier: Tier = "search",
        baselines: Sequence[str] = (),
        deadline: float | None = None,
    ) -> Verdict | None:
        """Return the verdict; None if the deadline came first. Arguments as for `JudgeSession.judge`.

        Raises:
            MachineError: the other machine fails, or cannot be reached.
        """
        raise NotImplementedError


def seconds_left(deadline: float | None) -> float | None:
    """Return the seconds until a deadline on time.monotonic's clock, which other machines do not share."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
