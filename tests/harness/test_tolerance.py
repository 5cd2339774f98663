"""Precision classes: each admits its own arithmetic in another order and refuses the next coarser one."""

from __future__ import annotations

import pytest
import torch

from dvk.harness.compare import Expected, same_bits, values, worst_ratio
from dvk.harness.tolerance import admitted


def expected(truth: torch.Tensor, precision: str, dtype: torch.dtype = torch.float32) -> Expected:
    limits = admitted(precision, {str(dtype).removeprefix("torch.")})
    same = truth.to(dtype)
    rms = float(truth.square().mean().sqrt())
    own = worst_ratio(same, truth, rms, limits.ceiling) * limits.ceiling
    return Expected("y", same, truth, rms, limits.tolerance(own), True)


@pytest.fixture(scope="module")
def product():
    torch.manual_seed(0)
    a, b = torch.randn(128, 2048, dtype=torch.float64), torch.randn(2048, 64, dtype=torch.float64)
    a, b = a.float().double(), b.float().double()
    return a, b, a @ b


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Rounded to ten bits of mantissa, as tensor cores do."""
    bits = x.float().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def test_fp32_admits_fp32_in_any_order_and_refuses_tf32(product):
    a, b, truth = product
    want = expected(truth, "fp32")
    assert want.tolerance <= 1e-4
    split = sum(a.float()[:, i::8] @ b.float()[i::8] for i in range(8))
    assert values(split, want)[1] is None
    assert values(tf32(a) @ tf32(b), want)[1] is not None
    assert values(a.half().float() @ b.half().float(), want)[1] is not None


def test_tf32_admits_tf32_and_refuses_bfloat16(product):
    a, b, truth = product
    want = expected(truth, "tf32")
    assert want.tolerance == 2e-3
    assert values(tf32(a) @ tf32(b), want)[1] is None
    assert values(a.bfloat16().float() @ b.bfloat16().float(), want)[1] is not None


@pytest.mark.parametrize(("dtype", "coarser"), [(torch.float16, torch.bfloat16), (torch.bfloat16, None)])
def test_half_admits_its_own_rounding(product, dtype, coarser):
    _, _, truth = product
    want = expected(truth, "half", dtype)
    assert values(truth.float().to(dtype), want)[1] is None
    assert values((truth * 1.2).to(dtype), want)[1] is not None
    if coarser is not None:
        assert values(truth.to(coarser).to(dtype), want)[1] is not None


def test_fp64_refuses_fp32(product):
    _, _, truth = product
    want = expected(truth, "fp64", torch.float64)
    assert values(truth + 0, want)[1] is None
    assert values(truth.float().double(), want)[1] is not None


def test_a_reference_that_is_itself_inexact_widens_the_tolerance_up_to_the_ceiling():
    limits = admitted("fp32", {"float32"})
    assert limits.tolerance(0.0) == limits.tolerance(float("nan")) == limits.floor == 1e-5
    assert limits.tolerance(1e-5) == pytest.approx(4e-5)
    assert limits.tolerance(1.0) == limits.ceiling == 1e-4


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_one_bad_element_among_many_is_found(bad):
    truth = torch.randn(300_001, dtype=torch.float64)
    want = expected(truth, "fp32")
    got = truth.float()
    got[299_999] = bad
    _, difference = values(got, want)
    assert difference is not None and "[299999]" in difference.text and difference.count == 1


def test_zeros_agree_with_zeros_only():
    want = Expected("y", torch.zeros(8), torch.zeros(8), 1e-30, 1e-5, True)
    assert values(torch.zeros(8), want) == (0.0, None)
    assert values(torch.full((8,), 1e-20), want)[1] is not None


def test_same_bits_knows_nan_and_dtype():
    x = torch.tensor([1.0, float("nan")])
    assert same_bits(x, x.clone())
    assert not same_bits(x, torch.tensor([1.0, 2.0]))
    assert not same_bits(x, x.double())


def test_complex_outputs_are_compared_in_both_parts():
    truth = torch.randn(64, dtype=torch.complex128)
    want = Expected("y", truth.to(torch.complex64), truth, 1.0, 1e-5, True)
    assert values(truth.to(torch.complex64), want)[1] is None
    assert values(truth.real.to(torch.complex64), want)[1] is not None
