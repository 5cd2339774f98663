"""Candidates whose launches are recorded and replayed by trusted code instead of running their host code. Parent side: no torch."""

from __future__ import annotations

from typing import Any

from dvk import backends
from dvk.harness.session import recording
from dvk.harness.session.attempt import GONE_S, HANG_UP_S, RefereeDied, passed
from dvk.harness.session.claim_sets import CONTROL, SHORT_CALL_MS
from dvk.harness.session.session_processes import SessionProcesses
from dvk.harness.session.verdicts import ProcessFindings, findings_of_death
from dvk.records import Candidate, Status
from dvk.sandbox import Death, Message

LINES = {
    "torch.compile": "compile",
    "torch.compile(mode='max-autotune-no-cudagraphs')": "max-autotune",
}
"""Lines of PyTorch that are timed as these baselines by the device: trusted, so that the player may run them."""


class ReplayingSession(SessionProcesses):
    """A session's orders, and those of them that replay a launch plan.

    Args, Attributes: see `SessionProcesses`.
    """

    def _line_is(self, candidate: Candidate) -> str | None:
        """Return the baseline that a line of PyTorch is by the device."""
        return LINES.get(candidate.line) if self.spec.contract == "short" else None

    def _plannable(self, candidate: Candidate, deadline: float | None) -> bool:
        if self.spec.contract == "module" or self.spec.backward or self.task.train:
            return False
        if self._recorded is None:
            self._why_host_code = self._why_unrecorded
            return False
        if candidate.line:
            return self._line_arm is not None and self._is_short(deadline)
        # A replayed graph serves to save host time, which a plan leaves out.
        whole = self.spec.contract != "plan" and "CUDAGraph" in candidate.source
        if whole:
            self._why_host_code = "its CUDA graph saves the host's time"
        if whole or not backends.get(candidate.backend).has_launch_plan:
            return False
        if self._is_final and self.tier == "smoke":
            return False
        if self.spec.contract == "short" or self.tier == "claim":
            return self._is_short(deadline)
        return True

    @property
    def _is_final(self) -> bool:
        """Whether verdicts of the search are not followed by a claim: the host code must be right as well."""
        return self.spec.contract == "short" and not self.spec.brief

    def _is_short(self, deadline: float | None) -> bool:
        """Whether the reference's calls are too short to be timed from end to end."""
        if self._short is None:
            if self._alone_ms is None:
                if "reference" not in self._arms:
                    self._add_arms(["reference"], deadline)
                self._alone_ms = self._alone(deadline)
            self._short = self._alone_ms is not None and self._alone_ms < SHORT_CALL_MS
        return self._short

    def _replayed(self, candidate: Candidate, deadline: float | None) -> ProcessFindings | None:
        """Return findings on the candidate's launch plan; None if it has none and the contract allows its host code."""
        if (
            "player" not in self._arms
        ):  # it takes seconds to start, and so does the process that recorders are forked from
            self._add_arms(["player"], deadline)
            self._fresh = True
        if (why := self._uncaptured(deadline)) is not None and self.spec.contract != "plan":
            self._why_host_code = why
            return None  # its host code is timed against theirs
        result = self._recording(candidate)
        if isinstance(result, ProcessFindings):
            return result
        plan, why, isolation = result
        if plan is None:
            if self.spec.contract != "plan":
                self._why_host_code = f"no launch plan can stand for it: {why}"
                return None
            error = f"no launch plan can stand for it: {why}"
            return ProcessFindings(
                {"status": "rejected", "stage": "compile", "error": error}, "", isolation
            )
        # If a used player breaks, the previous candidate may be the cause.
        played = self._played(candidate, plan, isolation, deadline)
        if played is None and not passed(deadline):
            played = self._played(candidate, plan, isolation, deadline)
        if self.spec.contract == "plan" or not recording.needs_host_code(played):
            return played
        assert played is not None, "its error says why"
        self._why_host_code = str(played.findings["error"])
        if recording.reference_is_uncaptured(played):
            self._recorded, self._why_unrecorded = None, self._why_host_code
        return None

    def _recording(
        self, candidate: Candidate
    ) -> ProcessFindings | tuple[dict[str, Any] | None, str, str]:
        """See `recording.launch_plan`; of a line that is timed as a baseline, the unchanged module's."""
        if self._line_arm is not None:
            unchanged = f"{self.task.source}\n\nModelNew = {self.task.entry}\n"
            candidate = candidate.model_copy(update={"source": unchanged})
        with self._referee.time_stage("record"):
            return recording.launch_plan(
                candidate, self.task, self._recorded or {}, self._limits, self.config
            )

    def _played(
        self,
        candidate: Candidate,
        plan: dict[str, Any],
        isolation: str,
        deadline: float | None,
        one_case: bool = False,
    ) -> ProcessFindings | None:
        """Return findings on a launch plan; None if a used player ended, or the deadline came first."""
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
            self._order(candidate, timed=self.tier != "smoke", one_case=one_case)
            | {"plan": plan, "arms": ["player"]}
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
            if passed(deadline):
                return None
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
        samples = findings.pop("samples", {})
        if samples and self._line_arm is not None:
            samples["candidate"] = samples[self._line_arm]
        return ProcessFindings(findings, "", isolation, samples)

    def _order(
        self, candidate: Candidate, *, timed: bool, one_case: bool = False, deprived: bool = False
    ) -> dict[str, Any]:
        settings, claim = self.config.judge, self.tier == "claim"
        beside = [self._line_arm] if self._line_arm is not None else []
        arms = dict.fromkeys(["reference", CONTROL, *beside, *self.baselines] if timed else ())
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

    def _untimed(self, candidate: Candidate) -> str | None:
        return backends.get(candidate.backend).untimed(self.task.device)
