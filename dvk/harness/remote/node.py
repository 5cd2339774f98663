"""The node's side: an actor that owns a judge session, and its report about the node. Imports no Ray: its class travels by name.

Ray runs actors at a low priority (`worker_niceness`), so they are slower on a node with other work, too; reference and candidate alike.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dvk.cluster.node import unbound
from dvk.config import Config
from dvk.errors import DvkError
from dvk.harness.session.concurrency import per_device
from dvk.harness.session.judge_session import JudgeSession
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.records import Candidate, Task, Tier, Verdict


@dataclass(frozen=True)
class SeatConfig:
    """Settings of a judge session."""

    config: Config
    spec: JudgeSpec = JudgeSpec()


class Seat:
    """A judge session on this node, with its processes kept warm from one candidate to the next."""

    def __init__(self) -> None:
        unbound()
        self._session: JudgeSession | None = None
        self._kind: SeatConfig | None = None

    def ready(self) -> str:
        """Return the node's name, once the actor runs."""
        return os.uname().nodename

    def judge(
        self,
        kind: SeatConfig,
        task: Task,
        candidate: Candidate,
        tier: Tier,
        baselines: Sequence[str],
        sharers: int,
        limit_s: float | None,
    ) -> Verdict | DvkError | None:
        """Return the verdict; None if `limit_s` was over first; an error of this machine as a value, not raised.

        Args:
            kind, task, candidate, tier, baselines: see `JudgeSession`.
            sharers: seats of this driver on this node.
            limit_s: seconds; None: no limit.
        """
        deadline = None if limit_s is None else time.monotonic() + limit_s
        try:
            session = self._court_for(kind, task)
            # It sees one GPU of the node's.
            session.sharers, session.gpus = (
                sharers,
                -(-sharers // per_device(kind.config, task.device)),
            )
            return session.judge(candidate, tier, baselines, deadline)
        except DvkError as error:
            return error
        finally:
            if self._session is not None and self._session.broken is not None:
                self._close()

    def _court_for(self, kind: SeatConfig, task: Task) -> JudgeSession:
        if self._session is None or kind != self._kind:
            self._close()
            self._session, self._kind = JudgeSession(task, kind.config, kind.spec), kind
        elif self._session.task.id != task.id:
            self._session.switch_task(task)
        return self._session

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = self._kind = None
