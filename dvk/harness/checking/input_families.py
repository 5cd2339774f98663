"""Input families, derived from a native draw: only floating values change, everything else stays native (except for `ARGUED`).

    native         what get_inputs() draws
    zero_mean      normal values of the native size: positive inputs hide errors behind a growing sum, so that on
                   values in [0, 1) float16 products pass for float32 ones
    integers       -1, 0, 1 (0, 1 for inputs that are never negative): products and sums are exact in any order
    large, small   a thousand times the native values, a thousandth: left-out maxima, epsilons, saturation
    heavy_tail     one value of a row, sometimes its last, exceeds the others a thousandfold: left-out terms
    constant_rows  some rows one value throughout, some zero
    strays         native except for a few single elements of another size or sign, which a sample of the inputs
                   does not reveal; timed draws have them, too
    nan, infinite, huge   a few single elements are that, or a row

Values that would lose their meaning stay native in every family (`kind_of`): labels, masks, indices, single numbers, values that sum to
one, sorted values, and tensors with infinities. Zeros of a sparse tensor stay zeros, a symmetric matrix stays symmetric, probabilities stay
in [0, 1] if the reference requires it. `keep_sign` is the cautious form: non-negative inputs stay native, too. `cases` checks whether the
result is inside the reference's domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch

from dvk.harness.checking.compare import row_length
from dvk.harness.checking.input_domains import Domain

NATIVE = "native"
STRAYS = "strays"
ARGUED = ("arguments", "edges", "exceptions")
"""Families that vary only non-floating inputs (`input_arguments`)."""
NONFINITE = ("nan", "infinite", "huge")
"""Families with values that are not finite, or too large to be squared."""
FAMILIES = (
    "zero_mean",
    "integers",
    "arguments",
    STRAYS,
    "nan",
    "heavy_tail",
    "large",
    "exceptions",
    "infinite",
    "small",
    "edges",
    "constant_rows",
    "huge",
)
"""Families besides the native one, most telling first."""
WITHIN_UNIT = ("integers", "small", "constant_rows", STRAYS)
"""Families that keep values of [0, 1] in it."""
TIES = ("integers", "constant_rows")
"""Families with many equal values, so that an index may name any of them."""

FACTOR = 1000.0
STRAY_FACTORS = (1.0, 30.0, FACTOR)
MOST_STRAYS = 8
LARGEST_HALF = 8192.0
"""Largest float16 input: squares and sums must not overflow because of the family."""
SAMPLE = 4096
FEW_VALUES = 16

Kind = Literal["fixed", "unit", "positive", "signed"]


def kind_of(tensor: torch.Tensor, domain: Domain) -> Kind:
    """Apparent kind of a native input tensor: `fixed` must not change, `unit` must stay in [0, 1], `positive` has no
    negative value."""
    if domain.indices or not tensor.is_floating_point() or tensor.numel() < 2:
        return "fixed"
    low, high = (float(edge) for edge in tensor.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        return "fixed"
    if any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        return "fixed"  # expanded: one value in many places
    stride = max(1, tensor.numel() // SAMPLE)
    sample = tensor.reshape(-1)[::stride][: 2 * SAMPLE].float()
    if len(sample.unique()) <= min(FEW_VALUES, max(1, len(sample) // 4)) or bool(
        (sample == sample.round()).all()
    ):
        return "fixed"
    if ordered(tensor) or (low >= 0 and normalised_along(tensor) is not None):
        return "fixed"
    if domain.probabilities and low >= 0 and high <= 1:
        return "unit"
    return "positive" if low >= 0 else "signed"


def zero_mean_already(tensor: torch.Tensor) -> bool:
    """Whether the family equals the native draw."""
    wide = tensor.float()
    return abs(float(wide.mean())) < 0.1 * float(wide.std())


def derive(
    family: str, tensor: torch.Tensor, kind: Kind, generator: torch.Generator, keep_sign: bool
) -> torch.Tensor:
    """Return `tensor` as the family has it, with the same dtype and strides; itself if it must not change.

    Args:
        family: one of FAMILIES.
        tensor: a native input.
        kind: the result of `kind_of`.
        generator: a generator of the tensor's device.
        keep_sign: leave non-negative inputs unchanged; strays in them are not negative either.
    """
    cautious = keep_sign and kind != "signed"
    if (
        kind == "fixed"
        or (cautious and family != STRAYS and family not in NONFINITE)
        or (kind == "unit" and family not in WITHIN_UNIT)
    ):
        return tensor
    wide = tensor if tensor.dtype.itemsize >= 4 else tensor.float()
    positive = cautious or kind == "unit" if family == STRAYS else kind != "signed"
    made = _MAKERS[family](wide, positive, tensor.dtype, generator)
    if kind == "unit":
        made = made.clamp(max=1.0)
    if _symmetric(tensor):
        made = made.triu() + made.triu(1).mT
    zeros = tensor == 0
    if float(zeros.float().mean()) > 0.01:
        made = made.masked_fill(zeros, 0.0)
    # Values only: the candidate may be written for the strides.
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).copy_(made)


Maker = Callable[[torch.Tensor, bool, torch.dtype, torch.Generator], torch.Tensor]


def _zero_mean(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    return _normal(native, generator) * _rms(native)


def _integers(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    drawn = torch.randint(
        0 if positive else -1,
        2,
        native.shape,
        dtype=torch.int8,
        device=native.device,
        generator=generator,
    )
    return drawn.to(native.dtype)


def _large(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    return native * _factor(float(native.abs().max()), dtype)


def _small(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    return native / FACTOR


def _heavy_tail(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    rows = native.reshape(-1, row_length(native.shape)).clone()
    count, length = rows.shape
    place = torch.randint(0, length, (count, 1), device=rows.device, generator=generator)
    chance = torch.rand((count, 2), device=rows.device, generator=generator)
    place = torch.where(chance[:, :1] < 0.25, length - 1, place)
    sign = (
        torch.where(chance[:, 1:] < 0.5, -1.0, 1.0)
        if not positive
        else torch.ones_like(chance[:, 1:])
    )
    rms = _rms(native)
    rows.scatter_(
        1, place, (sign * rms * _factor(rms, dtype) * (0.5 + chance[:, :1])).to(rows.dtype)
    )
    return rows.reshape(native.shape)


def _constant_rows(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    rows = native.reshape(-1, row_length(native.shape)).clone()
    count = len(rows)
    chance = torch.rand((count, 1), device=rows.device, generator=generator)
    value = torch.randn((count, 1), device=rows.device, generator=generator).to(rows.dtype) * _rms(
        native
    )
    value = value.abs() if positive else value
    rows = torch.where(chance < 0.5, value.expand_as(rows), rows)
    rows = torch.where(chance < 0.25, torch.zeros_like(rows), rows)
    return rows.reshape(native.shape)


def _strays(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    made = native.reshape(-1).clone()

    def drawn(high: int, count: int) -> torch.Tensor:
        return torch.randint(0, high, (count,), device=made.device, generator=generator)

    count = min(1 << int(drawn(MOST_STRAYS.bit_length(), 1)), max(1, made.numel() // 16))
    rms = _rms(native)
    factors = torch.tensor(
        [min(factor, _factor(rms, dtype)) for factor in STRAY_FACTORS],
        dtype=made.dtype,
        device=made.device,
    )
    sign = torch.ones(count, device=made.device) if positive else 1.0 - 2 * drawn(2, count)
    size = 0.5 + torch.rand((count,), device=made.device, generator=generator)
    made[drawn(made.numel(), count)] = (rms * factors[drawn(len(factors), count)] * sign * size).to(
        made.dtype
    )
    return made.reshape(native.shape)


def _nan(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    return _spoilt(native, [math.nan], generator)


def _infinite(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    return _spoilt(native, [math.inf] if positive else [math.inf, -math.inf], generator)


def _huge(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    most = torch.finfo(dtype).max
    sizes = [most, most / 3, most**0.75, most**0.5 * 4]
    return _spoilt(native, sizes if positive else [*sizes, *[-size for size in sizes]], generator)


def _spoilt(native: torch.Tensor, values: list[float], generator: torch.Generator) -> torch.Tensor:
    """Return some of the values in a few places, in one of four draws in a whole row."""
    made = native.reshape(-1).clone()

    def drawn(high: int, count: int) -> torch.Tensor:
        return torch.randint(0, high, (count,), device=made.device, generator=generator)

    of = torch.tensor(values, dtype=made.dtype, device=made.device)
    length = row_length(native.shape)
    if int(drawn(4, 1)) == 0 and made.numel() >= 4 * length:
        made.view(-1, length)[int(drawn(made.numel() // length, 1))] = of[drawn(len(of), 1)]
    count = min(1 << int(drawn(MOST_STRAYS.bit_length(), 1)), max(1, made.numel() // 16))
    made[drawn(made.numel(), count)] = of[drawn(len(of), count)]
    return made.reshape(native.shape)


_MAKERS: dict[str, Maker] = {
    "zero_mean": _zero_mean,
    "integers": _integers,
    "large": _large,
    "small": _small,
    "heavy_tail": _heavy_tail,
    "constant_rows": _constant_rows,
    STRAYS: _strays,
    "nan": _nan,
    "infinite": _infinite,
    "huge": _huge,
}


def _normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)


def _rms(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) / tensor.numel() ** 0.5


def _factor(size: float, dtype: torch.dtype) -> float:
    return min(FACTOR, LARGEST_HALF / size) if dtype is torch.float16 and size > 0 else FACTOR


def ordered(tensor: torch.Tensor, least: int = 8) -> bool:
    """Whether rows of at least `least` never fall and most rise: boundaries, times, cumulated sums. Constant rows are not in order."""
    if (
        tensor.dim() == 0
        or tensor.shape[-1] < least
        or not bool((tensor[..., 1:] >= tensor[..., :-1]).all())
    ):
        return False
    return float((tensor[..., -1] > tensor[..., 0]).float().mean()) > 0.5


def _symmetric(tensor: torch.Tensor) -> bool:
    return (
        tensor.dim() > 1
        and tensor.shape[-1] == tensor.shape[-2] > 1
        and torch.equal(tensor, tensor.mT)
    )


def normalised_along(tensor: torch.Tensor) -> int | None:
    """Return the dimension, the last or the second, along which values sum to 1: probabilities."""
    slack = 1e-2 if tensor.dtype.itemsize < 4 else 1e-3
    for d in dict.fromkeys((tensor.dim() - 1, min(1, tensor.dim() - 1))):
        if (
            tensor.dim()
            and tensor.shape[d] > 1
            and bool(((tensor.sum(d, dtype=torch.float32) - 1).abs() < slack).all())
        ):
            return d
    return None
