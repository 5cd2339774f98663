"""Other values for quantised operands (`quantised_operands`), over the range that their role admits.

    codes      within the example's range, a tenth of them at its ends; floats of 8 bits over all finite codes; some rows all zero
    packed     every bit pattern; some rows all zeros or all ones
    scale      the example's times a power of two, spread over some decades: by tensor, by row and by element; a few zeros; or uneven,
               nearly all far below a few, which then do not hide in the size of a row what the others contribute
    zero       a quarter at each end of the range, the rest within
    exponent   the example's, spread like a scale

A kernel that leaves out groups of small scale, takes one scale for all, or the usual zero point, is right on native values only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dvk.harness.checking.narrow_floats import PAIRS, narrow, narrowed, varies_as_number
from dvk.harness.checking.quantised_operands import Operand

SPREAD = (12.0, 2.0, 3.0)
"""Binary orders of magnitude of a scale: below the example's for the tensor, and around it for a row and for an element."""
SPREAD_HALF = (4.0, 1.0, 2.0)
"""The same for float16, whose products would overflow or vanish."""
ENDS, ROWS, NO_SCALE, LARGE = 0.1, 0.05, 0.02, 0.03
"""Shares of codes at the ends of their range, of rows with one code, of scales that are zero, and of uneven ones that are large."""


def redrawn(
    operand: Operand,
    native: torch.Tensor,
    generator: torch.Generator,
    cautious: bool = False,
    uneven: bool = False,
) -> torch.Tensor:
    """Return other values with the same type and strides; the tensor itself where its values do not look like its role.

    Args:
        operand: its role.
        native: the example's values.
        generator: of the tensor's device.
        cautious: keep codes of floats to those of the example, and scales above zero.
        uneven: nearly all scales are far below a few.
    """
    if native.numel() == 0:
        return native
    made = _MAKERS[operand.role](operand, native, generator, _How(cautious, uneven))
    if made is native:
        return native
    like = torch.empty_strided(
        native.shape, native.stride(), dtype=native.dtype, device=native.device
    )
    return like.copy_(made)


@dataclass(frozen=True)
class _How:
    cautious: bool
    uneven: bool


def exact(operand: Operand, native: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return values whose sums are exact: codes of -1, 0 and 1, scales that are powers of two; packed codes stay."""
    if operand.role == "codes":
        low = 0 if native.dtype is torch.uint8 else -1
        return _integers(native, low, 1, generator).to(native.dtype)
    if operand.role == "scale" and bool((native > 0).all()):
        return torch.exp2(torch.log2(native.float()).round()).to(native.dtype)
    return native


def _codes(
    operand: Operand, native: torch.Tensor, generator: torch.Generator, how: _How
) -> torch.Tensor:
    if not varies_as_number(native):
        return native
    if narrow(native):
        flat = native.reshape(-1)
        order = torch.randperm(len(flat), device=native.device, generator=generator)
        made = flat[order].reshape(native.shape).float()
        if not how.cautious:
            bits = _integers(native, 0, 255, generator).to(torch.uint8).view(native.dtype).float()
            any_code = (_uniform(native, generator) < 0.5) & bits.isfinite()
            made = torch.where(any_code, bits, made)
            most = torch.finfo(native.dtype).max
            ends = _uniform(native, generator) < ENDS
            made = torch.where(ends, torch.where(made < 0, -most, most), made)
        return narrowed(_with_rows(made, generator, (0.0,)), native.dtype)
    low, high = (int(edge) for edge in native.aminmax())
    drawn = _integers(native, low, high, generator)
    chance = _uniform(native, generator)
    drawn = torch.where(chance < ENDS / 2, low, torch.where(chance > 1 - ENDS / 2, high, drawn))
    return _with_rows(drawn, generator, (0,) if low <= 0 <= high else (low,)).to(native.dtype)


def _packed(
    operand: Operand, native: torch.Tensor, generator: torch.Generator, how: _How
) -> torch.Tensor:
    if native.dtype is PAIRS:
        return _integers(native, 0, 255, generator).to(torch.uint8).view(native.dtype)
    info = torch.iinfo(native.dtype)
    drawn = _integers(native, info.min, info.max, generator)
    return _with_rows(drawn, generator, (0, -1 if info.min < 0 else info.max)).to(native.dtype)


def _scale(
    operand: Operand, native: torch.Tensor, generator: torch.Generator, how: _How
) -> torch.Tensor:
    if not bool((native >= 0).all()) or not bool((native > 0).any()):
        return native
    half = native.dtype is torch.float16
    made = native.float() * torch.exp2(
        _orders(native, SPREAD_HALF if half else SPREAD, generator, how)
    )
    if half:
        made = made.clamp(min=torch.finfo(native.dtype).tiny) * (native > 0)
    if not how.cautious and native.numel() > 1 / NO_SCALE:
        made = made.masked_fill(_uniform(native, generator) < NO_SCALE, 0.0)
    return made.to(native.dtype)


def _zero(
    operand: Operand, native: torch.Tensor, generator: torch.Generator, how: _How
) -> torch.Tensor:
    low, high = (int(edge) for edge in native.float().aminmax())
    signed = low < 0 or native.dtype is torch.int8 and high < 1 << (operand.bits - 1)
    least = -(1 << (operand.bits - 1)) if signed else 0
    most = least + (1 << operand.bits) - 1
    if low < least or high > most:
        return native
    chance, drawn = _uniform(native, generator), _integers(native, least, most, generator)
    return torch.where(chance < 0.25, least, torch.where(chance > 0.75, most, drawn)).to(
        native.dtype
    )


def _exponent(
    operand: Operand, native: torch.Tensor, generator: torch.Generator, how: _How
) -> torch.Tensor:
    orders = _orders(native, SPREAD, generator, how).round()
    if native.dtype is torch.float8_e8m0fnu:
        return (native.float() * torch.exp2(orders)).to(native.dtype)
    info = torch.iinfo(native.dtype)
    # The largest exponent is NaN in e8m0.
    return (native.float() + orders).clamp(info.min, info.max - 1).to(native.dtype)


_MAKERS = {
    "codes": _codes,
    "packed": _packed,
    "scale": _scale,
    "zero": _zero,
    "exponent": _exponent,
}


def _orders(
    native: torch.Tensor, spread: tuple[float, float, float], generator: torch.Generator, how: _How
) -> torch.Tensor:
    """Return binary orders of magnitude: one for the tensor, mostly downwards, one a row and one an element."""
    whole, row, each = spread
    of = torch.rand(1, device=native.device, generator=generator)
    orders = (1.25 * of - 1) * whole
    if native.dim() > 1:
        rows = torch.rand(len(native), device=native.device, generator=generator)
        orders = orders + ((2 * rows - 1) * row).reshape(-1, *[1] * (native.dim() - 1))
    mine = 2 * _uniform(native, generator) - 1
    if not how.uneven or native.numel() == 1:
        return (orders + mine * each).reshape(native.shape)
    few = _uniform(native, generator) < LARGE
    few.reshape(-1)[0] = True
    return (orders + mine - 2 * each * ~few).reshape(native.shape)


def _with_rows(
    made: torch.Tensor, generator: torch.Generator, values: tuple[float, ...]
) -> torch.Tensor:
    """Return `made` with some rows of one value, at least one of each value where there are ten rows for it."""
    rows = made.reshape(-1, made.shape[-1]).clone() if made.dim() else made.reshape(1, 1).clone()
    count = len(rows)
    for value in values:
        if count >= 10 * len(values):
            few = max(1, int(ROWS * count))
            order = torch.randperm(count, device=made.device, generator=generator)
            rows[order[:few]] = value
    return rows.reshape(made.shape)


def _integers(like: torch.Tensor, low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(low, high + 1, like.shape, device=like.device, generator=generator)


def _uniform(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(like.shape, device=like.device, generator=generator)
