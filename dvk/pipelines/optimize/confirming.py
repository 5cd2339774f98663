"""Candidates of one search: judged, recorded, and the best of them confirmed in fresh processes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dvk import crashes
from dvk.composer import CapturedGraph, Part, Plan, fuse, join
from dvk.config import Config
from dvk.crashes import Crashed
from dvk.errors import DvkError
from dvk.harness.session.judge_spec import Judge
from dvk.pipelines import tracebacks
from dvk.pipelines.live import SearchView
from dvk.pipelines.optimize import clock, summary
from dvk.pipelines.optimize.clock import TimeEstimate
from dvk.records import BackendName, Candidate, Status, Task, Tier, Turn, Verdict
from dvk.runs import RunFolder
from dvk.search.seeded import PROPOSER

TURNS = "turns.jsonl"
UNDECIDED = 1.2
"""Speedup that the interval of a candidate that looked slower must reach for it to be confirmed."""
NUM_CONFIRMED = 3
"""Maximal number of confirmed candidates: the search's favourite is lucky now and then, the third hardly ever."""


class JudgedCandidates:
    """The candidates of one search, as `session.SearchSession` sets them up."""

    run: RunFolder
    task: Task
    backend: BackendName
    config: Config
    folder: str
    baselines: list[str]
    court: Judge
    turns: list[Turn]
    known: dict[str, Verdict]
    """Verdicts of the search by candidate."""
    captured: CapturedGraph | None
    expected: TimeEstimate | None
    """Estimate of the command's time, if known."""
    confirm_by: float | None
    """Deadline of confirming, on time.monotonic's clock, except the first candidate's first look; set when it begins."""
    began: float
    reason: str | None
    interrupted: bool

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began, those of earlier processes included."""
        return time.monotonic() - self.began

    @property
    def left_s(self) -> float:
        """Seconds of the search's budget that are left; negative when it is over."""
        return self.config.optimize.budget_s - self.elapsed_s

    @property
    def _confirm_s(self) -> float:
        """Estimated time of confirming."""
        return self.expected.confirm if self.expected is not None else clock.LEAST_CONFIRM_S

    def _judged(
        self,
        candidate: Candidate,
        tier: Tier,
        baselines: Sequence[str] = (),
        deadline: float | None = None,
    ) -> Verdict | None:
        """As `JudgeSession.judge`; an error inside dvk is the candidate's verdict."""
        try:
            result = crashes.run_guarded(
                "judging it", self.court.judge, candidate, tier, baselines, deadline
            )
        except DvkError as error:
            if candidate.proposer != PROPOSER:
                raise
            # The user's candidate needs what is not here, such as a GPU: that is its verdict.
            return Verdict(status=Status.REJECTED, tier=tier, stage="static", error=error.message)
        if not isinstance(result, Crashed):
            return result
        self.court.close()  # its stage is unknown
        self._keep(result.traceback)
        return crashes.verdict(result, tier)

    def _record(self, candidate: Candidate, verdict: Verdict, live: SearchView) -> None:
        turn = Turn(candidate=candidate, verdict=verdict, elapsed_s=self.elapsed_s)
        self.turns.append(turn)
        if verdict.tier != "claim":
            self.known[candidate.id] = verdict
        self.run.append(self.folder + TURNS, turn)
        live.judged(turn)

    def _keep(self, traceback: str) -> None:
        tracebacks.keep(self.run, self.folder.strip("/") or self.task.name, [traceback])

    # -------------------------------------------------------------- confirming

    @property
    def promising(self) -> list[Turn]:
        """Candidates worth minutes of confirming: those that looked faster in the search, the fastest first.

        If none did, one that a noisy machine left undecided.
        """
        ranked = summary.ranked(self.turns)
        faster = [turn for turn, speedup in ranked if speedup.value > 1]
        return (
            faster[:NUM_CONFIRMED]
            or [turn for turn, speedup in ranked if speedup.hi >= UNDECIDED][:1]
        )

    @property
    def unconfirmed(self) -> list[Turn]:
        """Candidates that looked faster in the search and were neither confirmed nor refused since, the fastest first."""
        claimed = {
            t.candidate.id
            for t in self.turns
            if t.candidate and t.verdict and t.verdict.tier == "claim" and not t.verdict.timing
        }
        return [
            turn for turn in self.promising if turn.candidate and turn.candidate.id not in claimed
        ]

    def confirm(self, live: SearchView) -> Turn | None:
        """The winner, judged again in a fresh process at the claim tier; None when nothing holds, or `optimize.confirm` is off."""
        if not self.config.optimize.confirm:
            return self.proven
        ranked = self.promising
        for turn in ranked:
            if (
                self.confirm_by is not None
                and time.monotonic() + self._confirm_s / 2 >= self.confirm_by
            ):
                break  # not even a first look would fit
            assert turn.candidate is not None and turn.verdict is not None
            try:
                claim = self.claim(turn.candidate, live)
            except KeyboardInterrupt:
                self.interrupted, self.reason = (
                    True,
                    "stopped before the best was confirmed: the search's own figure is given",
                )
                return turn if turn.verdict.faster else None
            if claim.verdict is not None and claim.verdict.faster:
                return claim
        return self.proven or (self.refuted if ranked else None)

    @property
    def proven(self) -> Turn | None:
        """The fastest earlier confirmed candidate, as from a run that now resumes with a larger budget."""
        held = [
            t
            for t in self.turns
            if t.verdict is not None
            and t.verdict.tier == "claim"
            and t.verdict.faster
            and t.verdict.timing
        ]
        return max(
            held,
            key=lambda t: t.verdict.timing.speedup.value if t.verdict and t.verdict.timing else 0.0,
            default=None,
        )

    def claim(self, candidate: Candidate, live: SearchView, what: str = "the best") -> Turn:
        """The candidate judged in fresh processes, or as it was before the run was killed.

        Args:
            what: the candidate's description.

        Raises:
            KeyboardInterrupt: the user stopped it.
        """
        before = [
            t
            for t in self.turns
            if t.candidate
            and t.candidate.id == candidate.id
            and t.verdict
            and t.verdict.tier == "claim"
        ]
        if before and self._covers(before[-1]):
            return before[-1]
        if self.confirm_by is None:
            # What the search left of its budget is time to measure more while the interval is wide.
            self.confirm_by = (
                time.monotonic() + clock.OVER * self._confirm_s + max(0.0, self.left_s)
            )
        live.stage(
            f"confirming {what} in fresh processes, about {self._confirm_s:.0f} s, or up to "
            f"{2 * max(0.0, self.confirm_by - time.monotonic()):.0f} s while the timings are noisy"
        )
        self.court.decide_by = self.confirm_by
        verdict = self._judged(candidate, "claim", self.baselines)
        assert verdict is not None, "there is no deadline"
        self._record(candidate, verdict, live)
        return self.turns[-1]

    @property
    def refuted(self) -> Turn | None:
        """The search's best among candidates that did not hold when timed again; drop-ins for several sets of inputs begin with it."""
        claims = {
            t.candidate.id: t
            for t in self.turns
            if t.candidate
            and t.verdict
            and t.verdict.tier == "claim"
            and t.verdict.timing
            and not t.verdict.faster
        }
        places = {
            t.candidate.id: place
            for place, (t, _) in enumerate(summary.ranked(self.turns))
            if t.candidate
        }
        return min(
            claims.values(),
            key=lambda t: places.get(t.candidate.id, -1) if t.candidate else 0,
            default=None,
        )

    def part(self, candidate: Candidate) -> Part | None:
        """The plan that a candidate executes; None if the composer did not write it, so that it cannot be joined with others."""
        if self.captured is None or candidate.proposer != "composer":
            return None
        plan = Plan.of(candidate)
        part = Part(self.task, self.captured, fuse(self.task, self.captured, plan.recipes), plan)
        return part if join([part], self.backend).source == candidate.source else None

    def _covers(self, claim: Turn) -> bool:
        """Whether it was timed against all requested baselines."""
        timing = claim.verdict.timing if claim.verdict is not None else None
        return timing is None or set(self.baselines) <= set(timing.baselines)
