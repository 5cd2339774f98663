"""A judge session: one task's referee with its arms, and a fresh runner for every candidate. Parent side: no torch, no candidate code.

The parent starts all processes, connects referee and runners, keeps the clock that ends hung ones, and knows how processes died. It does
not judge: findings come from the referee, deaths from the sandbox, and the two make a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
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
from dvk.harness.session.attempt import RefereeDied, passed, trial
from dvk.harness.session.claim_sets import CONTROL, ClaimSets, Measure, with_checks
from dvk.harness.session.replays import ReplayingSession
from dvk.harness.session.verdicts import (
    ProcessFindings,
    check_roofline,
    median,
    merge_findings,
    retry_s,
    search_timing,
    short_of_memory,
    verdict_of,
)
from dvk.records import Candidate, Status, Tier, Timing, Verdict


class JudgeSession(ReplayingSession):
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
        self._line_arm = self._line_is(candidate)
        self._arm_env = cuda_connections.of_arms(self.task, candidate, tier)
        self._candidate_env = cuda_connections.of_candidate(self.task, candidate, tier)
        self._referee.spent, began, self._why_host_code = {}, time.monotonic(), None
        if (why := static.refuse(candidate.source)) is not None:
            return self._verdict(
                began, ProcessFindings({"status": "rejected", "stage": "static", "error": why})
            )
        deaths = 0
        for attempt in range(4):
            try:
                verdict = self._judge(began, candidate, deadline)
                if verdict is not None and self._out_of_memory(short_of_memory(verdict), attempt):
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
                self._end_player()  # it replays a control as well
        measured = (
            self._replayed(candidate, deadline) if self._plannable(candidate, deadline) else None
        )
        if measured is not None and (self._line_arm is not None or self._is_final):
            # A plan stands for launches alone: what the host does with other arguments and modes is checked as it is.
            checked = self._measure(candidate, deadline, timed=False)
            measured = checked and with_checks(checked, measured)
        elif measured is None and not passed(deadline):
            self._line_arm = None
            measured = self._measure(candidate, deadline, timed=self.tier != "smoke")
        if measured is None:
            return None
        timing = search_timing(measured, self.baselines)
        return self._verdict(began, *check_roofline(measured, timing, self.task.device))

    def _claim(self, began: float, candidate: Candidate, deadline: float | None) -> Verdict | None:
        """Measure in sets of fresh processes until the claim is decided."""
        by_device = self._sets_by_device(candidate, deadline)
        if isinstance(by_device, ProcessFindings):
            return self._verdict(began, by_device)
        from_end_to_end = partial(self._set_of_modules, candidate, deadline)
        sets = ClaimSets(by_device or from_end_to_end, partial(self._late, began))
        measured = sets.run()
        if measured is not None and recording.needs_host_code(measured):
            self._why_host_code = self._why_host_code or str(measured.findings["error"])
            sets = ClaimSets(from_end_to_end, partial(self._late, began))
            measured = sets.run()
        if measured is None:
            return None
        timing = sets.timing(self.baselines)
        return self._verdict(began, *check_roofline(measured, timing, self.task.device))

    def _set_of_modules(
        self, candidate: Candidate, deadline: float | None, longer: int, first: bool
    ) -> ProcessFindings | None:
        """One set of a claim from end to end."""
        self._end_arms()
        self._longer = longer
        return self._measure(candidate, deadline, timed=True, control=True, one_case=not first)

    def _sets_by_device(
        self, candidate: Candidate, deadline: float | None
    ) -> Measure | ProcessFindings | None:
        """Return what measures the sets of a claim by the device; None if it is made from end to end, findings if its code failed."""
        if not self._plannable(candidate, deadline):
            return None
        recorded = self._recording(candidate)
        if isinstance(recorded, ProcessFindings):
            self._why_host_code = (
                f"its launches cannot be recorded: {recorded.findings.get('error')}"
            )
            return None
        if (plan := recorded[0]) is None:
            self._why_host_code = f"no launch plan can stand for it: {recorded[1]}"
            return None
        checked = self._measure(candidate, deadline, timed=False)
        if checked is None or checked.findings["status"] != Status.OK.value:
            return checked

        def measure(longer: int, first: bool) -> ProcessFindings | None:
            self._end_player()
            self._longer = longer
            self._add_arms(["player"], deadline)
            self._fresh = True
            if (why := self._uncaptured(deadline)) is not None:
                self._why_host_code = why
                return recording.cannot_be_captured(self.baselines)
            played = self._played(candidate, plan, recorded[2], deadline, one_case=not first)
            return played and with_checks(checked if first else None, played)

        return measure

    def _late(self, began: float, unsteady: bool) -> bool:
        """Whether a claim must be decided with the data it has; an unsteady one has twice the time."""
        by = self.decide_by
        return passed(2 * by - began if by is not None and unsteady else by)

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

    def _verdict(
        self, began: float, measured: ProcessFindings, timing: Timing | None = None
    ) -> Verdict:
        verdict = verdict_of(
            measured, timing, self.tier, self.task.device, time.monotonic() - began
        )
        left_out = {name: self._left_out[name] for name in self.baselines if name in self._left_out}
        notes = verdict.notes
        if self._why_host_code is not None and timing is not None and timing.regime != "device":
            notes = (*notes, f"timed from end to end: {self._why_host_code}")
        return verdict.model_copy(
            update={
                "stages_s": {stage: round(s, 4) for stage, s in self._referee.spent.items()},
                "baselines_left_out": left_out if timing is not None else {},
                "notes": notes,
            }
        )
