"""Axes that the dimensions of a step's values run over.

A dimension is a tuple of axes, the last one fastest: none for a size of 1, two for `view(B * H, …)`. Axes start out different and become
one where values meet; one is split where a reshape splits its dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dvk.composer.capture.time_marks import Unfit

Dim = tuple[int, ...]


class Axes:
    """All axes of a loop, by number."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._same: dict[int, Dim] = {}
        self.changes = 0
        self.made: dict[tuple[str, object], Dim] = {}
        """Dimensions of sums, by operator."""

    def new(self, size: int) -> Dim:
        """A dimension that meets no other yet."""
        if size == 1:
            return ()
        self.sizes.append(size)
        return (len(self.sizes) - 1,)

    def now(self, dim: Iterable[int]) -> Dim:
        """The axes that a dimension runs over by what is known now."""
        result: list[int] = []
        for axis in dim:
            if axis in self._same:
                result += self.now(self._same[axis])
            else:
                result.append(axis)
        return tuple(result)

    def size(self, dim: Iterable[int]) -> int:
        return math.prod(self.sizes[a] for a in self.now(dim))

    def join(self, one: Dim, other: Dim) -> None:
        """The dimensions run over the same places.

        Raises:
            Unfit: they cannot.
        """
        while True:
            a, b = list(self.now(one)), list(self.now(other))
            while a and b and a[-1] == b[-1]:
                a.pop()
                b.pop()
            if not a and not b:
                return
            if not a or not b:
                raise Unfit
            self._meet(a[-1], b[-1])

    def _meet(self, a: int, b: int) -> None:
        self.changes += 1
        if self.sizes[a] == self.sizes[b]:
            self._same[b] = (a,)
        elif self.sizes[a] > self.sizes[b]:
            self.split(a, self.sizes[b])
        else:
            self.split(b, self.sizes[a])

    def split(self, axis: int, inner: int) -> None:
        """Make two axes of one, the inner one of this size."""
        if self.sizes[axis] % inner or inner in (1, self.sizes[axis]):
            raise Unfit
        self.changes += 1
        self._same[axis] = (*self.new(self.sizes[axis] // inner), *self.new(inner))

    def regrouped(self, dims: Sequence[Dim], shape: Sequence[int]) -> list[Dim]:
        """The dimensions of a reshape's operand, which has this shape, from those of its result."""
        flat = [a for dim in dims for a in self.now(dim)]
        result: list[Dim] = []
        for size in reversed(shape):
            dim: list[int] = []
            while self.size(dim) < size:
                if not flat:
                    raise Unfit
                left = size // self.size(dim)
                if self.sizes[flat[-1]] > left:
                    self.split(flat[-1], left)
                    flat[-1:] = self.now(flat[-1:])
                dim.insert(0, flat.pop())
            if self.size(dim) != size:
                raise Unfit
            result.insert(0, tuple(dim))
        if flat:
            raise Unfit
        return result
