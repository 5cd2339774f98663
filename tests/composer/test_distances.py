"""Tables of Euclidean distances: a product, and one kernel behind it that adds the norms and does what follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dvk.composer.rewrites import distances
from tests.composer.programs import Program, capture

LEFT, RIGHT, BATCH = torch.randn(30, 8), torch.randn(27, 8), torch.randn(3, 1, 40, 8)
LEFT[3, 2], RIGHT[5, 1], RIGHT[6, 0] = float("nan"), float("inf"), -float("inf")
SOUND = torch.randn(28, 6)


def farthest(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y).masked_fill(x[:, :1] > y[:, 0], 0.0).amax(dim=1)


TABLES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], int]] = {
    "two sets": (torch.cdist, (LEFT, RIGHT), 3),
    "with itself": (lambda x: torch.cdist(x, x), (SOUND,), 2),
    "what follows": (farthest, (LEFT.nan_to_num(), RIGHT.nan_to_num(0, 1, 1)), 3),
    "batches": (torch.cdist, (BATCH, torch.randn(2, 5, 8)), 3),
    "turned": (lambda x, y: torch.cdist(x.t(), y.t()), (torch.randn(4, 30), torch.randn(4, 9)), 3),
    "doubles": (torch.cdist, (SOUND.double(), torch.randn(5, 6).double()), 3),
    "by its mode": (
        lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
        (LEFT[:4], RIGHT[:3]),
        3,
    ),
}
LEFT_ALONE = {
    "few rows": lambda x: torch.cdist(x[:25], x[3:]),
    "sums of differences": lambda x: torch.cdist(x, x, p=1.0),
    "by differences": lambda x: torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist"),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.slow
def test_a_table_is_a_product_and_what_follows_it(name: str) -> None:
    function, args, kernels = TABLES[name]
    program = Program(function, *args)
    assert program.externs == ["aten.matmul.default"] and len(program.kernels) == kernels
    found, want = program.run(), program.eager()
    assert found.stride() == want.stride()
    # Near 0 the root of a rounding error remains, in PyTorch's result, too.
    off = 0.02 if name == "with itself" else 1e-5
    torch.testing.assert_close(found, want, rtol=1e-5, atol=off, equal_nan=True)


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_differences_stay_with_pytorch(name: str) -> None:
    assert distances.rewrite(capture(LEFT_ALONE[name], SOUND).graph) is None


def test_autocast_would_cast_the_product() -> None:
    assert capture(lambda x: torch.exp(x), SOUND).autocast
    assert not capture(lambda x: torch.cdist(x, x), SOUND).autocast
