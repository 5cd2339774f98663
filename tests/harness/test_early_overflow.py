"""Values near overflow: elements that depend on the order of operations are not compared, the others are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.harness.checking.case import Case
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.nonfinite_spread import early
from tests.harness.problems import cases_of, judged, model

WELFORD = """mean, m2 = torch.zeros(32, 1), torch.zeros(32, 1)
        for k in range(64):
            d = x[:, k:k + 1] - mean
            mean = mean + d / (k + 1)
            m2 = m2 + d * (x[:, k:k + 1] - mean)
        return (x - mean) * torch.rsqrt(m2 / 64 + 1e-5)"""
"""As PyTorch's CUDA kernel orders it: the variance of a row of one huge value is 0, where a plain sum overflows."""
Function = Callable[..., torch.Tensor]


def two_passes(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    centred = x - x.sum(-1, keepdim=True) / x.shape[-1]
    return centred * torch.rsqrt((centred * centred).sum(-1, keepdim=True) / x.shape[-1] + 1e-5)


def one_pass(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    mean, square = (
        x.sum(-1, keepdim=True) / x.shape[-1],
        (x * x).sum(-1, keepdim=True) / x.shape[-1],
    )
    return (x - mean) * torch.rsqrt((square - mean * mean).clamp(min=0) + 1e-5)


def huge(cases: Cases, draws: int, whole_row: bool = False) -> list[Case]:
    """Cases of the family, from many draws; only those with a row of one value near overflow if asked."""
    key = next(key for key in cases.keys if key.family == "huge")
    found = [
        case for seed in range(draws) if (case := cases.get(replace(key, seed=seed))) is not None
    ]
    most = torch.finfo(torch.float32).max
    return [
        case
        for case in found
        if not whole_row or bool((case.inputs[0].abs() > most / 4).sum(-1).max() > 50)
    ]


def refused(cases: Cases, given: list[Case], function: Function) -> list[str]:
    return [text for case in given if (text := judged(cases, case, function).text) is not None]


@pytest.mark.slow
def test_a_sum_that_overflows_first_is_as_good_as_welford_s() -> None:
    cases = cases_of(model(WELFORD, "[torch.randn(32, 64)]"))
    rows = huge(cases, 24, whole_row=True)
    assert rows and any(
        bool(case.expected[0].same.isfinite().all())
        and not two_passes(nn.Module(), case.inputs[0]).isfinite().all()
        for case in rows
    )
    for function in (two_passes, one_pass, lambda m, x: F.layer_norm(x.double(), (64,)).float()):
        assert refused(cases, rows, function) == []


HONEST: dict[str, tuple[str, Any]] = {
    "layer norm": ("F.layer_norm(x, (64,))", two_passes),
    "softmax": (
        "x.softmax(-1)",
        lambda m, x: (
            (x - x.amax(-1, keepdim=True)).exp()
            / (x - x.amax(-1, keepdim=True)).exp().sum(-1)[:, None]
        ),
    ),
    "scaled": ("x / 8 * 2", lambda m, x: x * 2 * 0.125),
    "mean": ("x.mean(-1)", lambda m, x: (x / 64).sum(-1)),
    "normalized": (
        "F.normalize(x, dim=-1)",
        lambda m, x: x * torch.rsqrt((x * x).sum(-1, keepdim=True).clamp(min=1e-24)),
    ),
    "gelu": (
        "F.gelu(x, approximate='tanh')",
        lambda m, x: x / (1 + torch.exp(-1.5957691216 * x * (1 + 0.044715 * x * x))),
    ),
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.slow
def test_other_orders_of_operations_are_not_refused_near_overflow(name: str) -> None:
    forward, honest = HONEST[name]
    cases = cases_of(model(f"return {forward}", "[torch.randn(32, 64)]"))
    given = huge(cases, 12)
    assert given and refused(cases, given, honest) == []


@pytest.mark.parametrize(
    "forward",
    ["x.mean(-1)", "F.layer_norm(x, (64,))", "F.normalize(x, dim=-1)", "x / (1 + x.abs())"],
)
def test_what_drops_nan_is_refused_still(forward: str) -> None:
    cases = cases_of(model(f"return {forward}", "[torch.randn(32, 64)]"))
    found = [
        case for key in cases.keys if key.family == "nan" and (case := cases.get(key)) is not None
    ]
    assert found and all(case.expected[0].open is None for case in found)
    assert refused(cases, found, lambda m, x: m(x.nan_to_num(0.0)))


def test_what_is_near_overflow_depends_on_the_type() -> None:
    for dtype, large, squared in (
        (torch.float32, 1e37, 1e19),
        (torch.bfloat16, 1e37, 1e19),
        (torch.float16, 3e4, None),
    ):
        tensor = torch.tensor([1.0, -large, 300.0], dtype=dtype)
        assert early(tensor).tolist() == [1.0, -float("inf"), 300.0]
        if squared is not None:
            assert early(torch.tensor([squared], dtype=dtype)).isfinite().all()
            assert early(torch.tensor([squared], dtype=dtype), squared=True).isinf().all()
