"""A convolution by the algorithm that cuDNN measures. The text travels inside drop-ins, as that of `guards.py` does."""

from __future__ import annotations

from typing import Any

import torch


def dvk_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    more: list[int],
    groups: int,
) -> torch.Tensor:
    """A convolution by the algorithm that cuDNN measured to be the fastest when it first saw these shapes."""
    cudnn: Any = torch.backends.cudnn
    try:
        tf32 = cudnn.allow_tf32
    except RuntimeError:  # the flags that came after it were set
        tf32 = cudnn.conv.fp32_precision == "tf32"
    by = (
        True,
        cudnn.deterministic or torch.are_deterministic_algorithms_enabled(),
        cudnn.enabled,
        tf32,
    )
    return torch._convolution(
        x, weight, bias, stride, padding, dilation, transposed, more, groups, *by
    )
