"""fp16 and bf16 values that are only moved are moved unconverted; kernels that compute with them are unchanged."""

from __future__ import annotations

import math

import pytest
import torch

from dvk.composer.codegen.cpp.half_bits import as_bits, bits
from tests.composer.programs import Program, drop_in

SOURCE = """
import torch
from torch.nn import functional as F


class Model(torch.nn.Module):
    def forward(self, x, at):
        return {}
"""
MOVES = {
    "nearest": 'F.interpolate(x, scale_factor=2, mode="nearest")',
    "padded": "F.pad(x, (1, 2, 0, 1), value=0.1)",
    "joined": "torch.cat([x, x.flip(-1)], 1).repeat(1, 2, 1, 1)",
    "shuffled": "F.pixel_shuffle(x, 2)",
    "picked": "x[:, :, at]",
    "masked": "torch.where(x.transpose(2, 3) == x.transpose(2, 3), F.pad(x, (1, -1)), x)",
    "masked_by_another": "F.pad(x, (1, -1)).masked_fill(at[:, None] > 2, 0.1)",
}
COMPUTES = {"masked"}
"""A comparison reads the value."""


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", MOVES)
@pytest.mark.slow
def test_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    at = torch.tensor([3, 0, 5, 1, 2, 4])
    x = torch.randint(-(1 << 15), 1 << 15, (2, 4, 6, 6), dtype=torch.int16).view(
        dtype
    )  # every kind of NaN and subnormal
    module, model, candidate = drop_in(SOURCE.format(MOVES[name]), x, at)
    kernels = candidate.source.partition('extern "C" void')[2].partition("'''")[0]
    assert kernels and (name in COMPUTES) is ("h2f(" in kernels or "bf2f(" in kernels)
    with torch.no_grad():
        ours, theirs = module.ModelNew().eval()(x, at), model(x, at)
    assert ours.dtype == dtype
    if name in COMPUTES:
        return torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=0, atol=0)
    assert torch.equal(ours.view(torch.int16), theirs.view(torch.int16))


def test_a_place_that_does_not_exist_gives_nan() -> None:
    x, at = torch.randn(2, 4, 6, 6).half(), torch.tensor([3, 0])
    module, _, _ = drop_in(SOURCE.format(MOVES["picked"]), x, at)
    with torch.no_grad():
        ours = module.ModelNew().eval()(x, torch.tensor([3, 9]))
    assert torch.equal(ours[:, :, 0], x[:, :, 3]) and ours[:, :, 1].isnan().all()


def test_computing_and_other_types_are_left_alone() -> None:
    x = torch.randn(4, 8)
    for function, arg in (
        (lambda x: x.t() * 1, x.half()),
        (lambda x: x.float().t().contiguous(), x.half()),
        (lambda x: torch.cat([x, x.relu()]), x.bfloat16()),
        (lambda x: torch.cat([x, x]), x),
    ):
        (made,) = Program(function, arg).kernels
        assert as_bits(made) is made


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_are_rounded_as_torch_rounds_them(dtype: torch.dtype) -> None:
    for value in (0.0, -0.0, 0.1, -1.5, 65519.0, 65520.0, -1e9, 1e-8, math.inf, -math.inf, 3.4e38):
        assert (
            bits(value, str(dtype).removeprefix("torch."))
            == torch.tensor(value, dtype=dtype).view(torch.int16).item()
        ), value
    assert (
        torch.tensor(bits(math.nan, str(dtype).removeprefix("torch.")), dtype=torch.int16)
        .view(dtype)
        .isnan()
    )
