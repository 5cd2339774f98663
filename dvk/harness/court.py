"""One task's referee with its arms, and a fresh runner for every candidate. Parent side: no torch, nothing foreign.

The parent starts all processes, connects referee and runners, keeps the clock that ends what hangs,
and knows how processes died. It forms no opinion: findings come from the referee, deaths from the
sandbox, and the two make a verdict.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, Literal

from dvk import machine
from dvk.config import Config, Limits
from dvk.harness import backends, ceilings, claims, recording, static
from dvk.harness.intervals import median_ratio
from dvk.harness.verdicts import Measured, broken_by, claim_timing, median, of_death, possible, search_timing, verdict_of
from dvk.records import Candidate, Status, Task, Tier, Timing, Verdict
from dvk.sandbox import Death, Message, Session

REFEREE = "dvk.harness.referee:serve"
RUNNER = "dvk.harness.runner:serve"
PLAYER = "dvk.harness.player:serve"
Contract = Literal["auto", "module", "plan"]
QUEUE_S = 3600.0
"""Longest wait for a device that others measure on; not the candidate's time."""
HANG_UP_S = 30.0  # a referee whose runner has ended says so within this
SLOWED = 2.5
"""A reference that takes this many times longer beside a candidate than alone is measured again without it."""
UNCOUNTED = ("queue", "setup", "prepare")

CONTROL = "reference#2"


class RefereeDied(Exception):
    """The process that judges has ended; the message says how."""


class Court:
    """Judges candidates for one task.

    Args:
        task: the reference.
        config: limits and judge settings.
        backward: compare gradients, too.
        brief: fewer input sets, for ranking candidates that will be judged again.
        require_kernels: refuse candidates that leave the computing to PyTorch's operators.
        contract: `plan` has trusted code replay the candidate's launches (Triton and CUDA on a GPU; an error where that
            cannot be), `module` runs its host code, `auto` replays where it can, except for claims: those are about what
            users run.
        gpu: the one to use, as CUDA_VISIBLE_DEVICES names it; None: what this process sees.

    Raises (all methods):
        MachineError: no sandbox can be started.
    """

    def __init__(
        self, task: Task, config: Config, *, backward: bool = False, brief: bool = False,
        require_kernels: bool = False, gpu: str | None = None, contract: Contract = "module",
    ):
        self.task, self.config = task, config
        self.baselines: tuple[str, ...] = ()
        self.tier: Tier = "search"
        self._spent: dict[str, float] = {}
        self.backward, self.brief, self.require_kernels = backward, brief, require_kernels
        self.contract = contract
        self._recorded: dict[str, Any] | None = None
        self._env = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        limits = config.limits
        # Each step has its own clock; the session's is only a backstop against a parent that stopped caring.
        self._limits = Limits.model_validate({**limits.model_dump(), "wall_s": 24 * 3600.0})
        self._referee: Session | None = None
        self._open = False
        """The referee holds this task."""
        self._arms: dict[str, Session] = {}
        self._left_out: set[str] = set()
        self._alone_ms: float | None = None
        self.broken: str | None = None
        """Why the reference cannot be judged against; every verdict then says so."""
        self.stage = "setup"

    def __enter__(self) -> Court:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        while self._arms:
            self._arms.popitem()[1].close()
        if self._referee is not None:
            self._referee.close()
            self._referee, self._open = None, False

    def turn_to(self, task: Task) -> None:
        """Go on with another task; processes that hold no state of the old one are kept."""
        if task.device != self.task.device or self.broken is not None:
            self.close()
        self._end_arms()
        self.task, self.broken, self._open = task, None, False
        self._left_out, self._alone_ms = set(), None

    def judge(
        self, candidate: Candidate, tier: Tier = "search", baselines: Sequence[str] = (), deadline: float | None = None
    ) -> Verdict | None:
        """The verdict; None when the deadline came first.

        Args:
            candidate: what to judge.
            tier: `smoke` checks and times nothing, `search` times briefly, `claim` in several fresh sets of processes.
            baselines: names in `arms.ARMS`, timed in the same rounds.
            deadline: on time.monotonic's clock.
        """
        self.tier, self.baselines = tier, tuple(baselines)
        self._spent = {}
        began = time.monotonic()
        if (why := static.refuse(candidate.source)) is not None:
            return self._verdict(began, Measured({"status": "rejected", "stage": "static", "error": why}))
        for attempt in range(2):
            try:
                return self._judge(began, candidate, deadline)
            except RefereeDied as death:
                self.close()
                if _passed(deadline):
                    return None
                if self.broken is not None:
                    break
                if attempt:
                    text = f"the judging process ended twice while it was judged: {death}"
                    return self._verdict(began, Measured({"status": "launch_error", "stage": "check", "error": text}))
        return self._verdict(began, Measured({"status": "broken_task", "stage": "check", "error": str(self.broken)}))

    def _judge(self, began: float, candidate: Candidate, deadline: float | None) -> Verdict | None:
        self._start(deadline)
        if self.broken is not None:
            return self._verdict(began, Measured({"status": "broken_task", "stage": "check", "error": self.broken}))
        if self.tier == "claim" and self._untimed(candidate) is None:
            return self._claim(began, candidate, deadline)
        measured = self._replayed(candidate, deadline) if self._plannable(candidate) else None
        if measured is None:
            measured = self._measure(candidate, deadline, timed=self.tier != "smoke")
        if measured is None:
            return None
        timing = search_timing(measured, self.baselines)
        return self._verdict(began, *possible(measured, timing, self.task.device))

    def _claim(self, began: float, candidate: Candidate, deadline: float | None) -> Verdict | None:
        """Sets of fresh processes until the claim is decided."""
        sets: list[Measured] = []
        speedups: list[float] = []
        controls: list[float] = []
        while True:
            self._end_arms()
            measured = self._measure(candidate, deadline, timed=True, control=True, one_case=bool(sets))
            if measured is None:
                return None
            sets.append(measured)
            if measured.findings["status"] != Status.OK.value or not measured.samples:
                return self._verdict(began, measured)
            speedups.append(median_ratio(measured.samples["reference"], measured.samples["candidate"]))
            controls.append(median_ratio(measured.samples["reference"], measured.samples[CONTROL]))
            if len(sets) >= claims.FIRST_LOOK:
                claim = claims.claim(speedups, controls)
                if len(sets) >= claims.LAST_LOOK or (len(sets) == claims.FIRST_LOOK and not claims.undecided(claim)):
                    break
        self._end_arms()
        return self._verdict(began, *possible(sets[0], claim_timing(sets, self.baselines, claim), self.task.device))

    # ------------------------------------------------------------ processes

    def _start(self, deadline: float | None) -> None:
        if self._open or self.broken is not None:
            return
        if self._referee is None:
            self._referee = Session(REFEREE, self._limits, late_env=self._env)
        self._referee.send(
            {
                "task": self.task.model_dump(mode="json"),
                "judge": self.config.judge.model_dump(),
                "seed": secrets.randbits(31),
                "backward": self.backward,
                "brief": self.brief,
                "threads": machine.num_cores(),
                "roofline": ceilings.load(self.task.device) is not None,
            }
        )
        answer = self._await("ready", self.config.limits.wall_s, deadline)
        if not isinstance(answer, Message):
            if not _passed(deadline):
                self.broken = broken_by(answer or Death("timeout", ""), self.config)
            raise RefereeDied("before it was ready")
        if "broken" in answer.value:
            self.broken = str(answer.value["broken"])
        self._recorded, self._open = answer.value.get("recorded"), True
        if "player" in self._arms and "player" not in answer.value["arms"]:
            self._arms.pop("player").close()
        self._referee.log()

    def _add_arm(self, name: str, deadline: float | None) -> None:
        """Start a trusted runner and have the referee prepare it."""
        assert self._referee is not None
        ours, theirs = socket.socketpair()
        with ours, theirs:
            target = PLAYER if name == "player" else RUNNER
            session = Session(target, self._limits, descriptors=[theirs.fileno()], late_env={**_trusted_env(), **self._env})
            self._arms[name] = session
            self._referee.send({"arm": name, "pid": session.pid}, [ours.fileno()])
        answer = self._await("arm", self.config.limits.wall_s, deadline)
        if not isinstance(answer, Message):
            raise RefereeDied(f"while it prepared {name}")
        if "failed" in answer.value:
            self._arms.pop(name).close()
            if name.startswith("reference"):
                self.broken = f"the reference failed: {answer.value['failed']}"
                raise RefereeDied(self.broken)
            print(f"baseline {name} is left out: {answer.value['failed']}", file=sys.stderr)
            self._left_out.add(name)

    def _end_arms(self) -> None:
        for name in [name for name in self._arms if name != "player"]:
            self._arms.pop(name).close()

    def _plannable(self, candidate: Candidate) -> bool:
        if self.contract == "module" or self.tier == "claim" or candidate.backend == "cpp" or self.backward:
            return False
        return self._recorded is not None

    def _replayed(self, candidate: Candidate, deadline: float | None) -> Measured | None:
        """Findings on the candidate's launch plan; None where it has none and the contract allows its host code."""
        assert self._referee is not None
        before = time.monotonic()
        found = recording.launch_plan(candidate, self.task, self._recorded or {}, self._limits, self.config)
        self._spent["record"] = time.monotonic() - before
        if isinstance(found, Measured):
            return found
        plan, why, isolation = found
        if plan is None:
            if self.contract == "auto":
                return None
            error = f"no launch plan can stand for it: {why}"
            return Measured({"status": "rejected", "stage": "compile", "error": error}, "", isolation)
        if "player" not in self._arms:
            self._add_arm("player", deadline)
        if "player" not in self._arms:
            error = "no process could be started to replay its launches"
            failed = Measured({"status": "launch_error", "stage": "compile", "error": error}, "", isolation)
            return None if self.contract == "auto" else failed
        self._referee.send(self._order(candidate, timed=self.tier != "smoke") | {"plan": plan, "arms": ["player"]})
        answer = self._await("findings", self.config.judge.candidate_s, deadline, self._arms["player"])
        if isinstance(answer, Death):
            raise RefereeDied(answer.reason)
        if answer is None or answer.value["findings"].get("gone"):
            log = self._arms.pop("player").close()
            if answer is None and not isinstance(self._await("findings", HANG_UP_S, None), Message):
                self.close()
            reason = "timeout" if answer is None else "its kernels broke the GPU's context"
            return Measured(of_death(Death(reason, log), self.stage, self.config), log, isolation)
        findings = dict(answer.value["findings"])
        if findings["status"] in (Status.LAUNCH_ERROR.value, Status.CHEAT.value):
            self._arms.pop("player").close()  # a kernel may have broken its context
        return Measured(findings, "", isolation, findings.pop("samples", {}))

    def _order(self, candidate: Candidate, *, timed: bool, one_case: bool = False) -> dict[str, Any]:
        settings = self.config.judge
        claim = self.tier == "claim"
        arms = ["reference", CONTROL, *self.baselines] if timed else []
        return {
            "candidate": True,
            "source": candidate.source,
            "tier": self.tier,
            "untimed": self._untimed(candidate),
            "arms": [name for name in arms if name in self._arms],
            "one_case": one_case,
            "require_kernels": self.require_kernels,
            "rounds": settings.claim_pairs if claim else settings.search_pairs,
            "limit_s": settings.claim_s * (2 + len(self.baselines)) if claim else settings.search_s * (1 + len(self.baselines)),
        }

    def _measure(
        self, candidate: Candidate, deadline: float | None, *, timed: bool, control: bool = False, one_case: bool = False
    ) -> Measured | None:
        """One runner, one set of findings; None when the deadline came first."""
        assert self._referee is not None
        untimed = self._untimed(candidate)
        timed = timed and untimed is None
        if timed:
            for name in ("reference", *((CONTROL,) if control else ()), *self.baselines):
                if name not in self._arms and name not in self._left_out:
                    self._add_arm(name, deadline)
            if self._alone_ms is None:
                self._alone_ms = self._alone(deadline)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            runner = Session(
                RUNNER, self._limits, env=backends.get(candidate.backend).env(self.task.device),
                late_env=self._runner_env(), descriptors=[theirs.fileno()], isolate=self.task.device,
            )
            order = self._order(candidate, timed=timed, one_case=one_case)
            self._referee.send({**order, "pid": runner.pid, "home": runner.home}, [ours.fileno()])
        try:
            answer = self._await("findings", self.config.judge.candidate_s, deadline, runner)
            if answer is None:
                log = runner.close()
                findings = of_death(Death("timeout", log), self.stage, self.config)
                if not isinstance(self._await("findings", HANG_UP_S, None), Message):
                    self.close()  # a referee that does not notice is of no more use
                return None if _passed(deadline) else Measured(findings, log, runner.isolation)
            if isinstance(answer, Death):
                raise RefereeDied(answer.reason)
            findings = dict(answer.value["findings"])
            log = ""
            if findings.pop("gone", False):
                death = runner.receive(HANG_UP_S)
                if isinstance(death, Death):
                    findings, log = {**findings, **of_death(death, self.stage, self.config)}, death.log
            else:
                log = runner.close()  # which it may have done by itself, its line being closed
            measured = Measured(findings, log, runner.isolation, findings.pop("samples", {}))
        finally:
            runner.close()
        return self._undisturbed(measured, deadline)

    def _undisturbed(self, measured: Measured, deadline: float | None) -> Measured:
        """A candidate that slows the reference down looks fast; the reference alone tells."""
        if not measured.samples or self._alone_ms is None:
            return measured
        beside = median(measured.samples["reference"])
        if beside <= SLOWED * self._alone_ms:
            return measured
        self._alone_ms = self._alone(deadline)
        if self._alone_ms is not None and beside > SLOWED * self._alone_ms:
            text = f"the reference takes {beside:.3g} ms beside it and {self._alone_ms:.3g} ms without it"
            return Measured({"status": "cheat", "stage": "time", "error": text}, measured.log, measured.isolation)
        return measured

    def _alone(self, deadline: float | None) -> float | None:
        assert self._referee is not None
        self._referee.send({"alone": True})
        answer = self._await("alone", self.config.limits.wall_s, deadline)
        if not isinstance(answer, Message):
            raise RefereeDied("while it timed the reference")
        return float(answer.value["alone"])

    def _await(
        self, wanted: str, budget_s: float, deadline: float | None, runner: Session | None = None
    ) -> Message | Death | None:
        """The referee's next message with `wanted` (or `broken`) in it; None when the time is over.

        With a runner only the time in the candidate's own stages counts.
        """
        assert self._referee is not None
        left = budget_s
        self.stage = "compile" if runner is not None else "setup"
        while True:
            counted = runner is None or self.stage not in UNCOUNTED
            limit = left if counted else QUEUE_S
            if deadline is not None:
                limit = min(limit, max(0.0, deadline - time.monotonic()))
            before = time.monotonic()
            answer = self._referee.wait(limit)
            self._spent[self.stage] = self._spent.get(self.stage, 0.0) + time.monotonic() - before
            if counted:
                left = max(0.0, left - (time.monotonic() - before))
            if answer is None or isinstance(answer, Death) or wanted in answer.value or "broken" in answer.value:
                return answer
            if "settle" in answer.value:
                if runner is not None:
                    runner.settle()
                self._referee.send({"settled": True})
            stage = answer.value.get("stage")
            if isinstance(stage, str):
                self.stage = stage

    # ------------------------------------------------------------ verdicts

    def _untimed(self, candidate: Candidate) -> str | None:
        return backends.get(candidate.backend).untimed(self.task.device)

    def _runner_env(self) -> dict[str, str]:
        # Under --require-kernels a kernel that torch.compile writes is not the candidate's own.
        return {**self._env, **({"TORCHDYNAMO_DISABLE": "1"} if self.require_kernels else {})}

    def _verdict(self, began: float, measured: Measured, timing: Timing | None = None) -> Verdict:
        verdict = verdict_of(measured, timing, self.tier, self.task.device, time.monotonic() - began)
        return verdict.model_copy(update={"stages_s": {stage: round(s, 4) for stage, s in self._spent.items()}})


def _trusted_env() -> dict[str, str]:
    # torch.compile's own cache pays across sessions: the same reference is compiled in each.
    return {"TORCHINDUCTOR_CACHE_DIR": os.path.join(os.path.expanduser("~"), ".cache", "dvk", "inductor")}


def _passed(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
