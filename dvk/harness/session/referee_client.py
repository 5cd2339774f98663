"""The parent's client of a referee's process, with a clock for each stage. Parent side: no torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dvk.config import Limits
from dvk.harness.transport.memory_budget import beside_the_reference
from dvk.records import Device
from dvk.sandbox import Death, Message, SandboxSession

REFEREE = "dvk.harness.processes.referee:serve"
QUEUE_S = 3600.0
"""Longest wait for a device that others measure on; it does not count as the candidate's time."""
UNCOUNTED = ("queue", "setup", "prepare")


class RefereeClient:
    """Client of a referee's process, which starts at the first `open`, and again after `close`.

    Attributes:
        stage: the referee's current stage.
        spent: seconds by stage since `forget`.
        shut: whether the process runs an untrusted reference, see `sandbox.enclosure`.
    """

    def __init__(self, limits: Limits, env: Mapping[str, str], shut: bool = False):
        self._limits, self._env, self.shut = limits, dict(env), shut
        self._session: SandboxSession | None = None
        self.stage = "setup"
        self.spent: dict[str, float] = {}

    @property
    def session(self) -> SandboxSession:
        """Return the process; call `open` first."""
        assert self._session is not None, "there is no referee"
        return self._session

    def open(self, device: Device) -> None:
        """Start the process, for tasks on `device`, if it is not running.

        Raises:
            MachineError: no sandbox can be started.
        """
        if self._session is None:
            ours = beside_the_reference(device, self._limits.memory_bytes)
            limits = self._limits.model_copy(
                update={"memory_bytes": self._limits.memory_bytes + ours}
            )
            self._session = SandboxSession(REFEREE, limits, late_env=self._env, shut=self.shut)

    def close(self) -> None:
        """End the process."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def send(self, order: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send an order; if the referee has ended, the next wait reports it."""
        self.session.send(order, descriptors)

    def wait(
        self,
        wanted: str,
        budget_s: float,
        deadline: float | None,
        runner: SandboxSession | None = None,
    ) -> Message | Death | None:
        """Return the referee's next message with `wanted` (or `broken`) in it; None if the time is over.

        With a runner only time in the candidate's stages counts.
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
            if (
                answer is None
                or isinstance(answer, Death)
                or wanted in answer.value
                or "broken" in answer.value
            ):
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
        """Add time to a stage."""
        before = time.monotonic()
        try:
            yield
        finally:
            self.spent[stage] = self.spent.get(stage, 0.0) + time.monotonic() - before
