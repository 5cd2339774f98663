"""Norms before convolutions in channels-last memory: statistics along memory, elements in tiles that suit both layouts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer.compose import fuse_graph
from dvk.composer.ir.loops import Kernel
from tests.composer.programs import capture

NAMES = ("batch_norm_training", "channels_last", "fuse_pointwise", "fuse_epilogue", "fuse_rowwise")


class NormBefore(nn.Module):
    """A batch norm by the batch's statistics, an activation and a convolution, added to the input."""

    def __init__(self, channels: int, before: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.norm, self.before = nn.BatchNorm2d(channels), before
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(F.silu(self.norm(self.before(x))))


def kernels(model: nn.Module, *args: torch.Tensor, names: tuple[str, ...] = NAMES) -> list[Kernel]:
    return fuse_graph(capture(model, *args).graph, names, "cuda").ordered


def stores_elements(kernel: Kernel) -> bool:
    return any(not kernel.is_row_store(store) for store in kernel.stores)


@pytest.mark.parametrize("before", [lambda x: x, torch.tanh], ids=["read", "computed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.slow
def test_statistics_are_apart_where_the_layout_changes(
    before: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    model = NormBefore(24, before)
    model.conv.to(dtype)
    statistics, scaled, added = kernels(model, torch.randn(8, 24, 60, 60, dtype=dtype))
    assert statistics.family == "row" and not stores_elements(statistics)
    assert scaled.family == "pointwise" and scaled.outputs[0].strides[1] == 1
    assert added.family == "pointwise"


class NormAfter(nn.Module):
    """A transposed convolution, a batch norm by the batch's statistics and an activation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, channels, 4, 2, 1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.conv(x)))


def test_statistics_of_channels_last_memory_are_apart_from_a_result_in_rows() -> None:
    *_, statistics, scaled = kernels(NormAfter(24), torch.randn(8, 24, 30, 30))
    assert statistics.family == "column" and not stores_elements(statistics)
    assert scaled.family == "pointwise"


def test_statistics_stay_where_it_does_not_change_or_pays_too_little() -> None:
    model = NormBefore(24, lambda x: x)
    large, small = torch.randn(8, 24, 60, 60), torch.randn(4, 24, 20, 20)
    usual = tuple(n for n in NAMES if n != "channels_last")
    for made in (kernels(model, large, names=usual), kernels(model, small)):
        assert made[0].family == "row" and stores_elements(made[0])
