"""Parts of the reward, on verdicts made by hand."""

from __future__ import annotations

import inspect
import math

import pytest

from dvk.config import RewardsConfig
from dvk.errors import UsageError
from dvk.records import Interval, Status, Timing, Turn, Verdict
from dvk.registry import resolve
from dvk.rewards import TERMS, rewarded

SETTINGS = RewardsConfig()


def turn(
    lo: float | None = None,
    value: float | None = None,
    *,
    status: Status = Status.OK,
    coverage: float | None = None,
    compiled: float | None = None,
    floor_ms: float | None = None,
    malformed: str | None = None,
) -> Turn:
    if malformed is not None:
        return Turn(malformed=malformed)
    timing = None
    if lo is not None:
        middle = value if value is not None else lo
        baselines = (
            {"compile": Interval(value=compiled, lo=compiled, hi=compiled)}
            if compiled is not None
            else {}
        )
        timing = Timing(
            candidate_ms=2.0,
            reference_ms=2.0 * middle,
            speedup=Interval(value=middle, lo=lo, hi=middle),
            baselines=baselines,
            num_pairs=9,
            seconds=0.1,
            floor_ms=floor_ms,
        )
    right = status is Status.OK
    return Turn(
        verdict=Verdict(
            status=status,
            tier="search" if timing or not right else "smoke",
            stage="done",
            timing=timing,
            error=None if right else "wrong",
            coverage=coverage,
        )
    )


def part(name: str, of: Turn, settings: RewardsConfig = SETTINGS) -> float | None:
    found: float | None = resolve(name, TERMS, "reward term")(of, settings)
    return found


WRONG = turn(status=Status.MISMATCH)


@pytest.mark.parametrize("name", TERMS)
def test_every_part_is_nothing_for_nothing(name: str) -> None:
    term = resolve(name, TERMS, "reward term")
    assert list(inspect.signature(term).parameters) == ["turn", "settings"] and term.__doc__
    assert not part(name, WRONG) and not (part(name, Turn()) or 0) > 0
    cheat = part(name, turn(status=Status.CHEAT))
    assert not cheat


def test_noise_earns_nothing_and_the_cap_holds() -> None:
    assert part("speedup", turn(1.5, 2.5)) == 1.5, "the lower end"
    assert part("speedup", turn(40.0)) == 6.0
    assert part("kevin", turn(1.5, 2.5)) == pytest.approx(2.8)


def test_milestones_ask_for_a_margin() -> None:
    turns = (
        turn(1.04),
        turn(1.06),
        turn(1.06, compiled=1.02),
        turn(1.06, compiled=1.05),
        turn(1.0, compiled=2.0),
    )
    assert [part("milestones", t) for t in turns] == pytest.approx(
        [1 / 3, 2 / 3, 2 / 3, 1.0, 1 / 3]
    )


def test_roofline_and_coverage_are_silent_where_unmeasured() -> None:
    assert part("roofline", turn(2.0, floor_ms=1.0)) == 0.5 and part("roofline", turn(2.0)) is None
    assert part("coverage", turn(2.0, coverage=0.7)) == 0.7 and part("coverage", turn(2.0)) is None


def test_an_unparsable_answer_costs_reward() -> None:
    unread = turn(malformed="no code")
    assert (
        part("format", unread) == -1.0
        and part("format", unread.model_copy(update={"finish": "error"})) == 0.0
    )


def test_the_sum_is_kept_with_its_parts() -> None:
    found = rewarded(turn(2.0, coverage=0.5), SETTINGS)
    assert found.reward_terms == {
        "correctness": 1.0,
        "speedup": 2.0,
        "coverage": 0.5,
        "format": 0.0,
    }
    assert found.reward == 0.5 + 1.0 + 0.25
    assert rewarded(turn(malformed="no code"), SETTINGS).reward == pytest.approx(-0.2)
    with pytest.raises(UsageError, match="reward term"):
        rewarded(WRONG, RewardsConfig(weights={"charm": 1.0}))


def test_the_logarithm_counts_ratios_and_no_wrong_answer() -> None:
    slow, fast, wrong = turn(1.0), turn(2.0), turn(status=Status.MISMATCH)
    logs = [part("log_speedup", one) for one in (slow, fast, wrong)]
    assert logs[1] - logs[0] == pytest.approx(math.log(2)) and logs[2] == 0.0
    assert part("log_speedup", turn(0.01)) == 0.0, "as bad as a wrong one"
    assert part("log_speedup", turn(malformed="x")) == 0.0
