"""The parent's half of the judge: sessions, clocks and verdicts. Never executes a candidate, never opens CUDA.

A session is one sandboxed worker process with one reference. Candidates of our own composer may share
a session (`share_process`); anybody else's get a fresh process each. Whatever kills the worker becomes
the verdict of the candidate it was judging, and a new session goes on with the rest.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from dvk.config import Config
from dvk.harness import backends, static
from dvk.machine import fingerprint
from dvk.records import Candidate, Status, Task, Tier, Verdict
from dvk.sandbox import Death, Message, Session

OPEN_S = 300.0
"""Building a reference, drawing inputs and a cold torch.compile may take this long."""


def judge(task: Task, candidates: Sequence[Candidate], *, tier: Tier = "search", baselines: Sequence[str] = (), config: Config,
          on_verdict: Callable[[int, Verdict], None] | None = None, share_process: bool = False,
          deadline: float | None = None) -> list[Verdict]:
    """Judge candidates in order.

    Args:
        baselines: what to time besides eager: `compile`.
        share_process: one worker for all of them, reference built once, one input set and one other shape each: for ranking
            candidates we wrote ourselves. What is chosen is judged again thoroughly.
        deadline: `time.monotonic()` after which no further candidate is begun.

    Returns:
        One verdict a candidate, fewer when the deadline passed.

    Raises:
        MachineError: the sandbox cannot work on this machine.
    """
    verdicts: list[Verdict] = []
    line: _Line | None = None
    try:
        for number, candidate in enumerate(candidates):
            if deadline is not None and verdicts and time.monotonic() > deadline:
                break
            verdict = static.refuse(candidate, tier)
            if verdict is None:
                if line is None or not line.serves(candidate):
                    if line is not None:
                        line.close()
                    line = _Line(task, candidate, tier, tuple(baselines), config, thorough=not share_process or tier == "claim")
                verdict = line.judge(candidate)
                if not line.alive or not share_process:
                    line.close()
                    line = None
            verdicts.append(verdict)
            if on_verdict is not None:
                on_verdict(number, verdict)
    finally:
        if line is not None:
            line.close()
    return verdicts


class _Line:
    """One worker process."""

    def __init__(self, task: Task, candidate: Candidate, tier: Tier, baselines: tuple[str, ...], config: Config, *, thorough: bool):
        self.task, self.tier, self.config, self.backend = task, tier, config, candidate.backend
        self.alive = False
        self.broken: str | None = None
        limits = config.limits.model_copy(update={"wall_s": max(config.limits.wall_s, 24 * 3600.0)})
        self.session = Session("dvk.harness.worker:main", limits, env=backends.env(candidate.backend, task.device))
        # Inputs and orders are drawn anew in every session; the seed is no secret from the reference, only from habit.
        self.session.send({"task": task.model_dump(mode="json"), "judge": config.judge.model_dump(), "tier": tier,
                           "baselines": list(baselines), "seed": secrets.randbits(32), "thorough": thorough})
        answer = self.session.receive(OPEN_S)
        if isinstance(answer, Death):
            self.broken = f"the reference ended with {_told(answer)}"
        elif "broken" in answer.value:
            self.broken = str(answer.value["broken"])
        else:
            self.alive = True

    def serves(self, candidate: Candidate) -> bool:
        return self.alive and candidate.backend == self.backend

    def judge(self, candidate: Candidate) -> Verdict:
        began = time.monotonic()
        if not self.alive:
            return Verdict(status=Status.BROKEN_TASK, tier=self.tier, stage="check", error=self.broken or "the worker is gone")
        untimed = backends.untimed(candidate.backend, self.task.device)
        self.session.send({"source": candidate.source, "timed": untimed is None})
        stage = "compile"
        while True:
            left = self.config.judge.candidate_s - (time.monotonic() - began)
            answer = self.session.receive(max(left, 0.1))
            if isinstance(answer, Message) and "stage" in answer.value:
                if answer.value["stage"] == "time":
                    began = time.monotonic()  # waiting for the device is nobody's fault
                stage = answer.value["stage"]
                continue
            break
        if isinstance(answer, Death):
            self.alive = False
            return self._death(answer, stage, time.monotonic() - began)
        fields: dict[str, Any] = answer.value["verdict"]
        if fields["status"] == "ok" and fields.get("timing") is None:
            fields["untimed_reason"] = untimed or "the smoke tier does not time"
        return Verdict.model_validate({"tier": self.tier, **fields})

    def _death(self, death: Death, stage: Any, seconds: float) -> Verdict:
        timeout = death.reason == "timeout"
        error = (f"no result within {self.config.judge.candidate_s:g} s" if timeout else f"the process ended with {_told(death)}")
        return Verdict(status=Status.TIMEOUT if timeout else Status.LAUNCH_ERROR, tier=self.tier, stage=stage, error=f"{error} during {stage}",
                       seconds=seconds, log=death.log[-4000:], machine=fingerprint(self.task.device))

    def close(self) -> None:
        self.session.close()


def _told(death: Death) -> str:
    tail = death.log.strip().splitlines()
    return death.reason + (f": {tail[-1][:300]}" if tail else "")
