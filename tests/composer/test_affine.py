"""Index arithmetic: everything symbolic is compared with plain integers."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from dvk.composer.ir.affine import (
    Affine,
    Var,
    contiguous_strides,
    delinearize,
    linearize,
    radix,
    refine,
)


def value(expression: Affine, at: dict[Var, int]) -> int:
    return expression.const + sum(c * at[v] for v, c in expression.terms)


def points(variables: list[Var]) -> list[dict[Var, int]]:
    return [dict(zip(variables, p)) for p in itertools.product(*(range(v.size) for v in variables))]


def row_major(variables: list[Var]) -> Affine:
    return linearize(
        tuple(Affine.of(v) for v in variables), contiguous_strides(v.size for v in variables)
    )


def test_terms_that_cannot_change_the_value_are_dropped() -> None:
    one, many = Var(1), Var(4)
    assert Affine.build({one: 7, many: 0}, 3) == Affine((), 3)


def test_equal_sums_are_equal_in_any_order() -> None:
    a, b = Var(3), Var(5)
    assert Affine.of(a).scale(5) + Affine.of(b) == Affine.of(b) + Affine.of(a).scale(5)
    assert Affine.of(a) + Affine.of(a).scale(-1) == Affine()


def test_variables_of_one_size_are_different() -> None:
    assert Affine.of(Var(4)) != Affine.of(Var(4))


@pytest.mark.parametrize("seed", range(30))
def test_divmod_is_exact_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    variables = [Var(rng.randint(2, 4)) for _ in range(3)]
    expression = Affine.build(
        {v: rng.choice([-3, 1, 2, 4, 6, 12]) for v in variables}, rng.randint(-4, 12)
    )
    divisor = rng.choice([2, 3, 4, 12])
    split = expression.divmod_by(divisor)
    for at in points(variables) if split else []:
        assert (value(split[0], at), value(split[1], at)) == divmod(value(expression, at), divisor)


def test_divmod_inverts_a_reshape() -> None:
    a, b = Var(6), Var(8)
    split = row_major([a, b]).divmod_by(8)
    assert split == (Affine.of(a), Affine.of(b))
    assert row_major([a, b]).divmod_by(3) is None


def test_span_holds_every_value_and_is_tight() -> None:
    a, b = Var(3), Var(4)
    expression = Affine.build({a: -2, b: 5}, 1)
    values = [value(expression, at) for at in points([a, b])]
    assert expression.span() == (min(values), max(values))


def test_substitute_puts_expressions_in() -> None:
    a, x, y = Var(12), Var(3), Var(4)
    inner = Affine.build({x: 4, y: 1})
    expression = Affine.of(a).scale(2).shift(5).substitute({a: inner})
    for at in points([x, y]):
        assert value(expression, at) == 2 * value(inner, at) + 5


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (4, 1, 3), (2, 3, 4)])
def test_delinearize_undoes_linearize(shape: tuple[int, ...]) -> None:
    index = tuple(Affine.of(Var(s)) for s in shape)
    assert delinearize(linearize(index, contiguous_strides(shape)), shape) == index


def test_delinearize_refuses_a_shape_that_does_not_divide() -> None:
    assert delinearize(row_major([Var(4), Var(3)]), (2, 6)) is None
    assert delinearize(row_major([Var(4), Var(3)]), (12,)) is not None


def test_radix_knows_dense_enumerations() -> None:
    a, b, c = Var(2), Var(3), Var(4)
    assert radix(row_major([a, b, c])) == [a, b, c]
    assert radix(Affine()) == []
    assert radix(row_major([a, b]).shift(1)) is None
    assert radix(Affine.of(a).scale(2)) is None
    assert radix(Affine.build({a: 6, b: 1})) is None


def test_contiguous_strides_of_empty_dimensions_stay_positive() -> None:
    assert contiguous_strides((2, 0, 3)) == (3, 3, 1)


FACTORS = [
    ([12], [3, 4]),
    ([3, 4], [12]),
    ([2, 3, 4], [6, 4]),
    ([6, 4], [2, 3, 4]),
    ([2, 12], [8, 3]),
    ([4, 6], [2, 2, 2, 3]),
    ([], []),
    ([24], [2, 3, 4]),
    ([5, 7], [5, 7]),
]


@pytest.mark.parametrize("left,right", FACTORS)
def test_refine_keeps_both_enumerations(left: list[int], right: list[int]) -> None:
    a, b = [Var(s) for s in left], [Var(s) for s in right]
    found = refine(a, b)
    assert found is not None
    common, from_left, from_right = found
    assert math.prod(v.size for v in common) == math.prod(left)
    assert (
        row_major(a).substitute(from_left)
        == row_major(common)
        == row_major(b).substitute(from_right)
    )


@pytest.mark.parametrize(
    "left,right", [([4, 3], [6, 2]), ([12], [5]), ([2, 3], [6, 2]), ([3, 2], [2, 3]), ([4], [])]
)
def test_refine_refuses_factors_that_do_not_nest(left: list[int], right: list[int]) -> None:
    assert refine([Var(s) for s in left], [Var(s) for s in right]) is None


def test_refine_keeps_variables_that_both_sides_already_share() -> None:
    shared = Var(4)
    found = refine([Var(3), shared], [Var(3), shared])
    assert (
        found is not None
        and found[0][-1] is shared
        and shared not in found[1]
        and shared not in found[2]
    )
