"""A claim: sets of fresh processes are measured until it is decided. Parent side.

A set times calls from end to end, as users make them, or by the device: launch plans replayed by a fresh player. Two processes take turns
on a GPU from end to end, and a switch between them costs 0.2 to 0.3 ms in every call, which hides shorter ones; these are claimed by the
device. The candidate's host code is then checked once, in full, but not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dvk.harness.session.verdicts import ProcessFindings, claim_timing, merge_findings
from dvk.harness.timing import claims
from dvk.records import Claim, Status, Timing
from dvk.stats.intervals import median_ratio

CONTROL = "reference#2"
"""The arm that is the reference again."""
SHORT_CALL_MS = 1.0
"""Calls of the reference that take less from end to end are timed by the device, see above. A switch costs a third of it at most."""

Measure = Callable[[int, bool], ProcessFindings | None]
"""Measures one set; takes the factor on its pairs and whether it is the first. None: the deadline came first."""


class ClaimSets:
    """The sets of one claim.

    Args:
        measure: measures a set.
        is_late: whether the claim must be decided with the sets that there are; takes whether it is unsteady.
    """

    def __init__(self, measure: Measure, is_late: Callable[[bool], bool]):
        self._measure, self._is_late = measure, is_late
        self._sets: list[ProcessFindings] = []
        self._claim: Claim | None = None

    def run(self) -> ProcessFindings | None:
        """Measure until the claim is decided; return the first set's findings, or the failed one's. None: the deadline came first."""
        speedups, controls = list[float](), list[float]()
        while True:
            longer = claims.LONGER if len(self._sets) >= claims.FIRST_LOOK else 1
            measured = self._measure(longer, not self._sets)
            if measured is None or not is_timed(measured):
                return measured
            self._sets.append(measured)
            samples = measured.samples
            speedups.append(median_ratio(samples["reference"], samples["candidate"]))
            controls.append(median_ratio(samples["reference"], samples[CONTROL]))
            if len(self._sets) < claims.FIRST_LOOK:
                continue
            self._claim = claims.claim(speedups, controls)
            late = self._is_late(claims.is_unsteady(self._claim))
            if late or claims.looked_at(len(self._sets)) and not claims.undecided(self._claim):
                return self._sets[0]

    def timing(self, baselines: tuple[str, ...]) -> Timing | None:
        """The claim's times; None if a set failed."""
        if self._claim is None:
            return None
        return claim_timing(self._sets, baselines, self._claim)


def is_timed(measured: ProcessFindings) -> bool:
    """Whether a set was right and has samples."""
    return measured.findings["status"] == Status.OK.value and bool(measured.samples)


def with_checks(checked: ProcessFindings | None, played: ProcessFindings) -> ProcessFindings:
    """A replayed set's findings, with the checks of the candidate's host code; those alone if they failed."""
    if checked is None:
        return played
    if checked.findings["status"] != Status.OK.value:
        return checked
    if not is_timed(played):
        return played
    merged = merge_findings(checked, played)
    host: dict[str, Any] = {"contract": "module", "profile": played.findings.get("profile")}
    merged.findings.update(host)
    return ProcessFindings(merged.findings, checked.log, checked.isolation, played.samples)
