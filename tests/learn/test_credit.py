"""Credit by hand: every number here was worked out on paper."""

from __future__ import annotations

import math

import pytest

from dvk.learn import credit
from dvk.registry import resolve


def test_returns_look_forward() -> None:
    assert credit.returns([1.0, 0.0, 2.0], 1.0) == [3.0, 2.0, 2.0]
    assert credit.returns([1.0, 0.0, 2.0], 0.5) == [1.5, 1.0, 2.0]
    assert credit.returns([], 0.5) == []


def test_leave_one_out_is_a_value_less_the_mean_of_the_others() -> None:
    assert credit.leave_one_out([1.0, 2.0, 6.0]) == [-3.0, -1.5, 4.5]
    assert credit.leave_one_out([5.0]) == [0.0], "no peers"
    values = [0.5, 3.25, -1.0, 2.0]
    scaled = [4 / 3 * (v - sum(values) / 4) for v in values]
    assert credit.leave_one_out(values) == pytest.approx(scaled), "N/(N-1) (G - mean)"


def test_the_other_advantages() -> None:
    assert credit.grpo([1.0, 3.0]) == [-1.0, 1.0] and credit.grpo([2.0, 2.0]) == [0.0, 0.0]
    assert credit.reinforce([1.0, 3.0]) == [1.0, 3.0]
    for name in credit.ADVANTAGES:
        assert len(resolve(name, credit.ADVANTAGES, "advantage")([1.0, 2.0, 4.0])) == 3


def test_peer_groups_follow_the_keys() -> None:
    values = {
        ("a", 0, 0): 1.0,
        ("a", 1, 0): 3.0,
        ("a", 0, 1): 10.0,
        ("a", 1, 1): 20.0,
        ("b", 0, 0): 7.0,
    }
    peers = {key: (key[0], key[2]) for key in values if key[0] != "b"}
    found = credit.over_peers(values, peers, credit.leave_one_out)
    assert found == {("a", 0, 0): -2.0, ("a", 1, 0): 2.0, ("a", 0, 1): -10.0, ("a", 1, 1): 10.0}


def test_scales_and_what_says_nothing() -> None:
    assert credit.scale_by_mean_abs([-3.0, 1.0]) == [-1.5, 0.5] and credit.scale_by_mean_abs(
        [0.0, 0.0]
    ) == [0.0, 0.0]
    assert (
        credit.has_no_spread([1.0])
        and credit.has_no_spread([2.0, 2.0, 2.0005])
        and not credit.has_no_spread([2.0, 2.1])
    )
    assert credit.void_mask([0.0, 1.5, 0.0, 2.0, -0.2]) == [False, False, True, False, True]


def test_a_selection_is_compared_with_the_null_scheme_and_the_others() -> None:
    assert credit.worth([[0.0, 2.0, 1.0], [0.5]]) == 1.25, (
        "mean over conversations of the best turn"
    )
    a, b = frozenset({"a"}), frozenset({"b"})
    # a: 3 - (1 + 2)/2; b: 1 - (3 + 2)/2
    assert credit.selections([(a, 3.0), (b, 1.0)], null=2.0) == [1.5, -1.5]
    # Chosen twice, one choice: (3 + 5)/2 = 4 against b and null.
    assert credit.selections([(a, 3.0), (a, 5.0), (b, 1.0)], null=2.0) == [2.5, 2.5, -2.0]
    assert credit.selections([(a, 3.0), (a, 5.0)], null=2.0) == [2.0, 2.0]
    assert credit.selections([(a, 3.0)], null=None) == [0.0]


def test_profiling_rejection() -> None:
    kept = [credit.coverage_mask(c, 0.5) for c in (0.29, 0.34, 0.36, 0.4, 1.0, None)]
    assert kept == [False, False, True, True, True, True]
    assert not credit.coverage_mask(0.3, 0.0) and credit.coverage_mask(0.4, 0.999)


def test_mismatch_rejection_widens_for_short_answers() -> None:
    assert credit.band(900, 0.001, 0.01) == pytest.approx(0.001) and credit.band(
        9, 0.001, 0.01
    ) == pytest.approx(0.01)
    sampler = [-1.0] * 9
    assert credit.mismatch_mask([-1.009] * 9, sampler, 0.001, 0.01, 1e-4)
    assert not credit.mismatch_mask([-1.011] * 9, sampler, 0.001, 0.01, 1e-4)
    assert not credit.mismatch_mask(
        [-1.0] * 8 + [-1.0 + math.log(0.9e-4)], sampler, 100.0, 0.0, 1e-4
    ), "one impossible token"
    assert not credit.mismatch_mask([math.nan] * 9, sampler, 100.0, 0.0, 1e-4)
    assert credit.mismatch_mask([-3.0], (), 0.001, 0.0, 1e-4), (
        "a sampler that tells nothing cannot be held to it"
    )
    assert credit.corrections([-1.0, -1.0], [-2.0, -1.0], 2.0) == [2.0, 1.0]
