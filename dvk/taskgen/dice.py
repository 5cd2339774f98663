"""Random choices that are identical on every version of Python: all derive from `Random.random()`."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Dice:
    """A seeded source of choices."""

    def __init__(self, seed: int):
        self.random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.random() < probability

    def between(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, uniformly."""
        return items[int(self.random() * len(items))]

    def weighted(self, weights: Mapping[Item, float]) -> Item:
        """One of the keys, by its weight."""
        at = self.random() * sum(weights.values())
        for item, weight in weights.items():
            at -= weight
            if at < 0:
                return item
        return list(weights)[-1]

    def number(self, low: float, high: float) -> float:
        """A number with two decimals, never 0 or 1, which would change nothing."""
        value = round(low + self.random() * (high - low), 2)
        return value if value not in (0.0, 1.0) else value + 0.25

    def log_uniform(self, low: float, high: float) -> float:
        """A number whose logarithm is uniform."""
        return math.exp(math.log(low) + self.random() * (math.log(high) - math.log(low)))

    def normal(self) -> float:
        """A standard normal number (Box and Muller)."""
        return math.sqrt(-2.0 * math.log(1.0 - self.random())) * math.cos(
            2.0 * math.pi * self.random()
        )

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """The items in a random order."""
        return [
            item
            for _, _, item in sorted(
                (self.random(), position, item) for position, item in enumerate(items)
            )
        ]


def derived(*parts: object) -> int:
    """A seed of 48 bits that depends on all parts."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
