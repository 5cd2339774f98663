"""The judged candidates of an episode, in time order, as the report shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dvk.composer.recipes import inexact
from dvk.records import Candidate, Episode, Interval, Turn, Verdict
from dvk.speedups import shown


@dataclass(frozen=True)
class ReportAttempt:
    """One judged candidate."""

    number: int
    """Position in time, from 1."""
    seconds: float
    """Since the search began."""
    candidate: Candidate | None
    """None when the answer held no code."""
    verdict: Verdict
    title: str
    schedule: tuple[tuple[str, str], ...]
    """(kernel, `block=1024 warps=4`) pairs; choices that belong to no kernel come first under an empty name."""
    reason: str
    """Reason for a failure or a missing time, first line; empty otherwise."""

    @property
    def speedup(self) -> Interval | None:
        """Over eager; None when it was not timed."""
        return self.verdict.timing.speedup if self.verdict.timing else None

    @property
    def figures(self) -> str:
        """The speedup as text; a dash when it was not timed."""
        return shown(self.speedup)

    @property
    def value(self) -> float:
        """The speedup's point estimate, 0 when it was not timed."""
        return self.speedup.value if self.speedup else 0.0

    @property
    def ok(self) -> bool:
        """Whether it agreed with the reference in all checks."""
        return self.verdict.status.value == "ok"

    @property
    def confirmation(self) -> bool:
        """Whether it was judged at the claim tier, in a fresh process."""
        return self.verdict.tier == "claim"

    @property
    def outcome(self) -> str:
        """The status as text."""
        if self.ok and self.confirmation:
            return "confirmed" if self.verdict.faster else "not confirmed"
        return self.verdict.status.value.replace("_", " ")

    @property
    def inexact(self) -> list[str]:
        """The recipes' parts that are exact for finite values alone, in sentences."""
        return [
            f"{name} is exact for finite inputs alone, and was asked for (optimize.inexact)"
            for name in inexact(self.recipes)
        ]

    @property
    def recipes(self) -> tuple[str, ...]:
        """The composer recipes applied."""
        return self.candidate.recipes if self.candidate else ()

    @property
    def proposer(self) -> str:
        """Its author."""
        return self.candidate.proposer if self.candidate else ""

    @property
    def source(self) -> str:
        """The candidate's whole text."""
        return self.candidate.source if self.candidate else ""


def gather(episode: Episode) -> list[ReportAttempt]:
    """The judged turns of the policy's traces; a candidate of several conversations was judged once and is one attempt."""
    turns = [turn for trace in episode.traces if trace.role == "policy" for turn in trace.turns]
    turns_by_text: dict[str, Turn] = {}
    for number, turn in enumerate(turns):
        if turn.verdict:
            same = (
                turn.candidate.id
                if turn.candidate and turn.verdict.tier != "claim"
                else str(number)
            )
            turns_by_text.setdefault(same, turn)
    judged = sorted(turns_by_text.values(), key=lambda turn: turn.elapsed_s)
    return [
        _attempt(number, turn, turn.verdict)
        for number, turn in enumerate(judged, start=1)
        if turn.verdict
    ]


def fastest(attempts: Sequence[ReportAttempt]) -> ReportAttempt | None:
    """The timed attempt of highest speedup, confirmations before all others."""
    timed = [attempt for attempt in attempts if attempt.speedup]
    return max(timed, key=lambda attempt: (attempt.confirmation, attempt.value), default=None)


def best_so_far(attempts: Sequence[ReportAttempt]) -> list[tuple[float, float]]:
    """(seconds, speedup) where the search's best rose, from eager's 1.

    Only a speedup whose interval lies above 1 counts; confirmations are repeated measurements and do not.
    """
    steps = [(0.0, 1.0)]
    for attempt in attempts:
        if attempt.verdict.faster and not attempt.confirmation and attempt.value > steps[-1][1]:
            steps.append((attempt.seconds, attempt.value))
    return steps


def _attempt(number: int, turn: Turn, verdict: Verdict) -> ReportAttempt:
    candidate = turn.candidate
    title = "no code in the answer"
    if candidate:
        title = candidate.title or f"{candidate.backend} by {candidate.proposer}"
    said = (verdict.error or verdict.untimed_reason or "").strip().splitlines()
    schedule = _schedule(candidate.schedule) if candidate else ()
    return ReportAttempt(
        number, turn.elapsed_s, candidate, verdict, title, schedule, said[0] if said else ""
    )


def _schedule(schedule: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    loose, kernels = [], []
    for key, value in schedule.items():
        if isinstance(value, dict):
            kernels.append(
                (key, " ".join(f"{name}={_value(choice)}" for name, choice in value.items()))
            )
        else:
            loose.append(f"{key}={_value(value)}")
    return (("", " ".join(loose)), *kernels) if loose else tuple(kernels)


def _value(value: Any) -> str:
    return (
        value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)
    )
