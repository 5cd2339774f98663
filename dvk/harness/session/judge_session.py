"""A judge session: one task's referee with its arms, and a fresh runner for every candidate. Parent side: no torch, no candidate code.

The parent starts all processes, connects referee and runners, keeps the clock that ends hung ones, and knows how processes died. It does
not judge: findings come from the referee, deaths from the sandbox, and the two make a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dvk import backends
from dvk.harness.profiling import ncu_run
from dvk.harness.session import (
    compiling,
    cuda_connections,
    environment,
    recording,
    slowdown,
    static,
)
from dvk.harness.session.attempt import GONE_S, HANG_UP_S, RefereeDied, passed, trial
from dvk.harness.session.session_processes import SessionProcesses
from dvk.harness.session.verdicts import (
    ProcessFindings,
    check_roofline,
    claim_timing,
    findings_of_death,
    median,
    merge_findings,
    retry_s,
    search_timing,
    verdict_of,
)
from dvk.harness.timing import claims
from dvk.records import Candidate, Status, Tier, Timing, Verdict
from dvk.sandbox import Death, Message
from dvk.stats.intervals import median_ratio

CONTROL = "reference#2"


class JudgeSession(SessionProcesses):
    """Judges candidates for one task.

    Args, Attributes: see `SessionProcesses`.

    Raises (all methods):
        MachineError: no sandbox can be started.
    """

    def __enter__(self) -> JudgeSession:
        return self

    def judge(
        self,
        candidate: Candidate,
        tier: Tier = "search",
        baselines: Sequence[str] = (),
        deadline: float | None = None,
    ) -> Verdict | None:
        """Return the verdict; None if the deadline came first.

        Args:
            candidate: the candidate.
            tier: `smoke` checks and times nothing, `search` times briefly, `claim` in several fresh sets of processes.
            baselines: names in `baselines.ARMS`, timed in the same rounds.
            deadline: on time.monotonic's clock.
        """
        self.tier, self.baselines = tier, tuple(baselines)
        self._arm_env = cuda_connections.of_arms(self.task, candidate, tier)
        self._candidate_env = cuda_connections.of_candidate(self.task, candidate, tier)
        self._referee.spent, began = {}, time.monotonic()
        if (why := static.refuse(candidate.source)) is not None:
            return self._verdict(
                began, ProcessFindings({"status": "rejected", "stage": "static", "error": why})
            )
        deaths = 0
        for attempt in range(4):
            try:
                verdict = self._judge(began, candidate, deadline)
                if verdict is not None and self._out_of_memory(verdict.error, attempt):
                    continue
                profile = self.spec.profiled(candidate, tier)
                return verdict and ncu_run.with_counters(
                    verdict, self.task, candidate.source, self.config.limits, profile
                )
            except RefereeDied as death:
                self.close()
                if passed(deadline):
                    return None
                if self._out_of_memory(f"{self.broken} {death.last_words}", attempt):
                    continue
                if self.broken is not None:
                    break
                if (deaths := deaths + 1) > 1:
                    text = f"the judging process ended twice while it was judged: {death} ({death.last_words or 'it said nothing'})"
                    return self._verdict(
                        began,
                        ProcessFindings(
                            {"status": "launch_error", "stage": "check", "error": text}
                        ),
                    )
        return self._verdict(
            began,
            ProcessFindings({"status": "broken_task", "stage": "check", "error": str(self.broken)}),
        )

    def _out_of_memory(self, error: str | None, attempt: int) -> bool:
        """Free the memory that this session and idle ones hold, since others had filled the GPU; the processes are started again."""
        if (
            self.sharers == 1
            or self.task.device != "cuda"
            or (wait_s := retry_s(error, attempt)) is None
        ):
            return False
        self.close()
        self.make_room()
        time.sleep(wait_s)
        self.broken, self._left_out = None, {}
        return True

    def _judge(self, began: float, candidate: Candidate, deadline: float | None) -> Verdict | None:
        self._start(deadline)
        if self.broken is not None:
            return self._verdict(
                began,
                ProcessFindings({"status": "broken_task", "stage": "check", "error": self.broken}),
            )
        if self.tier == "claim" and self._untimed(candidate) is None:
            try:
                return self._claim(began, candidate, deadline)
            finally:
                self._end_arms()
        measured = self._replayed(candidate, deadline) if self._plannable(candidate) else None
        if measured is None and not passed(deadline):
            measured = self._measure(candidate, deadline, timed=self.tier != "smoke")
        if measured is None:
            return None
        timing = search_timing(measured, self.baselines)
        return self._verdict(began, *check_roofline(measured, timing, self.task.device))

    def _claim(self, began: float, candidate: Candidate, deadline: float | None) -> Verdict | None:
        """Measure in sets of fresh processes until the claim is decided."""
        sets: list[ProcessFindings] = []
        speedups, controls = list[float](), list[float]()
        while True:
            self._end_arms()
            self._longer = claims.LONGER if len(sets) >= claims.FIRST_LOOK else 1
            measured = self._measure(
                candidate, deadline, timed=True, control=True, one_case=bool(sets)
            )
            if measured is None:
                return None
            sets.append(measured)
            if measured.findings["status"] != Status.OK.value or not measured.samples:
                return self._verdict(began, measured)
            speedups.append(
                median_ratio(measured.samples["reference"], measured.samples["candidate"])
            )
            controls.append(median_ratio(measured.samples["reference"], measured.samples[CONTROL]))
            if len(sets) < claims.FIRST_LOOK:
                continue
            claim = claims.claim(speedups, controls)
            late = self._late(began, claims.is_unsteady(claim))
            if late or claims.looked_at(len(sets)) and not claims.undecided(claim):
                break
        return self._verdict(
            began,
            *check_roofline(sets[0], claim_timing(sets, self.baselines, claim), self.task.device),
        )

    def _late(self, began: float, unsteady: bool) -> bool:
        """Whether a claim must be decided with the data it has; an unsteady one has twice the time."""
        by = self.decide_by
        return passed(2 * by - began if by is not None and unsteady else by)

    def _plannable(self, candidate: Candidate) -> bool:
        # A replayed graph serves to save host time, which a plan leaves out.
        whole = self.spec.contract == "auto" and "CUDAGraph" in candidate.source
        if (
            candidate.line
            or self.spec.contract == "module"
            or whole
            or self.tier == "claim"
            or self.spec.backward
            or self.task.train
        ):
            return False
        return backends.get(candidate.backend).has_launch_plan and self._recorded is not None

    def _replayed(self, candidate: Candidate, deadline: float | None) -> ProcessFindings | None:
        """Return findings on the candidate's launch plan; None if it has none and the contract allows its host code."""
        if (
            "player" not in self._arms
        ):  # it takes seconds to start, and so does the process that recorders are forked from
            self._add_arms(["player"], deadline)
            self._fresh = True
        if self._uncaptured(deadline) and self.spec.contract == "auto":
            return None  # its host code is timed against theirs
        with self._referee.time_stage("record"):
            result = recording.launch_plan(
                candidate, self.task, self._recorded or {}, self._limits, self.config
            )
        if isinstance(result, ProcessFindings):
            return result
        plan, why, isolation = result
        if plan is None:
            if self.spec.contract == "auto":
                return None
            error = f"no launch plan can stand for it: {why}"
            return ProcessFindings(
                {"status": "rejected", "stage": "compile", "error": error}, "", isolation
            )
        # If a used player breaks, the previous candidate may be the cause.
        played = self._played(candidate, plan, isolation, deadline) or self._played(
            candidate, plan, isolation, deadline
        )
        if self.spec.contract != "auto" or not recording.needs_host_code(played):
            return played
        if recording.reference_is_uncaptured(played):
            self._recorded = None
        return None

    def _played(
        self, candidate: Candidate, plan: dict[str, Any], isolation: str, deadline: float | None
    ) -> ProcessFindings | None:
        """Return findings on a launch plan; None if a used player ended."""
        fresh, self._fresh = self._fresh or "player" not in self._arms, False
        if "player" not in self._arms:
            self._add_arms(["player"], deadline)
            self._uncaptured(deadline)
        if "player" not in self._arms:
            error = (
                f"no process could be started to replay its launches: {self._left_out['player']}"
            )
            return ProcessFindings(
                {"status": "launch_error", "stage": "compile", "error": error}, "", isolation
            )
        self._referee.send(
            self._order(candidate, timed=self.tier != "smoke") | {"plan": plan, "arms": ["player"]}
        )
        answer = self._referee.wait(
            "findings", self.config.judge.candidate_s, deadline, self._arms["player"]
        )
        if isinstance(answer, Death):
            raise RefereeDied(answer.reason, answer)
        if answer is None:
            log = self._arms.pop("player").close()
            if not isinstance(self._referee.wait("findings", HANG_UP_S, None), Message):
                self.close()
            return ProcessFindings(
                findings_of_death(Death("timeout", log), self._referee.stage, self.config),
                log,
                isolation,
            )
        findings = dict(answer.value["findings"])
        if findings.pop("gone", False):
            death = self._arms.pop("player").receive(GONE_S)
            if not fresh:
                return None
            log = death.log if isinstance(death, Death) else ""
            why = f"its kernels ended the process that replays them ({death.reason if isinstance(death, Death) else 'it spoke'})"
            return ProcessFindings(
                {"status": Status.LAUNCH_ERROR.value, "stage": self._referee.stage, "error": why},
                log,
                isolation,
            )
        if findings["status"] == Status.CHEAT.value:
            self._arms.pop("player").close()  # its state is unknown
        return ProcessFindings(findings, "", isolation, findings.pop("samples", {}))

    def _order(
        self, candidate: Candidate, *, timed: bool, one_case: bool = False, deprived: bool = False
    ) -> dict[str, Any]:
        settings, claim = self.config.judge, self.tier == "claim"
        arms = ["reference", CONTROL, *self.baselines] if timed else ()
        return {
            "candidate": True,
            "source": candidate.source,
            "tier": self.tier,
            "untimed": self._untimed(candidate),
            "arms": [name for name in arms if name in self._arms],
            "captured": [name for name in arms if self._is_captured(name)],
            "one_case": one_case,
            "require_kernels": self.spec.require_kernels and not candidate.line,
            "deprived": deprived,
            "profile": self.spec.profiled(candidate, self.tier) and not one_case,
            "rounds": settings.claim_pairs * self._longer if claim else settings.search_pairs,
            "limit_s": self._claim_s() if claim else settings.search_s * (1 + len(self.baselines)),
        }

    def _claim_s(self) -> float:
        """Return the longest timing of one set of processes; a longer one leaves the candidate's time to its other steps."""
        usual = self.config.judge.claim_s * (2 + len(self.baselines))
        return min(usual * self._longer, max(usual, self.config.judge.candidate_s / 3))

    def _measure(
        self,
        candidate: Candidate,
        deadline: float | None,
        *,
        timed: bool,
        control: bool = False,
        one_case: bool = False,
        looks: int = slowdown.LOOKS,
        deprived: bool = False,
    ) -> ProcessFindings | None:
        """Run one runner, for one set of findings; None if the deadline came first."""
        timed = timed and self._untimed(candidate) is None
        if timed:
            wanted = ("reference", *((CONTROL,) if control else ()), *self.baselines)
            if missing := [
                name for name in wanted if name not in self._arms and name not in self._left_out
            ]:
                self._add_arms(missing, deadline)
            if self._alone_ms is None:
                self._alone_ms = self._alone(deadline)
        if (given := self._given(candidate)).failed is not None:
            return given.failed
        measured = self._tried(
            given,
            candidate,
            self._order(candidate, timed=timed, one_case=one_case, deprived=deprived),
            deadline,
        )
        if measured is None:
            return None
        if measured.findings.pop("deprive", False) and not deprived:
            # Its replays may be its own: see `own_kernels`.
            second = self._measure(
                candidate, deadline, timed=timed, control=control, one_case=one_case, deprived=True
            )
            return second and (
                merge_findings(measured, second)
                if second.findings["status"] == Status.OK.value
                else measured
            )
        if not one_case and (why := self._sourceless(candidate, measured, deadline)) is not None:
            return ProcessFindings(why, measured.log, measured.isolation)
        slowed = self._slowed(measured, deadline)
        if slowed is None:
            return measured
        if not looks:
            return ProcessFindings(
                {"status": "cheat", "stage": "time", "error": slowed},
                measured.log,
                measured.isolation,
            )
        # A busy machine slows as much: only a slowdown that fresh processes repeat is the candidate's.
        second = self._measure(
            candidate, deadline, timed=timed, control=control, one_case=True, looks=looks - 1
        )
        if second is None or second.findings["status"] != Status.OK.value:
            return second
        return merge_findings(measured, second)

    def _slowed(self, measured: ProcessFindings, deadline: float | None) -> str | None:
        """Return why the candidate seems fast, if it slows the reference down."""
        if not measured.samples or self._alone_ms is None:
            return None
        beside, before = median(measured.samples["reference"]), self._alone_ms
        if not slowdown.slowdown_suspected(beside, median(measured.samples["candidate"]), before):
            return None
        self._alone_ms = self._alone(deadline)
        return slowdown.slowdown_message(beside, max(before, self._alone_ms or before))

    def _tried(
        self,
        given: environment.RunnerEnvironment,
        candidate: Candidate,
        order: dict[str, Any],
        deadline: float | None,
        programs: bool = True,
    ) -> ProcessFindings | None:
        env = {
            **self._env,
            **self._candidate_env,
            **compiling.env(candidate, self._limits, self.spec.require_kernels),
        }
        return trial(
            self._referee,
            order,
            given,
            device=self.task.device,
            isolate=compiling.isolation(candidate, self._limits, self.task.device),
            limits=self._limits,
            config=compiling.with_time(candidate, self.config),
            env=env,
            deadline=deadline,
            lost=self.close,
            programs=programs,
            folders=self.task.folders,
        )

    def _sourceless(
        self, candidate: Candidate, measured: ProcessFindings, deadline: float | None
    ) -> dict[str, Any] | None:
        """Return findings on kernels that were not compiled from the candidate's source: they also work where compilers are blocked.

        Only on a CPU: NVRTC and Triton compile in the candidate's process. A candidate that checks for a compiler, and fails without one,
        passes.
        """
        asked = (
            self.spec.require_kernels
            and not candidate.line
            and self.task.device == "cpu"
            and self._untimed(candidate) is None
        )
        if (
            not asked
            or measured.findings["status"] != Status.OK.value
            or "seccomp" not in measured.isolation
        ):
            return None
        bare = environment.RunnerEnvironment(
            env=backends.get(candidate.backend).env(self.task.device)
        )
        order = self._order(candidate, timed=False, one_case=True) | {"require_kernels": False}
        second = self._tried(bare, candidate, order, deadline, programs=False)
        if second is None or second.findings["status"] != Status.OK.value:
            return None
        error = "it computes the result where no compiler can be run: what it executes was not compiled from its source"
        return {"status": Status.REJECTED.value, "stage": "compile", "error": error}

    def _given(self, candidate: Candidate) -> environment.RunnerEnvironment:
        with self._referee.time_stage("build"):
            return environment.runner_environment(
                candidate, self.task.device, self._limits, self.config, self.task.folders
            )

    # ------------------------------------------------------------ verdicts

    def _untimed(self, candidate: Candidate) -> str | None:
        return backends.get(candidate.backend).untimed(self.task.device)

    def _verdict(
        self, began: float, measured: ProcessFindings, timing: Timing | None = None
    ) -> Verdict:
        verdict = verdict_of(
            measured, timing, self.tier, self.task.device, time.monotonic() - began
        )
        left_out = {name: self._left_out[name] for name in self.baselines if name in self._left_out}
        return verdict.model_copy(
            update={
                "stages_s": {stage: round(s, 4) for stage, s in self._referee.spent.items()},
                "baselines_left_out": left_out if timing is not None else {},
            }
        )
