"""Tensors in the layout that a kernel reads; the text travels inside drop-ins, as that of `guards.py` does."""

from __future__ import annotations

import torch


def dvk_strides_match(shape: tuple, strides: tuple, expected: tuple) -> bool:
    """Strides are the expected ones; that of a dimension of size 1 says nothing."""
    return all(s == e for size, s, e in zip(shape, strides, expected) if size != 1)


def dvk_strided(
    tensor: torch.Tensor,
    strides: tuple[int, ...],
    shape: tuple[int, ...] | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`tensor` in the layout a kernel was written for.

    Raises:
        RuntimeError: it has another shape or dtype: a kernel would read beyond its memory.
    """
    if shape is not None and (tensor.shape != shape or tensor.dtype is not dtype):
        raise RuntimeError(
            f"expected {dtype}{list(shape)} inside the fused program, got {tensor.dtype}{list(tensor.shape)}"
        )
    if tensor.stride() == strides:
        return tensor
    if dvk_strides_match(tensor.shape, tensor.stride(), strides):
        return tensor.as_strided(tensor.shape, strides)
    return torch.empty_strided(
        tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)
