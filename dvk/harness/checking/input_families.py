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
    quantised      codes, scales and zero points over their whole range (`quantised_draws`); of tasks that have them

Values that would lose their meaning stay native in every family (`kind_of`): labels, masks, indices, single numbers, values that sum to
one, sorted values, and tensors with infinities. Zeros of a sparse tensor stay zeros, a symmetric matrix stays symmetric, probabilities stay
in [0, 1] if the reference requires it. `keep_sign` is the cautious form: non-negative inputs stay native, too. `cases` checks whether the
result is inside the reference's domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch

from dvk.harness.checking.compare import row_length
from dvk.harness.checking.input_domains import Domain
from dvk.harness.checking.narrow_floats import narrow, narrowed, varies_as_number, widened
from dvk.harness.checking.norms import parts, root_mean_square

NATIVE = "native"
STRAYS = "strays"
QUANTISED = "quantised"
"""Changes quantised operands among the inputs, integers too."""
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
    if not varies_as_number(tensor):
        return "fixed"
    tensor = widened(tensor)
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
    if narrow(tensor):
        wide = derive(family, tensor.float(), kind, generator, keep_sign)
        return _laid_out(tensor, narrowed(wide, tensor.dtype))
    positive = cautious or kind == "unit" if family == STRAYS else kind != "signed"
    if family in _PLACES:
        return _in_few_places(family, tensor, positive, kind == "unit", generator)
    wide = tensor if tensor.dtype.itemsize >= 4 else tensor.float()
    made = _MAKERS[family](wide, positive, tensor.dtype, generator)
    if kind == "unit":
        made = made.clamp(max=1.0)
    if _symmetric(tensor):
        made = made.triu() + made.triu(1).mT
    if _has_zeros(tensor):
        made = made.masked_fill(tensor == 0, 0.0)
    # Values only: the candidate may be written for the strides.
    return _laid_out(tensor, made)


def _in_few_places(
    family: str, tensor: torch.Tensor, positive: bool, unit: bool, generator: torch.Generator
) -> torch.Tensor:
    """Return a copy with other values in a few places. Timed draws have such values, too, so nothing else of the tensor's size is made."""
    places, values = _PLACES[family](tensor, positive, generator)
    made, index = _laid_out(tensor, tensor), torch.unravel_index(places, tensor.shape)
    values = (values.clamp(max=1.0) if unit else values).to(tensor.dtype)
    if _has_zeros(tensor):
        values = values.masked_fill(tensor[index] == 0, 0.0)
    made[index] = values
    return _laid_out(tensor, made.triu() + made.triu(1).mT) if _symmetric(tensor) else made


def _has_zeros(tensor: torch.Tensor) -> bool:
    """Whether it is sparse: zeros are more than chance."""
    count = sum(int(torch.count_nonzero(part)) for (part,) in parts(tensor))
    return tensor.numel() - count > 0.01 * tensor.numel()


def _laid_out(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(
        like.shape, like.stride(), dtype=like.dtype, device=like.device
    ).copy_(values)


Maker = Callable[[torch.Tensor, bool, torch.dtype, torch.Generator], torch.Tensor]


def _zero_mean(
    native: torch.Tensor, positive: bool, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    return _normal(native, generator) * root_mean_square(native)


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
    rms = root_mean_square(native)
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
    value = torch.randn((count, 1), device=rows.device, generator=generator).to(
        rows.dtype
    ) * root_mean_square(native)
    value = value.abs() if positive else value
    rows = torch.where(chance < 0.5, value.expand_as(rows), rows)
    rows = torch.where(chance < 0.25, torch.zeros_like(rows), rows)
    return rows.reshape(native.shape)


Places = Callable[[torch.Tensor, bool, torch.Generator], tuple[torch.Tensor, torch.Tensor]]
"""Returns positions in row-major order, and the values there."""


def _drawn(like: torch.Tensor, generator: torch.Generator) -> Callable[[int, int], torch.Tensor]:
    def drawn(high: int, count: int) -> torch.Tensor:
        return torch.randint(0, high, (count,), device=like.device, generator=generator)

    return drawn


def _number(tensor: torch.Tensor, drawn: Callable[[int, int], torch.Tensor]) -> int:
    return min(1 << int(drawn(MOST_STRAYS.bit_length(), 1)), max(1, tensor.numel() // 16))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.itemsize >= 4 else torch.float32


def _strays(
    native: torch.Tensor, positive: bool, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = _drawn(native, generator)
    count, rms = _number(native, drawn), root_mean_square(native)
    factors = torch.tensor(
        [min(factor, _factor(rms, native.dtype)) for factor in STRAY_FACTORS],
        dtype=_wide(native.dtype),
        device=native.device,
    )
    sign = torch.ones(count, device=native.device) if positive else 1.0 - 2 * drawn(2, count)
    size = 0.5 + torch.rand((count,), device=native.device, generator=generator)
    values = rms * factors[drawn(len(factors), count)] * sign * size
    return drawn(native.numel(), count), values


def _nan(
    native: torch.Tensor, positive: bool, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    return _spoilt(native, [math.nan], generator)


def _infinite(
    native: torch.Tensor, positive: bool, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    return _spoilt(native, [math.inf] if positive else [math.inf, -math.inf], generator)


def _huge(
    native: torch.Tensor, positive: bool, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    most = torch.finfo(native.dtype).max
    sizes = [most, most / 3, most**0.75, most**0.5 * 4]
    return _spoilt(native, sizes if positive else [*sizes, *[-size for size in sizes]], generator)


def _spoilt(
    native: torch.Tensor, values: list[float], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return some of the values in a few places, in one of four draws in a whole row."""
    drawn, length = _drawn(native, generator), row_length(native.shape)
    of = torch.tensor(values, dtype=_wide(native.dtype), device=native.device)
    places, chosen = [], []
    if int(drawn(4, 1)) == 0 and native.numel() >= 4 * length:
        chosen.append(of[drawn(len(of), 1)].expand(length))
        row = int(drawn(native.numel() // length, 1))
        places.append(torch.arange(row * length, (row + 1) * length, device=native.device))
    count = _number(native, drawn)
    chosen.append(of[drawn(len(of), count)])
    places.append(drawn(native.numel(), count))
    return torch.cat(places), torch.cat(chosen)


_PLACES: dict[str, Places] = {STRAYS: _strays, "nan": _nan, "infinite": _infinite, "huge": _huge}
"""Families that change a few places."""

_MAKERS: dict[str, Maker] = {
    "zero_mean": _zero_mean,
    "integers": _integers,
    "large": _large,
    "small": _small,
    "heavy_tail": _heavy_tail,
    "constant_rows": _constant_rows,
}


def _normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)


def _factor(size: float, dtype: torch.dtype) -> float:
    return min(FACTOR, LARGEST_HALF / size) if dtype is torch.float16 and size > 0 else FACTOR


def ordered(tensor: torch.Tensor, least: int = 8) -> bool:
    """Whether rows of at least `least` never fall and most rise: boundaries, times, cumulated sums. Constant rows are not in order."""
    if tensor.dim() == 0 or tensor.shape[-1] < least or not tensor.numel():
        return False
    first = tensor[(0,) * (tensor.dim() - 1)]  # decides nearly always
    for rows in (first, tensor):
        if not bool((rows[..., 1:] >= rows[..., :-1]).all()):
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
        if not tensor.numel() or not tensor.dim() or tensor.shape[d] < 2:
            continue
        place: list[Any] = [0] * tensor.dim()
        place[d] = slice(None)
        one = tensor[tuple(place)]  # decides nearly always
        if all(
            bool(((of.sum(along, dtype=torch.float32) - 1).abs() < slack).all())
            for of, along in ((one, 0), (tensor, d))
        ):
            return d
    return None
