"""Candidates with verdicts for tests of the search."""

from __future__ import annotations

from dvk.records import Candidate, Interval, Status, Timing, Turn, Verdict
from dvk.search.archive import ArchivedProgram


def made(source: str, *verdicts: Verdict) -> ArchivedProgram:
    candidate = Candidate(source=source, backend="cpp")
    return ArchivedProgram(Turn(candidate=candidate, verdict=verdicts[0]), verdicts=list(verdicts))


def timed(value: float, lo: float, hi: float) -> Verdict:
    timing = Timing(
        candidate_ms=1,
        reference_ms=value,
        speedup=Interval(value=value, lo=lo, hi=hi),
        num_pairs=9,
        seconds=0,
    )
    return Verdict(status=Status.OK, tier="search", stage="done", timing=timing)
