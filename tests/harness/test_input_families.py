"""Kinds of inputs: what changes, what must not, and that equal seeds give equal values."""

from __future__ import annotations

import pytest
import torch

from dvk.harness.checking.compare import same_bits
from dvk.harness.checking.input_domains import Domain
from dvk.harness.checking.input_families import (
    ARGUED,
    FACTOR,
    FAMILIES,
    LARGEST_HALF,
    MOST_STRAYS,
    NONFINITE,
    STRAYS,
    derive,
    kind_of,
)
from dvk.harness.checking.rounding_noise import with_low_bits_cleared
from tests.harness.problems import cases_of, made, model

ANY = Domain()


def derived(
    family: str, tensor: torch.Tensor, keep_sign: bool = False, seed: int = 3, domain: Domain = ANY
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return derive(family, tensor, kind_of(tensor, domain), generator, keep_sign)


def rows(shape: tuple[int, ...] = (64, 96)) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


DERIVED = [family for family in FAMILIES if family not in ARGUED]
"""From the floating values of a native draw."""
SIGNED = rows()
POSITIVE = SIGNED.abs()


@pytest.mark.parametrize("family", DERIVED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_dtype_shape_strides_and_finiteness_stay(family: str, dtype: torch.dtype) -> None:
    native = SIGNED.to(dtype).t()
    made_ = derived(family, native)
    assert (made_.dtype, made_.shape, made_.stride()) == (
        native.dtype,
        native.shape,
        native.stride(),
    )
    assert bool(made_.isfinite().all()) is (family not in ("nan", "infinite")) and not torch.equal(
        made_, native
    )
    assert same_bits(made_, derived(family, native)), "equal seeds, equal values"
    if family not in ("large", "small"):
        assert not torch.equal(made_, derived(family, native, seed=4))


@pytest.mark.parametrize("family", [f for f in DERIVED if f not in ("zero_mean", STRAYS)])
def test_what_is_never_negative_stays_so(family: str) -> None:
    assert float(derived(family, POSITIVE).nan_to_num(nan=0).min()) >= 0
    assert (derived(family, POSITIVE, keep_sign=True) is POSITIVE) is (family not in NONFINITE)


def test_strays_are_few_and_of_other_sizes() -> None:
    made_ = [derived(STRAYS, POSITIVE, seed=seed) for seed in range(40)]
    counts = [int((m != POSITIVE).sum()) for m in made_]
    assert 1 <= min(counts) and max(counts) <= MOST_STRAYS and len(set(counts)) > 2
    assert any(float(m.min()) < 0 for m in made_) and max(
        float(m.max()) for m in made_
    ) > 100 * float(POSITIVE.max())
    assert all(
        float(derived(STRAYS, POSITIVE, keep_sign=True, seed=seed).min()) >= 0 for seed in range(40)
    )


def test_rows_of_one_value_are_in_no_order() -> None:
    constant = torch.rand((64, 1), generator=torch.Generator().manual_seed(1)).repeat(1, 32)
    assert kind_of(constant, ANY) == "positive"
    assert kind_of(POSITIVE.cumsum(-1), ANY) == "fixed"


def test_zero_mean_has_the_native_size() -> None:
    made_ = derived("zero_mean", POSITIVE)
    assert abs(float(made_.mean())) < 0.05
    assert float(made_.square().mean()) == pytest.approx(float(POSITIVE.square().mean()), rel=0.1)


def test_integers_are_exact_in_every_format() -> None:
    assert set(derived("integers", SIGNED).unique().tolist()) == {-1, 0, 1}
    assert set(derived("integers", POSITIVE).unique().tolist()) == {0, 1}
    assert torch.equal(
        with_low_bits_cleared(derived("integers", SIGNED), 2), derived("integers", SIGNED)
    )


def test_scales() -> None:
    assert torch.equal(derived("large", SIGNED), SIGNED * FACTOR)
    assert torch.equal(derived("small", SIGNED), SIGNED / FACTOR)
    assert float(derived("large", SIGNED.half() * 100).abs().max()) <= LARGEST_HALF * 1.001


def test_one_value_of_a_row_dominates_sometimes_the_last() -> None:
    made_ = derived("heavy_tail", rows((400, 96)))
    place = made_.abs().argmax(1)
    share = made_.abs().amax(1) / made_.abs().kthvalue(95, 1)[0]
    assert float(share.min()) > 50
    assert 0.15 < float((place == 95).float().mean()) < 0.4 and len(place.unique()) > 60


def test_some_rows_are_constant_some_zero_and_some_native() -> None:
    native = rows((400, 96))
    made_ = derived("constant_rows", native)
    constant = (made_ == made_[:, :1]).all(1)
    zero = (made_ == 0).all(1)
    untouched = (made_ == native).all(1)
    assert bool((constant ^ untouched).all())
    assert all(0.15 < float(share.float().mean()) for share in (zero, constant & ~zero, untouched))


FIXED = {
    "integers": torch.randint(0, 9, (64,)),
    "mask": torch.rand(64, 64) < 0.5,
    "labels": torch.randint(0, 2, (640,)).float() * 2 - 1,
    "float indices": torch.randint(0, 1000, (640,)).float(),
    "one number": torch.tensor(0.07),
    "additive mask": torch.where(torch.rand(64, 64) < 0.3, float("-inf"), torch.randn(64, 64)),
    "probabilities": torch.randn(64, 20).softmax(-1),
    "probabilities over channels": torch.randn(8, 20, 5, 5).softmax(1),
    "boundaries": torch.linspace(-1, 1, 33),
    "expanded": torch.randn(64, 1).expand(64, 8),
    "ones": torch.ones(64, 64),
}


@pytest.mark.parametrize("name", FIXED)
def test_what_would_lose_its_meaning_is_left_alone(name: str) -> None:
    for family in DERIVED:
        assert derived(family, FIXED[name]) is FIXED[name]


def test_structure_stays() -> None:
    square = rows((48, 48))
    symmetric = square + square.t()
    for family in DERIVED:
        assert same_bits(derived(family, symmetric), derived(family, symmetric).t()), family
        assert same_bits(derived(family, square.triu()), derived(family, square.triu()).triu()), (
            family
        )


def test_demanding_operators_keep_inputs_in_their_domain() -> None:
    """On a GPU a probability above one, or an index beyond the end, would end the process."""
    unit = torch.rand(64, 30)
    for family in DERIVED:
        within = derived(family, unit, domain=Domain(probabilities=True))
        assert 0 <= float(within.min()) and float(within.max()) <= 1, family
        assert derived(family, SIGNED * 100, domain=Domain(indices=True)) is not None
        assert torch.equal(
            derived(family, SIGNED * 100, domain=Domain(indices=True)), SIGNED * 100
        ), family
    cases = cases_of(
        model(
            "return F.binary_cross_entropy(x, y)",
            "[torch.rand(64, 30), torch.rand(64, 30)]",
            arguments="x, y",
        )
    )
    assert {case.key.family for case in made(cases)} == {
        "native",
        "integers",
        "strays",
        "small",
        "constant_rows",
    }
    cases = cases_of(
        model(
            "return self.e[x.long()]",
            "[torch.rand(64) * 99]",
            "self.e = nn.Parameter(torch.randn(100, 8))",
        )
    )
    assert {case.key.family for case in made(cases)} == {"native", *ARGUED}, "in other places"
    assert set(cases.skipped) == {*DERIVED, "other mode"}
