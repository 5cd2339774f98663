"""Turn candidates into verdicts. Parent side: opens no CUDA context, imports no torch, executes nothing foreign.

A bad kernel is data: whatever a candidate does, up to killing its process, ends as a `Verdict`. It
raises only when we or the computer are at fault (`MachineError`), or the user interrupts.

Covered: everything that compiling, checking and timing in a sandboxed process shows. Not covered
yet: a candidate that means to deceive. It runs in the process that compares and times it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from dvk import machine
from dvk.config import Config, Limits
from dvk.harness import backends, static
from dvk.records import Candidate, Status, Task, Tier, Verdict
from dvk.sandbox import Death, Message, Session

WORKER = "dvk.harness.worker:serve"
BASELINES = ("compile",)
QUEUE_S = 3600.0
"""Longest wait for a device that others measure on; not counted as the candidate's."""

OnVerdict = Callable[[int, Verdict], None]


def judge(
    task: Task,
    candidates: Sequence[Candidate],
    *,
    tier: Tier = "search",
    baselines: Sequence[str] = (),
    config: Config,
    on_verdict: OnVerdict | None = None,
    share_process: bool = False,
    deadline: float | None = None,
) -> list[Verdict]:
    """One verdict a candidate, in order.

    Args:
        task: the reference.
        candidates: what to judge.
        tier: `smoke` checks two shapes and times nothing, `search` times briefly, `claim` at length.
        baselines: `compile` adds torch.compile of the reference, timed in the same rounds.
        config: limits and judge settings.
        on_verdict: called with position and verdict as each is known.
        share_process: one process judges all in turn, for ranking candidates that trust each other; the search tier
            then checks one seed a shape. Else a fresh process each.
        deadline: on time.monotonic's clock; candidates not finished by then are missing from the end of the list.

    Raises:
        MachineError: no sandbox can be started.
    """
    verdicts: list[Verdict] = []
    worker: _Worker | None = None
    try:
        for position, candidate in enumerate(candidates):
            if deadline is not None and time.monotonic() >= deadline:
                break
            key = _environment(task, candidate)
            if worker is not None and (not share_process or worker.spent or worker.env != key):
                worker.close()
                worker = None
            if worker is None:
                worker = _Worker(task, tier, baselines, config, key, brief=share_process and tier == "search")
            verdict = worker.judge(candidate, deadline)
            if verdict is None:
                break
            verdicts.append(verdict)
            if on_verdict is not None:
                on_verdict(position, verdict)
    finally:
        if worker is not None:
            worker.close()
    return verdicts


def _environment(task: Task, candidate: Candidate) -> dict[str, str]:
    return backends.get(candidate.backend).env(task.device)


class _Worker:
    """One sandboxed session with its reference, started when the first candidate needs it."""

    def __init__(
        self, task: Task, tier: Tier, baselines: Sequence[str], config: Config, env: dict[str, str], brief: bool
    ):
        self.task, self.tier, self.baselines, self.config, self.env = task, tier, tuple(baselines), config, env
        self.brief = brief
        self.session: Session | None = None
        self.broken: str | None = None
        self.spent = False
        """No further candidate may go here."""
        self.stage = "setup"

    def close(self) -> None:
        """End the session."""
        if self.session is not None:
            self.session.close()
        self.spent = True

    def judge(self, candidate: Candidate, deadline: float | None) -> Verdict | None:
        """The verdict; None when the deadline came first."""
        began = time.monotonic()
        if (why := static.refuse(candidate.source)) is not None:
            return self._verdict(began, {"status": "rejected", "stage": "static", "error": why}, "")
        if self.session is None:
            answer = self._start(deadline)
            if isinstance(answer, Death):
                if _passed(deadline):
                    return None
                self.broken = self._broken(answer)  # for the candidates after this one, too: it would not go better
        if self.broken is not None:
            return self._verdict(began, {"status": "broken_task", "stage": "check", "error": self.broken}, "")
        assert self.session is not None
        untimed = backends.get(candidate.backend).untimed(self.task.device)
        self.session.send({"source": candidate.source, "untimed": untimed})
        answer = self._await("findings", self.config.judge.candidate_s, deadline)
        if isinstance(answer, Death):
            self.spent = True
            if _passed(deadline) and answer.reason == "timeout":
                return None
            return self._verdict(began, self._of_death(answer), answer.log)
        self.spent = bool(answer.value.get("fatal"))
        return self._verdict(began, answer.value["findings"], self.session.log())

    def _start(self, deadline: float | None) -> Message | Death:
        limits = self.config.limits
        # Each step has its own clock; the session's is only a backstop against a parent that stopped caring.
        lasting = Limits.model_validate({**limits.model_dump(), "wall_s": 24 * 3600.0})
        self.session = Session(WORKER, lasting, env=self.env)
        self.session.send(
            {
                "task": self.task.model_dump(mode="json"),
                "tier": self.tier,
                "judge": self.config.judge.model_dump(),
                "baselines": list(self.baselines),
                "seed": secrets.randbits(31),
                "brief": self.brief,
            }
        )
        answer = self._await("ready", limits.wall_s, deadline)
        if isinstance(answer, Message) and "broken" in answer.value:
            self.broken, self.spent = str(answer.value["broken"]), False
        self.session.log()
        return answer

    def _await(self, wanted: str, budget_s: float, deadline: float | None) -> Message | Death:
        """The next message with `wanted` (or `broken`) in it; only time in the candidate's own stages counts."""
        assert self.session is not None
        left = budget_s
        self.stage = "setup" if wanted == "ready" else "compile"
        while True:
            limit = left
            if self.stage == "queue":
                limit = QUEUE_S
            elif self.stage == "baseline":
                limit = self.config.limits.wall_s
            if deadline is not None:
                limit = min(limit, max(0.0, deadline - time.monotonic()))
            before = time.monotonic()
            answer = self.session.receive(limit)
            if self.stage not in ("queue", "baseline"):
                left = max(0.0, left - (time.monotonic() - before))
            if isinstance(answer, Death) or wanted in answer.value or "broken" in answer.value:
                return answer
            stage = answer.value.get("stage")
            if isinstance(stage, str):
                self.stage = stage

    def _broken(self, death: Death) -> str:
        what = {"timeout": f"took longer than {self.config.limits.wall_s:.0f} s", "memory": "ran out of memory"}
        return f"the reference {what.get(death.reason, 'ended its process: ' + death.reason)} before any candidate ran"

    def _of_death(self, death: Death) -> dict[str, Any]:
        stage = self.stage if self.stage in ("compile", "check", "time") else "compile"
        limits, settings = self.config.limits, self.config.judge
        status, text = Status.LAUNCH_ERROR, f"it ended its process ({death.reason})"
        if self.stage == "baseline":
            return {"status": "broken_task", "stage": "time", "error": f"a baseline ended the process: {death.reason}"}
        if death.reason == "timeout":
            status, text = Status.TIMEOUT, f"it took longer than {settings.candidate_s:g} s"
        elif death.reason == "memory":
            text = (
                f"out of memory: its processes used more than {limits.memory_bytes / 2**30:.1f} GiB, or all there was"
            )
        elif death.reason == "processes":
            text = f"it started more than {limits.num_processes} processes and threads"
        elif death.reason.startswith("signal"):
            text = f"it crashed ({death.reason.removeprefix('signal ')})"
        elif death.reason in ("garbled", "closed"):
            status, text = Status.CHEAT, "it interfered with the judge's own processes or connections"
        return {"status": status.value, "stage": stage, "error": text}

    def _verdict(self, began: float, findings: dict[str, Any], log: str) -> Verdict:
        return Verdict.model_validate(
            {
                **findings,
                "tier": self.tier,
                "machine": machine.fingerprint(self.task.device),
                "seconds": round(time.monotonic() - began, 4),
                "log": log,
            }
        )


def _passed(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
