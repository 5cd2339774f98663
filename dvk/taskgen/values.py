"""Abstract values of a generator: sizes, type, and 64 sample numbers.

The numbers form eight rows of eight: a row is the input of a reduction over the last dimensions, a column that of one over the first.
Pointwise operators are evaluated on them; reductions use a row's moments and the true number of elements. So saturation, overflow and loss
in a sum are detected, roughly, during drawing; the filter by execution (`dvk.tasks.hygiene`) decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dvk.taskgen.dice import Dice
from dvk.taskgen.sizes import Shape

SIDE = 8
Sample = tuple[float, ...]


class UnfitOperands(Exception):
    """The operator does not suit its operands here: draw another."""


@dataclass(eq=False)
class TaskValue:
    """One tensor of the program being written."""

    shape: Shape
    dtype: str
    sample: Sample
    origin: str
    """`input`, `held` (parameter or buffer), `value`, or `view` of another value."""
    floor: float | None = None
    """A lower bound that always holds; None if there is none."""
    tied: bool = True
    """It scales with the inputs: a full sum varies from draw to draw."""
    name: str = ""
    """The name in the text; operators' results get theirs late."""

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def half(self) -> bool:
        return self.dtype in ("float16", "bfloat16")


def rms(sample: Sequence[float]) -> float:
    """Root of the mean square."""
    return math.sqrt(math.fsum(v * v for v in sample) / len(sample))


def deviation(sample: Sequence[float]) -> float:
    """Standard deviation."""
    mean = math.fsum(sample) / len(sample)
    return math.sqrt(max(math.fsum((v - mean) ** 2 for v in sample) / len(sample), 0.0))


def checked(sample: Sequence[float], dtype: str) -> Sample:
    """The sample, if a value of that type may hold it.

    Raises:
        UnfitOperands: too large, constant, or almost constant.
    """
    limit = 60.0 if dtype == "float16" else 300.0
    if any(v != v or abs(v) > limit for v in sample):
        raise UnfitOperands("too large")
    spread, size = deviation(sample), rms(sample)
    if spread < 0.04 * size or size < 1e-6 or (dtype == "float16" and size < 2e-3):
        raise UnfitOperands("constant")
    common = max(sample, key=sample.count) if len(set(sample)) < 48 else None
    if common is not None and sample.count(common) > 40:
        raise UnfitOperands("saturated")
    return tuple(sample)


def mapped(function: Callable[..., float], *samples: Sample) -> list[float]:
    """Apply a function to every number.

    Raises:
        UnfitOperands: it is not defined for one.
    """
    try:
        return [function(*values) for values in zip(*samples, strict=True)]
    except (ValueError, OverflowError, ZeroDivisionError):
        raise UnfitOperands("not defined here") from None


def transposed(sample: Sample) -> Sample:
    """Transpose rows and columns."""
    return tuple(sample[SIDE * (i % SIDE) + i // SIDE] for i in range(SIDE * SIDE))


def rows(sample: Sample, first: bool) -> list[Sample]:
    """The input of each of eight reductions: a row, or with `first` a column."""
    sample = transposed(sample) if first else sample
    return [sample[SIDE * r : SIDE * r + SIDE] for r in range(SIDE)]


def unrowed(values: Sequence[Sequence[float]], first: bool) -> Sample:
    """The inverse of `rows`."""
    flat = tuple(v for row in values for v in row)
    return transposed(flat) if first else flat


def spread(numbers: Sequence[float], first: bool, kept: bool) -> Sample:
    """Eight results of a reduction as a value: in their rows if dimensions are kept, else mixed."""
    if kept:
        return unrowed([[v] * SIDE for v in numbers], first)
    return tuple(numbers[(r + 3 * k) % SIDE] for r in range(SIDE) for k in range(SIDE))


def reduced(dice: Dice, operation: str, row: Sample, count: int) -> float:
    """A plausible result of reducing `count` elements distributed as `row`."""
    mean, sigma = math.fsum(row) / len(row), deviation(row)
    noise = dice.normal()
    if operation == "sum":
        return count * mean + math.sqrt(count) * sigma * noise if sigma < 1e9 else math.inf
    if operation == "mean":
        return mean + sigma / math.sqrt(count) * noise
    if operation in ("amax", "amin"):
        drawn = sorted(row, reverse=operation == "amax")
        return (
            drawn[0]
            if len(set(drawn[:3])) < 3
            else drawn[0] + (drawn[0] - drawn[2]) * dice.random()
        )
    if operation in ("var", "std"):
        value = sigma * sigma * abs(1 + math.sqrt(2 / count) * noise)
        return value if operation == "var" else math.sqrt(value)
    if operation == "norm":
        return rms(row) * math.sqrt(count) * (1 + 0.5 / math.sqrt(count) * noise)
    if operation == "norm1":
        return count * math.fsum(map(abs, row)) / len(row)
    assert operation == "logsumexp", operation
    peak = max(row)
    return peak + math.log(count * math.fsum(math.exp(v - peak) for v in row) / len(row))


def normalised(sample: Sample, first: bool) -> Sample:
    """Every row with mean 0 and deviation 1."""
    result = []
    for row in rows(sample, first):
        mean, sigma = math.fsum(row) / SIDE, deviation(row)
        if sigma < 1e-4 * (1 + abs(mean)):
            raise UnfitOperands("nothing to normalise")
        result.append([(v - mean) / sigma for v in row])
    return unrowed(result, first)
