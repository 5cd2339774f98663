"""Plays in which composer and model both propose."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dvk.records import Candidate, Verdict
from dvk.search import Proposals, SearchProblem, composer
from tests.agents.conftest import ok


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[list[Verdict | None]]:
    """A composer of two batches, 3 and 2, and its inputs."""
    told: list[list[Verdict | None]] = []

    def proposals(problem: SearchProblem) -> Proposals:
        for sources in (("c1", "c2", "c3"), ("c4", "c5")):
            told.append(
                (yield [Candidate(source=s, backend="cpp", proposer="composer") for s in sources])
            )

    monkeypatch.setattr(composer, "search", proposals)
    return told


def took(seconds: float) -> Verdict:
    return ok(1.5).model_copy(update={"seconds": seconds})


def play(
    proposals: Proposals, judge: Callable[[Candidate], Verdict | None], most: int
) -> list[str]:
    """Sources in the order they were proposed; they come one at a time."""
    order: list[str] = []
    try:
        batch = next(proposals)
        while True:
            (candidate,) = batch
            order.append("m" if candidate.proposer == "said" else candidate.source)
            if len(order) == most:
                break
            batch = proposals.send([judge(candidate)])
    except StopIteration:
        pass
    proposals.close()
    return order
