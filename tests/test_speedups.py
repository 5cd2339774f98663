"""Wording of a measured speedup, over a table of situations."""

from __future__ import annotations

import pytest

from dvk.harness.timing import claims
from dvk.records import Claim, Interval, Timing
from dvk.speedups import Outcome, headline, is_wide, round_down, shown, words

QUIET = (0.995, 1.001, 1.006)


def interval(lo: float, value: float, hi: float) -> Interval:
    return Interval(lo=lo, value=value, hi=hi)


def timing(speedup: Interval, claim: Claim | None = None) -> Timing:
    return Timing(
        candidate_ms=1.0,
        reference_ms=speedup.value,
        speedup=speedup,
        num_pairs=50,
        seconds=1.0,
        claim=claim,
    )


def claimed(
    speedup: tuple[float, float, float],
    control: tuple[float, float, float] = QUIET,
    *,
    holds: bool,
    margin: float = 0.02,
    processes: tuple[float, ...] = (),
) -> Timing:
    """A timing as a claim left it; the processes are its own middle unless they are given."""
    found = interval(*speedup)
    made = Claim(
        speedup=found,
        processes=processes or (found.value,) * 5,
        control=interval(*control),
        margin=margin,
        holds=holds,
    )
    return timing(found, made)


SITUATIONS: dict[str, tuple[Timing, Outcome, str, list[str], bool]] = {
    # timing, outcome, headline, words in the sentence, whether the machine was busy
    "narrow": (
        claimed((2.28, 2.31, 2.34), holds=True),
        "faster",
        "2.31×",
        ["2.31× faster than eager [2.28, 2.34]"],
        False,
    ),
    "wide": (
        claimed((10.7, 31.1, 90.0), holds=True),
        "faster",
        "at least 10×",
        ["at least 10× faster", "[10.7, 90.0] is wide"],
        False,
    ),
    "wide, noisy control": (
        claimed((10.7, 31.1, 90.0), (0.34, 0.83, 1.99), holds=True),
        "faster",
        "at least 10×",
        ["at least 10×"],
        True,
    ),
    "narrow, noisy control": (
        claimed((5.0, 5.5, 6.0), (0.7, 0.9, 1.2), holds=True),
        "faster",
        "5.50×",
        ["5.50×"],
        True,
    ),
    "slower": (
        claimed((0.90, 0.92, 0.94), holds=False),
        "slower",
        "0.92×",
        ["slower than eager", "0.90×", "0.94×"],
        False,
    ),
    "equal": (
        claimed((0.985, 1.003, 1.02), holds=False),
        "equal",
        "1.003×",
        ["no difference from eager that matters"],
        False,
    ),
    "one-sided, next to 1": (
        claimed((1.004, 1.02, 1.05), holds=False),
        "equal",
        "1.020×",
        ["1.004×", "1.05"],
        False,
    ),
    "one-sided, within the noise": (
        claimed((1.17, 1.36, 1.58), (0.93, 1.0, 1.08), holds=False, margin=0.231),
        "too_noisy",
        "1.36×",
        ["too noisy to tell", "between 1.17× and 1.58×", "above 1.23×"],
        False,
    ),
    "margin without sense": (
        claimed((0.036, 2.0, 60.0), (0.1, 1.0, 12.5), holds=False, margin=34.571),
        "too_noisy",
        "between 0.0360× and 60.0×",
        ["too noisy to tell"],
        True,
    ),
    "both sides of 1, wide": (
        claimed((0.51, 2.38, 11.06), holds=False),
        "too_noisy",
        "between 0.51× and 11.1×",
        ["too noisy"],
        False,
    ),
    "one process disagrees": (
        claimed((1.2, 1.4, 1.6), holds=False, processes=(1.5, 1.5, 0.98, 1.5)),
        "too_noisy",
        "1.40×",
        ["one of them saw 0.980×"],
        False,
    ),
    "not claimed, faster": (
        timing(interval(1.5, 1.6, 1.7)),
        "faster",
        "1.60×",
        ["1.60× faster"],
        False,
    ),
    "not claimed, open": (
        timing(interval(0.6, 0.9, 1.9)),
        "too_noisy",
        "between 0.60× and 1.90×",
        ["between 0.60× and 1.90×"],
        False,
    ),
    "without an interval": (
        timing(Interval.unknown(3.0)),
        "too_noisy",
        "3.00× (no interval)",
        ["without an interval"],
        False,
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_timing_in_words(situation: str) -> None:
    measured, outcome, figures, said, busy = SITUATIONS[situation]
    found = words(measured, pairs=50, seconds=1.0)
    assert (found.outcome, found.headline) == (outcome, figures)
    assert all(text in found.sentence for text in said), found.sentence
    assert "35.571" not in found.sentence and "does not exceed" not in found.sentence
    assert bool(found.noise) == busy and ("itself" in found.noise) == busy
    unsure = busy or outcome == "too_noisy" or situation == "wide"
    assert ("judge.claim_pairs=200" in found.hint and "judge.claim_s=4" in found.hint) == unsure


def test_the_rule_of_wide_intervals_and_rounding_down() -> None:
    assert (
        not is_wide(interval(1.0, 1.2, 1.5))
        and is_wide(interval(1.0, 1.2, 1.51))
        and is_wide(Interval.unknown(2.0))
    )
    assert [round_down(r) for r in (10.7, 2.99, 1.43, 1.087, 107.0, 99.9)] == [
        "10",
        "2.9",
        "1.4",
        "1.08",
        "100",
        "99",
    ]
    assert headline(interval(1.087, 2.0, 3.0)) == "at least 1.08×"
    assert [
        shown(i)
        for i in (
            interval(2.28, 2.31, 2.34),
            interval(10.7, 31.1, 90.0),
            interval(0.34, 0.83, 1.99),
            None,
        )
    ] == ["2.31× [2.28, 2.34]", "at least 10× [10.7, 90.0]", "unclear [0.34, 1.99]", "–"]


def test_why_a_claim_does_not_hold_names_no_bound_beyond_reach() -> None:
    wild = claims.claim([0.1, 40.0, 2.0, 0.5, 9.0], [0.1, 4.0, 0.9, 12.0, 1.0])
    assert (
        not wild.holds
        and wild.margin > 10
        and "noise is too large" in wild.why
        and f"{1 + wild.margin:.3f}" not in wild.why
    )
    small = claims.claim([1.021, 1.02, 1.022, 1.019, 1.02], [1.008, 0.99, 1.0, 1.01, 0.995])
    assert not small.holds and "too small for this noise" in small.why
    none = claims.claim([1.0, 1.01, 0.99, 1.002, 0.998], [1.0, 1.001, 0.999, 1.0, 1.0])
    assert not none.holds and "no difference shown" in none.why
