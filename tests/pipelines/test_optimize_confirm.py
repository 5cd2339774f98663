"""Which of the candidates that looked faster is confirmed: the first that holds, of each way of timing, and the faster of those."""

from __future__ import annotations

from typing import Any

import pytest

from dvk.pipelines.optimize.session import Session
from dvk.records import Candidate, Claim, Interval, Status, Timing, Turn, Verdict


def turn(name: str, speedup: float, regime: str = "device", claimed: bool | None = None) -> Turn:
    exact = Interval(value=speedup, lo=speedup, hi=speedup)
    claim = None
    if claimed is not None:
        claim = Claim(speedup=exact, level=0.99, processes=(speedup,) * 5, control=exact, margin=0.01, holds=claimed)
    timing = Timing(candidate_ms=1, reference_ms=speedup, speedup=exact, num_pairs=9, seconds=0.1, regime=regime, claim=claim)  # type: ignore[arg-type]
    verdict = Verdict(status=Status.OK, tier="search" if claim is None else "claim", stage="done", timing=timing)
    return Turn(candidate=Candidate(source=name, backend="triton"), verdict=verdict)


SEARCH = [turn("a", 3.0), turn("b", 2.5), turn("c", 2.4), turn("d", 2.3), turn("graph", 1.5, "end_to_end"), turn("slow", 0.5, "end_to_end")]


@pytest.mark.parametrize("claims, asked, winner", [
    ({"a": (1.8, True), "graph": (2.6, True)}, "a graph", "graph"),
    ({"a": (2.9, True), "graph": (2.6, True)}, "a graph", "a"),
    ({"a": (1.0, False), "b": (1.4, True), "graph": (1.0, False)}, "a b graph", "b"),
    ({"a": (1.0, False), "b": (1.0, False), "c": (1.0, False), "graph": (1.2, True)}, "a b c graph", "graph"),
])  # fmt: skip
def test_what_was_timed_in_two_ways_is_claimed_in_both(claims: dict[str, Any], asked: str, winner: str) -> None:
    session = Session.__new__(Session)
    session.turns, session.interrupted = list(SEARCH), False
    seen: list[str] = []

    def claim(candidate: Candidate, live: Any) -> Turn:
        seen.append(candidate.source)
        speedup, holds = claims[candidate.source]
        return turn(candidate.source, speedup, "end_to_end", holds)

    session.claim = claim  # type: ignore[method-assign]
    found = session.confirm(None)  # type: ignore[arg-type]
    assert seen == asked.split() and found is not None and found.candidate is not None and found.candidate.source == winner
