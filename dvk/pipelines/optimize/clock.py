"""Estimate of a search's total time: reported at the start, corrected after the first verdict, then the bound of the confirmation.

`--budget-s` limits the search itself, except its first verdict. Loading the module, capturing its graph and confirming
the best do not depend on it: they are the fixed part. Nothing is known about this machine at first, so the first
estimate is made from the loading time, and the second from the first verdict's time, by stages.

Calibrated on three examples, on two cores, idle and next to six other processes: a claim took between half and twice what `confirmation`
estimates, with 5 sets of processes if it was decided early and 10 if not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dvk.config import JudgeConfig
from dvk.harness.timing.claims import FIRST_LOOK
from dvk.records import Verdict

CAPTURE = 0.8
"""Capturing the operator graph, in a separate process, as a multiple of the loading time."""
FIRST_VERDICT = 2.2
"""The first verdict (two judge processes, inputs, compiling), as a multiple of the loading time."""
SLOW_FIRST = 3.0
"""Multiple of its estimate after which a first verdict is cut: on a busy machine loading and judging vary as much."""
SET = 0.7
"""Starting a fresh set of processes, as a multiple of the loading time."""
COMPILE_S = 40.0
"""torch.compile's first compilation for a baseline; later processes find it in the cache."""
LEAST_CONFIRM_S = 20.0
OVER = 1.3
"""Factor over its estimate after which a confirmation is decided with the data it has."""


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds of each part of a command.

    Attributes:
        load: loading the module, measured.
        capture: capturing the operator graph.
        first: until the first verdict.
        budget: of the search.
        confirm: confirming the best in fresh processes.
        corrected: whether the first verdict is known.
    """

    load: float
    capture: float
    first: float
    budget: float
    confirm: float
    corrected: bool = False

    @property
    def fixed(self) -> float:
        """The part that does not depend on the budget."""
        return self.load + self.capture + self.confirm

    @property
    def total(self) -> float:
        """Upper estimate of the whole command's time: a search that has nothing left to try ends earlier."""
        return self.fixed + max(self.budget, self.first)

    def __str__(self) -> str:
        search = f"up to {_shown(self.budget)} of search"
        if self.first > self.budget:
            search = f"{_shown(self.budget)} of search, for which the first verdict alone takes about {_shown(self.first)},"
        return (
            f"{search} and about {_shown(self.fixed)} for loading, capture and confirming the best: about {_shown(self.total)} in all "
            f"(--budget-s sets the search; on a busy machine confirming may take three times as long)"
        )


def at_start(
    load_s: float, budget_s: float, judge: JudgeConfig, num_baselines: int, num_sets: int = 1
) -> TimeEstimate:
    """The estimate when only the loading time is known.

    Args:
        load_s: loading time of one set of inputs.
        budget_s: of all searches together.
        judge: its settings.
        num_baselines: timed alongside the reference when the best is confirmed.
        num_sets: sets of inputs; each is captured, and confirmed.
    """
    one = load_s * SET + judge.claim_s * (2 + num_baselines) / 2
    confirm = max(LEAST_CONFIRM_S, FIRST_LOOK * 1.5 * one) + COMPILE_S * num_baselines
    return TimeEstimate(
        load_s * num_sets,
        load_s * CAPTURE * num_sets,
        load_s * FIRST_VERDICT,
        budget_s,
        confirm * num_sets,
    )


def corrected(
    expected: TimeEstimate, capture_s: float, first: Verdict, judge: JudgeConfig, num_baselines: int
) -> TimeEstimate:
    """The estimate when the first verdict has come, at the search tier.

    Args:
        capture_s: time of capturing.
        first: the verdict.
        judge: its settings.
        num_baselines: see `at_start`.
    """
    spent = {stage: first.stages_s.get(stage, 0.0) for stage in ("prepare", "check", "time")}
    longer = judge.claim_s / judge.search_s * (2 + num_baselines) / 2
    one = spent["prepare"] / 2 + spent["check"] / 2 + spent["time"] * longer
    confirm = max(LEAST_CONFIRM_S, FIRST_LOOK * one) + COMPILE_S * num_baselines
    return replace(
        expected, capture=capture_s, first=first.seconds, confirm=confirm, corrected=True
    )


def needed_s(spent_s: float) -> int:
    """Time that a first verdict needs that was cut after so many seconds: half as much again, in tens."""
    return -int(-1.5 * spent_s // 10) * 10


def _shown(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 300 else f"{seconds / 60:.0f} min"
