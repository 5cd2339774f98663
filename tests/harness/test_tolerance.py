"""Admitted errors of a precision class, given the reference's error and that of the next coarser format."""

from __future__ import annotations

import pytest

from dvk.harness.checking.tolerance import (
    APART,
    MOST_BY_LUCK,
    MULTIPLE,
    UNKNOWN,
    Errors,
    Sums,
    class_of,
    separation,
)

FP32 = class_of("fp32", {"float32"})


def typical(own: float, lower: float = float("nan"), sums: Sums | None = None) -> float:
    return FP32.tolerance(Errors(own, own), Errors(lower, lower), sums or Sums()).typical


def test_a_separated_class_gives_both_sides_equal_room() -> None:
    own, lower = 2e-7, 2e-4
    admitted = typical(own, lower)
    assert admitted / own == pytest.approx(lower / admitted)
    assert separation(Errors(admitted, 1.0), Errors(own, 1.0), Errors(lower, 1.0)) == pytest.approx(
        (lower / own) ** 0.5
    )


def test_a_class_that_is_not_separated_gives_the_honest_side_room() -> None:
    own = 1e-6
    assert typical(own, 0.9 * APART * own) == pytest.approx(MULTIPLE * own)
    assert (
        separation(Errors(typical(own, 2 * own), 1.0), Errors(own, 1.0), Errors(2 * own, 1.0)) < 1
    )


def test_floors_defaults_and_ceilings() -> None:
    for precision in ("fp64", "fp32", "tf32", "half"):
        found = class_of(precision, {"float16"})
        assert found.tolerance(Errors(0.0, 0.0), UNKNOWN, Sums()) == found.floor
        assert found.tolerance(UNKNOWN, UNKNOWN, Sums()) == found.default
        worst = MOST_BY_LUCK if precision in ("tf32", "half") else found.ceiling.worst
        assert found.tolerance(Errors(1.0, 1.0), UNKNOWN, Sums()) == Errors(
            found.ceiling.typical, worst
        )
        assert found.floor.within(found.default) and found.default.within(found.ceiling)
        assert found.ceiling.worst < found.cap
    assert class_of("exact", {"int64"}).ceiling == Errors(0.0, 0.0)


def test_classes_do_not_overlap() -> None:
    """fp32's largest admitted error is less than half of TF32's on zero-mean products (2e-4), and so on down."""
    assert FP32.ceiling.typical < 1e-4
    assert class_of("fp64", set()).ceiling.typical < 1e-7
    assert class_of("tf32", set()).ceiling.typical < 1.4e-3


def test_half_takes_the_coarser_type_it_sees() -> None:
    fine, coarse = (
        class_of("half", {"float16", "float32"}),
        class_of("half", {"float16", "bfloat16"}),
    )
    assert coarse.floor.typical == 8 * fine.floor.typical
    assert (fine.lower_bits, coarse.lower_bits) == (8, 4)
    assert class_of("half", {"float32"}) == coarse, "where only intermediate values are narrow"


def test_long_sums_widen_the_floor_but_not_beyond_the_impostor() -> None:
    assert typical(0.0, sums=Sums(terms=64)) == FP32.floor.typical
    assert 4e-6 < typical(0.0, sums=Sums(terms=2.0**15)) < 1e-5
    assert typical(0.0, sums=Sums(terms=2.0**40)) < FP32.ceiling.typical
    assert typical(0.0, 3e-5, Sums(terms=2.0**20)) == pytest.approx(6e-6), (
        "a fifth of what the coarser format makes"
    )


def test_equal_terms_do_not_cancel() -> None:
    assert typical(0.0, sums=Sums(terms=2.0**13, equal_terms=True)) > 10 * typical(
        0.0, sums=Sums(terms=2.0**13)
    )


def test_a_single_number_has_no_mean_to_hide_in() -> None:
    assert typical(0.0, sums=Sums(elements=1)) > 2 * typical(0.0)


@pytest.mark.parametrize("bad", [Errors(float("nan"), 0.0), Errors(0.0, float("nan")), UNKNOWN])
def test_nan_is_never_within(bad: Errors) -> None:
    assert not bad.within(Errors(float("inf"), float("inf")))
