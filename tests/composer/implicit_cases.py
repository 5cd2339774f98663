"""Convolutions that become implicit matmuls, and windows that change the layout: what follows, layouts, strides, groups, types."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.composer.triton_cases import HALF, Case, kinds, rand


def last(x: torch.Tensor) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last)


def gated(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    value, gate = F.conv1d(x, w, b, padding=4, dilation=4).chunk(2, 1)
    return torch.tanh(value) * torch.sigmoid(gate)


def block(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    """A residual block: two convolutions, the input added."""
    return F.relu(F.conv2d(F.relu(F.conv2d(x, v, b, 1, 1)), w, b, 1, 1) * b[:, None, None] + x)


IMPLICIT_CASES: dict[str, Case] = {
    "implicit": Case(
        lambda x, w, b: F.relu(F.conv2d(x, w, b, 1, 1)),
        lambda: [rand(2, 16, 5, 7), rand(20, 16, 3, 3), rand(20)],
        4e-6,
        kinds("product"),
    ),
    "implicit_channels_last": Case(
        lambda x, w, b, y: F.hardswish(F.conv2d(x, w, b, 2, 1)) * 0.5 + y,
        lambda: [
            last(rand(2, 28, 6, 7)),
            last(rand(24, 28, 3, 3)),
            rand(24),
            last(rand(2, 24, 3, 4)),
        ],
        4e-6,
        kinds("product"),
    ),
    "implicit_half": Case(
        lambda x, w: F.conv2d(x, w, None, (2, 1), (0, 2), (1, 2)),
        lambda: [last(rand(1, 32, 7, 6, dtype=HALF)), last(rand(9, 32, 3, 3, dtype=HALF))],
        2e-3,
        kinds("product"),
    ),
    "implicit_few_pixels": Case(
        lambda x, w: F.conv2d(x, w, None, 2),
        lambda: [rand(1, 20, 4, 3), rand(70, 20, 3, 3)],
        4e-6,
        kinds("skinny"),
    ),
    "implicit_strided_pointwise": Case(
        lambda x, w: torch.tanh(F.conv2d(x, w, None, 2)),
        lambda: [last(rand(2, 24, 7, 5)), rand(18, 24, 1, 1)],
        4e-6,
        kinds("product"),
    ),
    "implicit_grouped": Case(
        lambda x, w, b: F.relu(F.conv2d(x, w, b, 1, 1, 1, 2)),
        lambda: [rand(1, 16, 3, 4), rand(20, 8, 3, 3), rand(20)],
        4e-6,
        kinds("product"),
    ),
    "implicit_gated": Case(
        gated, lambda: [rand(2, 16, 21), rand(24, 16, 3), rand(24)], 4e-6, kinds("product")
    ),
    "implicit_3d": Case(
        lambda x, w: F.elu(F.conv3d(x, w, None, 1, 1)),
        lambda: [rand(1, 8, 2, 3, 4), rand(9, 8, 3, 2, 2)],
        4e-6,
        kinds("product"),
    ),
    "implicit_block": Case(
        block,
        lambda: [last(rand(1, 16, 5, 6)), rand(16, 16, 3, 3), rand(16, 16, 3, 3), rand(16)],
        1e-5,
        kinds("product"),
    ),
    "windows_into_another_layout": Case(
        lambda x, w: F.max_pool2d(F.relu(x), 3, 2, 1) + w,
        lambda: [last(rand(1, 8, 5, 18)), rand(1, 8, 3, 9)],
        kinds=kinds("window"),
    ),
    "joined_windows": Case(
        lambda x, y: F.max_pool2d(torch.cat([F.relu(x), y], 1), 3, 2),
        lambda: [last(rand(2, 8, 9, 7)), last(rand(2, 4, 9, 7))],
        kinds=kinds("window"),
    ),
}
