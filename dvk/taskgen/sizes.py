"""Sizes of generated tasks: named sizes, each with a small twin for checks, drawn to fit a device.

Sizes are log-uniform within a profile's range; those common in networks are favoured, and awkward ones (odd, prime, a vocabulary) are mixed
in. A small twin shares the powers of two up to 8 of its native size, so that a native size that splits evenly also does when small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from dvk.taskgen.dice import Dice


class Dim(NamedTuple):
    """One size: its text over module constants, and its values in elements."""

    text: str
    native: int
    small: int

    def times(self, factor: int) -> Dim:
        """`factor` times as large."""
        return Dim(f"{factor} * {self._inner()}", self.native * factor, self.small * factor)

    def over(self, divisor: int) -> Dim:
        """The integer quotient."""
        return Dim(f"{self._inner()} // {divisor}", self.native // divisor, self.small // divisor)

    def by(self, other: Dim) -> Dim:
        """The product of two sizes."""
        return Dim(
            f"{self._inner()} * {other._inner()}",
            self.native * other.native,
            self.small * other.small,
        )

    def _inner(self) -> str:
        return f"({self.text})" if " " in self.text else self.text

    def divisible(self, divisor: int) -> bool:
        """Splits evenly, natively and small."""
        return self.native % divisor == 0 and self.small % divisor == 0


ONE = Dim("1", 1, 1)
Shape = tuple[Dim, ...]


def count(shape: Shape) -> int:
    """Elements at native sizes."""
    return math.prod(d.native for d in shape)


def same(a: Shape, b: Shape) -> bool:
    """Equal natively and small."""
    return [d[1:] for d in a] == [d[1:] for d in b]


@dataclass(frozen=True)
class DeviceProfile:
    """The properties of a device's tasks."""

    low: int
    """Fewest elements of the main input."""
    high: int
    """Most elements of any value."""
    flops: float
    """Most multiply-adds of one product or convolution."""
    half: float
    """Share of tasks in float16 or bfloat16."""
    half_products: bool
    """Matmuls and convolutions may use fp16 or bf16 (on a CPU they are unusably slow)."""
    wide: bool = True
    """Draw scans, attention, tables and moves of elements as well: frozen tasks predate these, and stay unchanged."""


PROFILES = {
    "cpu": DeviceProfile(1 << 10, 1 << 22, 1.5e8, 0.12, False),
    "cuda": DeviceProfile(1 << 12, 1 << 26, 4e10, 0.3, True),
    # Frozen tasks: below 100 ms per call on two CPU cores, and still enough work for a GPU.
    "neutral": DeviceProfile(1 << 16, 1 << 22, 8e8, 0.12, False, wide=False),
}

WIDTHS = (
    64,
    96,
    128,
    192,
    256,
    320,
    384,
    512,
    640,
    768,
    1024,
    1152,
    1280,
    1536,
    2048,
    2560,
    3072,
    4096,
    5120,
    8192,
    16384,
)
AWKWARD = (
    31,
    50,
    77,
    100,
    127,
    197,
    257,
    300,
    331,
    500,
    577,
    641,
    1000,
    1009,
    1023,
    1025,
    1500,
    2047,
    2049,
    3001,
    4097,
    10007,
    32003,
    50257,
)
CHANNELS = (3, 8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 768)
SIDES = (7, 8, 9, 13, 14, 16, 24, 27, 28, 32, 33, 48, 56, 64, 80, 96, 112, 127, 128, 160, 224, 256)
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100, 128, 256, 512)
LENGTHS = (
    16,
    31,
    49,
    50,
    64,
    77,
    100,
    128,
    196,
    197,
    256,
    300,
    384,
    512,
    577,
    1000,
    1024,
    2048,
    4096,
    8192,
)
HEADS = (2, 4, 6, 8, 12, 16, 32)
DEPTHS = (16, 32, 40, 48, 64, 80, 96, 128)

SMALL_ODD = {1: (5, 7, 13, 17, 21, 33), 2: (6, 10, 18, 22), 4: (12, 20, 28), 8: (16, 24, 40)}


def near(dice: Dice, wanted: float, favoured: tuple[int, ...], low: int = 1) -> int:
    """A size within a factor of 1.5 of `wanted` if one is favoured, else a number close to it."""
    fitting = [size for size in favoured if wanted / 1.5 <= size <= wanted * 1.5]
    return dice.pick(fitting) if fitting and dice.chance(0.85) else max(low, round(wanted))


def up_to(dice: Dice, limit: float, favoured: tuple[int, ...]) -> int:
    """A favoured size no larger than `limit`; the smallest without one."""
    fitting = [size for size in favoured if size <= limit]
    return dice.pick(fitting) if fitting else favoured[0]


def width(dice: Dice, limit: float) -> int:
    """Length of a row: with probability 3/4 a size that networks use."""
    favoured = WIDTHS if dice.chance(0.75) else AWKWARD
    low = dice.log_uniform(24, max(32.0, limit))
    return near(dice, low, favoured, 2) if dice.chance(0.8) else up_to(dice, limit, favoured)


def small_of(dice: Dice, native: int) -> int:
    """The small twin of a native size."""
    if native <= 4:
        return native
    twins = [size for size in SMALL_ODD[math.gcd(native, 8)] if size <= native]
    return dice.pick(twins[:4]) if twins else native
