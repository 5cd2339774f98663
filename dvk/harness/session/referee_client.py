"""The parent's line to a referee's process, and a clock for what each stage of a judging takes. Parent side: no torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dvk.config import Limits
from dvk.sandbox import Death, Message, SandboxSession

REFEREE = "dvk.harness.processes.referee:serve"
QUEUE_S = 3600.0
"""Longest wait for a device that others measure on; not the candidate's time."""
UNCOUNTED = ("queue", "setup", "prepare")


class RefereeClient:
    """A referee's process, started at the first `open`, and again after `close`.

    Attributes:
        stage: what the referee is at.
        spent: seconds by stage since `forget`.
        shut: the process runs a stranger's reference, see `sandbox.enclosure`.
    """

    def __init__(self, limits: Limits, env: Mapping[str, str], shut: bool = False):
        self._limits, self._env, self.shut = limits, dict(env), shut
        self._session: SandboxSession | None = None
        self.stage = "setup"
        self.spent: dict[str, float] = {}

    @property
    def session(self) -> SandboxSession:
        """The process; `open` comes first."""
        assert self._session is not None, "there is no referee"
        return self._session

    def open(self) -> None:
        """Start the process if there is none.

        Raises:
            MachineError: no sandbox can be started.
        """
        if self._session is None:
            self._session = SandboxSession(REFEREE, self._limits, late_env=self._env, shut=self.shut)

    def close(self) -> None:
        """End it."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def send(self, order: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Give an order; a referee that is gone says so when it is waited for."""
        self.session.send(order, descriptors)

    def wait(
        self, wanted: str, budget_s: float, deadline: float | None, runner: SandboxSession | None = None
    ) -> Message | Death | None:
        """The referee's next message with `wanted` (or `broken`) in it; None when the time is over.

        With a runner only the time in the candidate's own stages counts.
        """
        left = budget_s
        self.stage = "compile" if runner is not None else "setup"
        while True:
            counted = runner is None or self.stage not in UNCOUNTED
            limit = left if counted else QUEUE_S
            if deadline is not None:
                limit = min(limit, max(0.0, deadline - time.monotonic()))
            before = time.monotonic()
            with self.time_stage(self.stage):
                answer = self.session.wait(limit)
            if counted:
                left = max(0.0, left - (time.monotonic() - before))
            if answer is None or isinstance(answer, Death) or wanted in answer.value or "broken" in answer.value:
                return answer
            if "settle" in answer.value:
                if runner is not None:
                    runner.settle()
                self.send({"settled": True})
            stage = answer.value.get("stage")
            if isinstance(stage, str):
                self.stage = stage

    @contextmanager
    def time_stage(self, stage: str) -> Iterator[None]:
        """Time that is a stage's."""
        before = time.monotonic()
        try:
            yield
        finally:
            self.spent[stage] = self.spent.get(stage, 0.0) + time.monotonic() - before
