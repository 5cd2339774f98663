"""Paired gains and their bounds, by hand."""

from __future__ import annotations

import math

import pytest

from dvk.records import Candidate, Interval, Status, Timing, Turn, Verdict
from dvk.stats.effect_size import Pair, bounds, effect_size
from tests.agents.conftest import ok, wrong

T90 = {1: 3.0776835, 2: 1.8856181, 3: 1.6377444}
"""Student's 0.9 quantiles, from tables."""
_numbers = iter(range(10**6))


def sharp(speedup: float) -> Verdict:
    """A speedup measured without error."""
    exact = Interval(value=speedup, lo=speedup, hi=speedup)
    timing = Timing(
        candidate_ms=1 / speedup, reference_ms=1.0, speedup=exact, num_pairs=9, seconds=0.1
    )
    return Verdict(status=Status.OK, tier="search", stage="done", timing=timing)


def heard(verdict: Verdict | None, source: str | None = None, **fields: object) -> Turn:
    """A turn with a candidate like no other, unless its source is given."""
    written = source or f"candidate {next(_numbers)}"
    candidate = Candidate(source=written, backend="cpp") if verdict is not None else None
    return Turn.model_validate(
        {
            "completion": written,
            "finish": "stop",
            "candidate": candidate,
            "verdict": verdict,
            **fields,
        }
    )


def pair(control: float, treatment: float) -> Pair:
    return heard(sharp(control)), heard(sharp(treatment))


FAILED = heard(wrong())
UNREAD = heard(None, malformed="no code")


def test_bounds_by_hand() -> None:
    # Mean 2, standard deviation 1 over three: 1 / √3 · t.
    value, lo, hi = bounds([1.0, 2.0, 3.0], 0.0, 0.9, 3)
    assert value == 2.0
    assert lo == pytest.approx(2 - T90[2] / math.sqrt(3)) and hi == pytest.approx(
        2 + T90[2] / math.sqrt(3)
    )
    # Equal values are not known better than they were measured.
    assert bounds([2.0, 2.0], 0.01, 0.9, 2).lo == pytest.approx(2 - T90[1] * 0.1)
    # Four values of which two are independent.
    spread = math.sqrt((1 + 1 + 1 + 1) / 3)
    assert bounds([1.0, 3.0, 1.0, 3.0], 0.0, 0.9, 2).lo == pytest.approx(
        2 - T90[1] * spread / math.sqrt(2)
    )
    assert bounds([2.0], 0.0, 0.9, 1)[1:] == (-math.inf, math.inf)


def test_tasks_are_counted_not_samples() -> None:
    """Means of ln 2, ln 2 and 0 over tasks, however many samples each has."""
    pairs = {"a": [pair(1, 2)] * 8, "b": [pair(2, 4)], "c": [pair(3, 3), pair(1, 2), pair(2, 1)]}
    found = effect_size(pairs, 0.5, 0.9)
    assert (
        found.unit == "tasks"
        and found.num_pairs == 12
        and found.num_failed == found.num_unmeasured == 0
    )
    middle = 2 * math.log(2) / 3
    half = T90[2] * math.log(2) / 3  # standard deviation ln 2 / √3, over √3
    assert found.total is not None
    assert found.total == pytest.approx(
        (math.exp(middle), math.exp(middle - half), math.exp(middle + half))
    )
    assert found.tasks["b"].gain.value == pytest.approx(2) and found.tasks["b"].gain.lo == 0
    assert found.tasks["b"].control == pytest.approx(2) and found.tasks[
        "b"
    ].treatment == pytest.approx(4)


def test_a_single_task_is_counted_by_samples_and_says_so() -> None:
    found = effect_size({"a": [pair(1, 2), pair(1, 4)]}, 0.5, 0.9)
    assert found.unit == "samples" and found.total is not None
    half = T90[1] * math.log(2) / 2  # standard deviation ln 2 / √2, over √2
    assert found.total.lo == pytest.approx(math.exp(1.5 * math.log(2) - half))
    same = (heard(sharp(1), "slow"), heard(sharp(2), "fast"))
    assert effect_size({"a": [same] * 8}, 0.5, 0.9).total == (
        pytest.approx(2),
        0.0,
        math.inf,
    )  # one answer an arm: nothing bounds it


def test_failures_count_alike_in_both_arms() -> None:
    found = effect_size({"a": [(FAILED, heard(sharp(2))), (heard(sharp(2)), UNREAD)]}, 0.5, 0.9)
    assert (
        found.total is not None and found.total.value == pytest.approx(1) and found.num_pairs == 2
    )
    assert found.tasks["a"].control == found.tasks["a"].treatment == pytest.approx(1)  # √(0.5 · 2)


def test_what_is_left_out_is_counted() -> None:
    broken, untimed = heard(wrong(Status.BROKEN_TASK)), heard(ok(None))
    down = heard(None, finish="error", malformed="the backbone failed")
    fine, fooled = (
        heard(sharp(2)),
        heard(sharp(9).model_copy(update={"health": ("degenerate: …",)})),
    )
    found = effect_size(
        {
            "a": [
                (FAILED, UNREAD),
                (fine, broken),
                (untimed, fine),
                (fine, down),
                (down, FAILED),
                (fine, fooled),
            ]
        },
        0.5,
        0.9,
    )
    assert (found.num_pairs, found.num_failed, found.num_unmeasured) == (0, 1, 5)
    assert found.total is None and not found.tasks
    both = effect_size({"a": [(FAILED, UNREAD)], "b": [pair(1, 2), pair(1, 2)]}, 0.5, 0.9)
    assert set(both.tasks) == {"b"} and both.unit == "samples" and both.num_failed == 1


def test_the_judges_clock_is_part_of_the_error() -> None:
    """Three tasks whose gains agree exactly: what is left is how well each was timed."""
    timed = (heard(ok(1.0)), heard(ok(2.0)))  # each ± 2 % at 95 %
    found = effect_size({name: [timed] for name in "abc"}, 0.5, 0.9)
    sigma = math.log(1.02 / 0.98) / 3.92
    assert found.total is not None
    assert found.total.lo == pytest.approx(2 * math.exp(-T90[2] * math.sqrt(2 * sigma**2 / 3)))
