"""Layouts of results that PyTorch asks a GPU about, and what a recorder without one does with such operators."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dvk.harness.launch_plans import gpu_layouts
from tests.harness.launch_plans.recording import plan_of, steps

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
CONVOLUTIONS = [
    # shape of the input, of the weight; stride, padding, dilation, transposed, output padding, groups
    ((3, 8, 20), (6, 8, 3), ([2], [1], [2], False, [0], 1)),
    ((3, 8, 20), (8, 3, 4), ([3], [1], [1], True, [2], 2)),
    ((2, 8, 9, 11), (6, 4, 3, 5), ([1, 2], [0, 2], [2, 1], False, [0, 0], 2)),
    ((2, 8, 9, 11), (8, 1, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 8)),
    ((2, 8, 9, 11), (8, 5, 3, 3), ([2], [1], [1], True, [1], 1)),
    ((2, 4, 5, 6, 7), (6, 4, 3, 3, 3), ([1, 1, 1], [1, 1, 1], [1, 1, 1], False, [0, 0, 0], 1)),
]


@pytest.mark.parametrize(("x", "weight", "rest"), CONVOLUTIONS)
@pytest.mark.parametrize("last", [False, True])
def test_convolutions_are_laid_out_like_their_operands(
    x: tuple[int, ...], weight: tuple[int, ...], rest: tuple, last: bool
) -> None:
    given = torch.rand(x)
    if last and given.dim() in LAST:
        given = given.to(memory_format=LAST[given.dim()])
    kernel = torch.rand(weight)
    real = torch.ops.aten.convolution.default(given, kernel, None, *rest)
    flags = False, False, True, True
    for func, more in (
        (torch.ops.aten.convolution.default, ()),
        (torch.ops.aten._convolution.default, flags),
    ):
        made = gpu_layouts.guess(func, (given, kernel, None, *rest, *more))
        assert made.shape == real.shape and made.dtype == real.dtype
        form = LAST.get(real.dim(), torch.contiguous_format)
        assert made.is_contiguous(
            memory_format=form if last and real.dim() in LAST else torch.contiguous_format
        )


def test_operators_that_only_a_gpu_has_are_recorded() -> None:
    candidate = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))

    def forward(self, x):
        image = x.view(1, 2, 16, 16)
        grid = x.view(1, 16, 16, 2)
        warped = torch.ops.aten.cudnn_grid_sampler(image, grid)
        return warped.view(8, 64) * self.weight
"""
    assert "cudnn_grid_sampler" in steps(plan_of(candidate))


def test_other_errors_of_operators_stay_errors() -> None:
    with FakeTensorMode():
        x = torch.empty(3, device="cuda")
        assert gpu_layouts.guess(torch.ops.aten.add.Tensor, (x, x)) is None
