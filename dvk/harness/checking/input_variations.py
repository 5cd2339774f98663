"""Variations of one tensor that is not floating data: masks, integers, and floats with few or bounded values.

A maker returns other values for a tensor of the same shape and dtype; makers are sorted by boldness, and the last one only permutes the
example's values. `input_arguments` tests whether the reference accepts the result.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch

from dvk.harness.checking.input_families import normalised_along, ordered
from dvk.harness.checking.input_usage import Use

Maker = Callable[[torch.Tensor, random.Random, bool], torch.Tensor]
"""(a dense tensor, chance, one value throughout) → other values."""

SPECIAL_SHARES = (0.05, 0.3, 0.6)
FEW_VALUES = 16


def with_strides_kept(
    make: Maker, tensor: torch.Tensor, chance: random.Random, edge: bool
) -> torch.Tensor:
    """Return what `make` makes of a tensor, with its strides; expanded tensors stay expanded."""
    repeated = [
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    ]
    if any(repeated):
        base = tensor[tuple(slice(0, 1) if again else slice(None) for again in repeated)]
        return with_strides_kept(make, base, chance, edge).expand(tensor.shape)
    made = make(tensor, chance, edge)
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).copy_(made.reshape(tensor.shape))


def few(native: torch.Tensor, made: torch.Tensor, chance: random.Random) -> torch.Tensor:
    """Return `native` with a few elements of `made`; all of them if it is ordered, or has no duplicates."""
    flat = native.reshape(-1)
    if native.numel() < 2 or ordered(flat[None], 4) or flat.unique().numel() == native.numel():
        return made
    differ = (native != made).reshape(-1).nonzero()[:, 0]
    if not len(differ):
        return made
    order = torch.randperm(len(differ), device=native.device, generator=_generator(native, chance))
    flat = flat.clone()
    places = differ[order[: 1 << chance.randrange(4)]]
    flat[places] = made.reshape(-1)[places]
    return torch.empty_strided(
        native.shape, native.stride(), dtype=native.dtype, device=native.device
    ).copy_(flat.reshape(native.shape))


# ---------------------------------------------------------------- masks


def masks(native: torch.Tensor) -> Iterator[Maker]:
    """Make rows of every density; at least one element of each row is True; one row of each kind; the example's elements elsewhere."""
    yield _mask
    yield lambda t, chance, edge: _keeping(_mask(t, chance, edge), True, chance)
    if native.dim() and native.shape[-1] > 1:
        yield lambda t, chance, edge: _keeping(
            _keeping(_mask(t, chance, edge), True, chance), False, chance
        )
    yield shuffled


def _mask(native: torch.Tensor, chance: random.Random, edge: bool) -> torch.Tensor:
    rows = _rows(native)
    count, length = rows.shape
    generator = _generator(native, chance)
    causal = (
        torch.arange(length, device=rows.device)[None, :]
        <= (torch.arange(count, device=rows.device) % length)[:, None]
    )
    if edge:
        kind = chance.choice(("full", "empty", "causal", "one"))
        one = torch.arange(count, device=rows.device)[:, None] == chance.randrange(max(count, 1))
        shapes = {
            "full": torch.ones_like(rows),
            "empty": torch.zeros_like(rows),
            "causal": causal,
            "one": one.expand_as(rows),
        }
        return shapes[kind]
    density = (
        torch.rand((count, 1), device=rows.device, generator=generator) * 1.6 - 0.3
    )  # a fifth of the rows full, one empty
    made = torch.rand(rows.shape, device=rows.device, generator=generator) < density
    return torch.where(
        torch.rand((count, 1), device=rows.device, generator=generator) < 0.2, causal, made
    )


def _keeping(mask: torch.Tensor, value: bool, chance: random.Random) -> torch.Tensor:
    """Set at least one element of each row to `value`."""
    rows = _rows(mask).clone()
    missing = ~(rows == value).any(1)
    place = torch.randint(
        rows.shape[1], (len(rows),), device=rows.device, generator=_generator(mask, chance)
    )
    rows[missing, place[missing]] = value
    return rows.reshape(mask.shape)


# ---------------------------------------------------------------- integers


def integers(native: torch.Tensor, use: Use, bears: Callable[[int], bool]) -> Iterator[Maker]:
    """Make integers over the whole range with special values; within the example's range; permutations of the example's elements.

    Args:
        native: the example's tensor.
        use: its observed uses.
        bears: returns whether the reference accepts a value in one place.
    """
    low, high = (int(edge) for edge in native.aminmax())
    plain = native[native >= 0]
    floor = int(plain.min()) if plain.numel() else low
    told = {int(value) for value in native[native < 0].unique().tolist()[:FEW_VALUES]}
    top = next(
        (
            size - 1
            for size in sorted(use.sizes, reverse=True)
            if size > high and bears(size - 1) and not bears(size)
        ),
        high,
    )
    bottom = next((least for least in range(min(2, max(floor, 0))) if bears(least)), floor)
    borne = [
        value
        for value in sorted(use.special)
        if not bottom <= value <= top and _fits(value, native.dtype)
    ]
    special = told | {value for value in borne[:FEW_VALUES] if bears(value)}
    distinct = native.numel() > 3 and native.unique().numel() == native.numel()
    if use.overwrites and distinct:
        yield shuffled
        return
    sort = not use.sizes and native.dim() > 0 and ordered(native.reshape(-1)[None], 4)

    def between(least: int, most: int, apart: tuple[int, ...]) -> Maker:
        def make(tensor: torch.Tensor, chance: random.Random, edge: bool) -> torch.Tensor:
            made = _drawn(tensor, least, most, apart, chance, edge)
            if not sort:
                return made
            flat = made.reshape(-1).sort().values
            flat[0], flat[-1] = tensor.reshape(-1)[0], tensor.reshape(-1)[-1]
            return flat.clamp(int(tensor.min()), int(tensor.max())).sort().values

        return make

    ranges = dict.fromkeys(
        [
            (bottom, top, tuple(sorted(special))),
            (bottom, top, ()),
            (max(bottom, 1), top, ()),
            (floor, high, ()),
        ]
    )
    for least, most, apart in ranges:
        if least < most or apart:
            yield between(least, most, apart)
    yield shuffled


def _drawn(
    native: torch.Tensor,
    low: int,
    high: int,
    special: tuple[int, ...],
    chance: random.Random,
    edge: bool,
) -> torch.Tensor:
    generator = _generator(native, chance)

    def uniform() -> torch.Tensor:
        return torch.randint(low, high + 1, native.shape, device=native.device, generator=generator)

    kind = chance.choice(("low", "high", "equal", "sorted", "falling")) if edge else "mixed"
    if kind in ("low", "high", "equal"):
        value = {
            "low": low,
            "high": high,
            "equal": chance.choice((chance.randint(low, high), *special)),
        }[kind]
        return torch.full_like(native, value)
    drawn = uniform()
    if kind != "mixed" and native.dim():
        return drawn.sort(-1, descending=kind == "falling").values.to(native.dtype)
    apart = torch.tensor([low, high, *special, *special], device=native.device)
    which = torch.randint(len(apart), native.shape, device=native.device, generator=generator)
    rare = torch.rand(native.shape, device=native.device, generator=generator) < chance.choice(
        SPECIAL_SHARES
    )
    made = torch.where(rare, apart[which], drawn)
    if native.numel() <= 2 * len(apart):  # too few for shares: each has a chance
        return made.to(native.dtype)
    flat = made.reshape(-1)
    places = torch.randperm(flat.numel(), device=native.device, generator=generator)[: len(apart)]
    flat[places] = apart
    return flat.reshape(native.shape).to(native.dtype)


def _fits(value: int, dtype: torch.dtype) -> bool:
    info = torch.iinfo(dtype)
    return info.min <= value <= info.max


# ---------------------------------------------------------------- floats that are no data


def few_floats(native: torch.Tensor) -> Iterator[Maker]:
    """Make single numbers, constants, additive or multiplicative masks, boundaries, probabilities, labels as floats."""
    low, high = (float(edge) for edge in native.aminmax())
    if low != low or high != high:
        return
    if native.numel() == 1:
        yield (
            lambda t, chance, edge: (
                t * chance.choice((chance.uniform(0.3, 0.8), chance.uniform(1.3, 2.5), -1.0))
                + 0.1 * (not t.any())
            )
        )
        yield lambda t, chance, edge: t * chance.uniform(0.5, 1.6)
        return
    if low == high:
        if low == 0:
            yield lambda t, chance, edge: _normal(t, chance)
        yield (
            lambda t, chance, edge: (
                t * chance.uniform(0.3, 2.0) if edge else t * (0.5 + _uniform(t, chance))
            )
        )
        return
    if low >= 0 and (along := normalised_along(native)) is not None:
        yield (
            lambda t, chance, edge: (
                (_normal(t, chance) * chance.uniform(0.5, 4)).float().softmax(along)
            )
        )
        return
    if ordered(native):
        yield (
            lambda t, chance, edge: (
                (t[..., :1] + (t[..., -1:] - t[..., :1]) * _uniform(t, chance)).sort(-1).values
            )
        )
        return
    values = native.unique()
    if values.numel() <= FEW_VALUES:
        yield lambda t, chance, edge: _among(t, values, chance, edge)
        if float("-inf") in (low, high) or low <= -1e4:  # added to scores: some of each row stays
            yield lambda t, chance, edge: torch.where(
                _keeping(_among(t, values, chance, edge) == high, True, chance), high, low
            )
    elif bool((native == native.round()).all()):
        yield lambda t, chance, edge: (low + (high - low) * _uniform(t, chance)).round()
    yield shuffled


def _among(
    native: torch.Tensor, values: torch.Tensor, chance: random.Random, edge: bool
) -> torch.Tensor:
    """Return rows with the values in shares of every kind."""
    if edge:
        return torch.full_like(native, float(values[chance.randrange(len(values))]))
    rows, generator = _rows(native), _generator(native, chance)
    made = values[torch.randint(len(values), rows.shape, device=rows.device, generator=generator)]
    for value in (values[0], values[-1]):
        share = (torch.rand((len(rows), 1), device=rows.device, generator=generator) - 0.3).clamp(
            min=0
        ) * 1.5
        made = torch.where(
            torch.rand(rows.shape, device=rows.device, generator=generator) < share, value, made
        )
    return made.reshape(native.shape)


def shuffled(native: torch.Tensor, chance: random.Random, edge: bool) -> torch.Tensor:
    """Permute the example's elements."""
    return native.reshape(-1)[
        torch.randperm(native.numel(), device=native.device, generator=_generator(native, chance))
    ]


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)


def _normal(like: torch.Tensor, chance: random.Random) -> torch.Tensor:
    return torch.randn(like.shape, device=like.device, generator=_generator(like, chance))


def _uniform(like: torch.Tensor, chance: random.Random) -> torch.Tensor:
    return torch.rand(like.shape, device=like.device, generator=_generator(like, chance))


def _generator(like: torch.Tensor, chance: random.Random) -> torch.Generator:
    return torch.Generator(like.device).manual_seed(chance.getrandbits(62))
