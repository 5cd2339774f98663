"""How many sets of processes a claim measures: few on a calm machine, more while the noise is large and there is time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dvk.harness.session.judge_session import CONTROL, JudgeSession
from dvk.harness.session.verdicts import ProcessFindings
from dvk.harness.timing.claims import FIRST_LOOK, LAST_LOOK, LONGER, SECOND_LOOK
from dvk.records import Verdict
from tests.harness.conftest import QUICK, candidate, task

CALM = [(2.0, 1.0), (2.001, 1.001), (1.999, 0.999)]
BUSY = [(3.0, 1.5), (1.4, 0.65), (2.2, 1.4), (1.6, 0.7), (2.4, 1.0)]
SLIGHT = [(1.02, 1.0), (1.03, 1.001), (1.012, 0.999)]
"""Speedup and control of each set, over and over."""


def claimed(
    monkeypatch: pytest.MonkeyPatch, sets: list[tuple[float, float]], left_s: float | None
) -> tuple[Verdict, list[dict[str, Any]]]:
    """Return the verdict of a session whose processes measure `sets`, and the order of each set."""
    session = JudgeSession(task("affine"), QUICK)
    session.tier = "claim"
    session.decide_by = None if left_s is None else time.monotonic() + left_s
    orders: list[dict[str, Any]] = []

    def measure(one: Any, *_: Any, **__: Any) -> ProcessFindings:
        speedup, control = sets[len(orders) % len(sets)]
        orders.append(session._order(one, timed=True))
        found = {"status": "ok", "stage": "done", "seconds_timed": 0.1, "charged_ms": 0.0}
        times = {
            "reference": [speedup] * 9,
            "candidate": [1.0] * 9,
            CONTROL: [speedup / control] * 9,
        }
        return ProcessFindings({**found, "regime": "end_to_end"}, samples=times)

    monkeypatch.setattr(session, "_measure", measure)
    verdict = session._claim(time.monotonic(), candidate("good/torch_affine"), None)
    assert verdict is not None and verdict.timing is not None and verdict.timing.claim is not None
    assert len(verdict.timing.claim.processes) == len(orders)
    return verdict, orders


@pytest.mark.parametrize(
    ("sets", "left_s", "count", "holds"),
    [
        (CALM, None, FIRST_LOOK, True),
        (SLIGHT, None, SECOND_LOOK, True),
        (SLIGHT, 0.0, FIRST_LOOK, False),
        (BUSY, None, LAST_LOOK, True),
        (BUSY, 600.0, LAST_LOOK, True),
        (BUSY, -1.0, FIRST_LOOK, False),
    ],
)
def test_a_claim_is_measured_until_it_is_decided_or_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
    sets: list[tuple[float, float]],
    left_s: float | None,
    count: int,
    holds: bool,
) -> None:
    verdict, orders = claimed(monkeypatch, sets, left_s)
    assert len(orders) == count
    assert verdict.timing and verdict.timing.claim and verdict.timing.claim.holds is holds


def test_later_sets_measure_longer_within_the_candidates_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, orders = claimed(monkeypatch, BUSY, None)
    pairs, seconds = QUICK.judge.claim_pairs, 2 * QUICK.judge.claim_s
    first, later = orders[:FIRST_LOOK], orders[FIRST_LOOK:]
    assert {(o["rounds"], o["limit_s"]) for o in first} == {(pairs, seconds)}
    assert {(o["rounds"], o["limit_s"]) for o in later} == {(LONGER * pairs, LONGER * seconds)}
    patient = JudgeSession(task("affine"), QUICK)
    patient._longer = LONGER
    patient.config = QUICK.model_copy(
        update={"judge": QUICK.judge.model_copy(update={"claim_s": 9.0})}
    )
    assert patient._claim_s() == 18.0, "the candidate's time is for its other steps, too"
