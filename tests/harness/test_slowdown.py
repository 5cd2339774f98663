"""When a slow reference is the candidate's doing: only if it gains by it, and only if time alone does not explain it."""

from __future__ import annotations

import pytest

from dvk.harness.session import slowdown


@pytest.mark.parametrize(
    ("beside", "candidate", "alone", "expected"),
    [
        (10.0, 3.0, 3.0, True),
        (10.0, 9.5, 3.0, False),
        (5.0, 1.0, 3.0, False),
        (7.4, 1.0, 3.0, False),
        (7.6, 1.0, 3.0, True),
    ],
)
def test_suspicion_needs_a_slow_reference_and_a_gain(
    beside: float, candidate: float, alone: float, expected: bool
) -> None:
    assert slowdown.slowdown_suspected(beside, candidate, alone) is expected


def test_a_reference_that_is_slow_by_itself_is_not_blamed_on_the_candidate() -> None:
    assert slowdown.slowdown_message(10.0, 5.0) is None
    assert (
        slowdown.slowdown_message(10.0, 3.0)
        == "the reference takes 10 ms with it and 3 ms without it"
    )
