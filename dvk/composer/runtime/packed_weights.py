"""Convolutions and linears by oneDNN with weights that are packed before. The text travels inside drop-ins, as that of `guards.py` does."""

from __future__ import annotations

import torch


def dvk_packs(weight: torch.Tensor) -> bool:
    """This PyTorch calls oneDNN, and can pack such a weight for it."""
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return known and weight.is_cpu and weight.dtype == torch.float32


def dvk_packed_kernel(
    weight: torch.Tensor,
    sizes: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> torch.Tensor:
    """A convolution's weight as oneDNN reads it for an input of these sizes; unchanged where it cannot be packed."""
    if not dvk_packs(weight):
        return weight
    return torch.ops.mkldnn._reorder_convolution_weight(
        weight.detach(), padding, stride, dilation, groups, sizes
    )


def dvk_packed_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> torch.Tensor:
    """A convolution with a weight of `dvk_packed_kernel`."""
    if not weight.is_mkldnn:
        none = [0] * len(stride)
        return torch.convolution(x, weight, bias, stride, padding, dilation, False, none, groups)
    return torch.ops.mkldnn._convolution_pointwise.default(
        x, weight, bias, padding, stride, dilation, groups, "none", [], ""
    )


def dvk_packed_matrix(weight: torch.Tensor, rows: int) -> torch.Tensor:
    """A linear's weight [N, K] as oneDNN reads it for so many rows; unchanged where it cannot be packed."""
    if not dvk_packs(weight):
        return weight
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), rows)


def dvk_packed_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """A linear with a weight of `dvk_packed_matrix`."""
    if not weight.is_mkldnn:
        return torch.nn.functional.linear(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
