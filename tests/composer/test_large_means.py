"""Norms of rows whose mean is much larger than their spread: as close to real arithmetic as PyTorch's, under every schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.composer.programs import Program, compiled
from tests.composer.special_options import options

Norm = Callable[[torch.Tensor], Any]
NORMS: dict[str, Norm] = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "layer_norm of computed values": lambda x: F.layer_norm(x * 1.5, x.shape[1:]),
    "group_norm": lambda x: F.group_norm(x[:, :, None], 1),
    "instance_norm": lambda x: F.instance_norm(x[:, None]),
    "by hand": lambda x: (
        (x - x.mean(1, keepdim=True))
        / torch.sqrt((x - x.mean(1, keepdim=True)).square().mean(1, keepdim=True) + 1e-5)
    ),
    "down columns": lambda x: F.layer_norm(x.t(), (len(x),)),
    "over channels": lambda x: (lambda c: c * torch.rsqrt(c.square().mean(0, keepdim=True) + 1e-5))(
        x - x.mean(0, keepdim=True)
    ),
}


def worst(norm: Norm, shape: tuple[int, int]) -> dict[str, str]:
    """Inputs for which a schedule is further from float64 than eager, beyond half a unit in the last place of the mean."""
    first = Program(norm, torch.randn(shape))
    assert first.kernels
    count = max(len(options(k)) for k in first.kernels)
    programs = [
        first.under(lambda k, n=n: options(k)[min(n, len(options(k)) - 1)]) for n in range(count)
    ]
    compiled(programs)
    given = {
        f"mean {mean:g}": (torch.randn(shape) + mean, mean * 2.0**-24)
        for mean in (1e2, 1e3, 1e4, 1e5, 1e6)
    }
    given |= {
        f"{value} alone": (torch.full(shape, value), 0.0)
        for value in (3.3, 1234.567, 100000.3, -7e8)
    }
    found = {}
    for name, (x, unit) in given.items():
        truth = norm(x.double())
        eager = (norm(x) - truth).abs().max()
        for program in programs:
            error = (program.run(x) - truth).abs().max()
            if not error <= 1.2 * eager + unit + 2e-6:
                found[name] = (
                    f"{error:.1e} instead of {eager:.1e} under {list(program.schedules.values())}"
                )
    return found


@pytest.mark.parametrize("name", ["layer_norm", "down columns"])
def test_a_large_mean_costs_no_more_digits_than_in_pytorch(name: str) -> None:
    torch.manual_seed(0)
    assert worst(NORMS[name], (6, 768) if name == "layer_norm" else (768, 6)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("length", [37, 4096, 65536])
@pytest.mark.parametrize("name", NORMS)
def test_large_means_of_every_norm(name: str, length: int) -> None:
    torch.manual_seed(0)
    assert (
        worst(
            NORMS[name], (length, 6) if name in ("down columns", "over channels") else (6, length)
        )
        == {}
    )


def test_the_sum_itself_is_still_the_sum() -> None:
    x = torch.randn(5, 300) + 1000
    x[1, 0], x[2, 0], x[3, 7], x[4, 0] = torch.inf, torch.nan, -torch.inf, 3e38
    program = Program(lambda x: (x.sum(1), x.mean(1), x - x.mean(1, keepdim=True)), x)
    for got, want in zip(program.run(), program.eager(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=3e-4, equal_nan=True)
