"""Floats of eight bits (e4m3, e5m2 and their kin), which torch stores and converts but hardly computes with.

Most operators refuse them, so values are changed in float32 and rounded back. Results in such a type, like those in int8 and uint8, are
codes: they are compared by steps, one step being the distance to the next code.
"""

from __future__ import annotations

import torch

NAN = 1 << 10
"""Ordinal of NaN, farther from any number than all numbers are from each other."""


PAIRS: torch.dtype | None = getattr(torch, "float4_e2m1fn_x2", None)
"""Two floats of four bits in a byte, which torch only stores."""


def narrow(tensor: torch.Tensor) -> bool:
    """Whether its type is a float of eight bits, or a pair of four."""
    return tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1


def are_codes(tensor: torch.Tensor) -> bool:
    """Whether its values are quantised: int8, uint8 or floats of eight bits. Integers of these types are hardly ever indices."""
    return tensor.dtype in (torch.int8, torch.uint8) or narrow(tensor)


def varies_as_number(tensor: torch.Tensor) -> bool:
    """Whether its values may be changed as those of other floats are: not exponents, nor pairs of floats in a byte."""
    return tensor.dtype not in (torch.float8_e8m0fnu, PAIRS)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return float32 for floats of eight bits, and any other tensor itself."""
    return tensor.float() if narrow(tensor) else tensor


def narrowed(wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return float32 values in a float of eight bits; finite ones saturate, NaN and infinity stay where the type has them."""
    most = torch.finfo(dtype).max
    return torch.where(wide.isfinite(), wide.clamp(-most, most), wide).to(dtype)


def steps(tensor: torch.Tensor) -> torch.Tensor:
    """Return integers whose differences count the codes between two values, -0 and 0 being one; tensors of other types unchanged."""
    if not narrow(tensor):
        return tensor
    if tensor.dtype is PAIRS:
        return tensor.contiguous().view(torch.uint8).short()
    if tensor.dtype is torch.float8_e8m0fnu:
        bits = tensor.view(torch.uint8).short()
        return bits.masked_fill(bits == 255, NAN)
    bits = tensor.contiguous().view(torch.uint8).short()
    size = bits & 127
    return torch.where(bits > 127, -size, size).masked_fill(tensor.isnan(), NAN)


def distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return by how many codes, or by how much, elements of two tensors of exact types differ."""
    return (steps(one).long() - steps(other).long()).abs()
