"""Integer index arithmetic: affine expressions over loop variables of known extent.

An access is exact or it is refused: `divmod_by` splits an expression only when quotient and remainder are again affine for every value of
the variables, so kernels compute only divisions that the loops already provide. Symbolic extents are not covered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

_ids = count()


@dataclass(frozen=True, eq=False)
class Var:
    """One loop variable; identity, not name, makes it equal to another."""

    size: int
    id: int = field(default_factory=lambda: next(_ids))

    def __repr__(self) -> str:
        return f"i{self.id}<{self.size}"


@dataclass(frozen=True)
class Affine:
    """`const + Σ coef · var`; terms with coefficient 0 or extent 1 are dropped."""

    terms: tuple[tuple[Var, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(var: Var) -> Affine:
        return Affine.build({var: 1})

    @staticmethod
    def build(coefs: Mapping[Var, int], const: int = 0) -> Affine:
        kept = [(v, c) for v, c in coefs.items() if c and v.size > 1]
        if len(kept) > 1:
            kept.sort(key=lambda t: (int.__neg__(t[1]), t[0].id))
        return Affine(tuple(kept), const)

    def __add__(self, other: Affine) -> Affine:
        if not other.terms or not self.terms:
            return Affine(self.terms or other.terms, self.const + other.const)
        coefs = dict(self.terms)
        for var, coef in other.terms:
            coefs[var] = coefs.get(var, 0) + coef
        return Affine.build(coefs, self.const + other.const)

    def scale(self, factor: int) -> Affine:
        if factor == 1:
            return self
        return Affine.build({v: c * factor for v, c in self.terms}, self.const * factor)

    def shift(self, amount: int) -> Affine:
        return Affine(self.terms, self.const + amount)

    def substitute(self, replacement: Mapping[Var, Affine]) -> Affine:
        if not any(var in replacement for var, _ in self.terms):
            return self
        coefs: dict[Var, int] = {}
        const = self.const
        for var, coef in self.terms:
            piece = replacement.get(var)
            if piece is None:
                coefs[var] = coefs.get(var, 0) + coef
                continue
            const = const + piece.const * coef
            for inner, factor in piece.terms:
                coefs[inner] = coefs.get(inner, 0) + factor * coef
        return Affine.build(coefs, const)

    @property
    def vars(self) -> frozenset[Var]:
        return frozenset(v for v, _ in self.terms)

    def coef(self, var: Var) -> int:
        return dict(self.terms).get(var, 0)

    def span(self) -> tuple[int, int]:
        """Smallest and largest value over all variables."""
        lo = self.const + sum(c * (v.size - 1) for v, c in self.terms if c < 0)
        hi = self.const + sum(c * (v.size - 1) for v, c in self.terms if c > 0)
        return lo, hi

    def divmod_by(self, divisor: int) -> tuple[Affine, Affine] | None:
        """Quotient and remainder as affine expressions, or None if they are not affine."""
        quotient = {v: c // divisor for v, c in self.terms if c % divisor == 0}
        rest = Affine.build({v: c for v, c in self.terms if c % divisor}, self.const % divisor)
        lo, hi = rest.span()
        if lo < 0 or hi >= divisor:
            return None
        return Affine.build(quotient, self.const // divisor), rest


ZERO = Affine()
Index = tuple[Affine, ...]


def contiguous_strides(shape: Iterable[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(tuple(shape)):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def linearize(index: Index, strides: Iterable[int]) -> Affine:
    """Element offset of a multi-dimensional index."""
    total = ZERO
    for part, stride in zip(index, strides, strict=True):
        total = total + part.scale(stride)
    return total


def delinearize(offset: Affine, shape: tuple[int, ...]) -> Index | None:
    """The row-major index of an element offset, or None if it is not affine."""
    index: list[Affine] = []
    for stride in contiguous_strides(shape)[:-1] if shape else ():
        split = offset.divmod_by(stride)
        if split is None:
            return None
        index.append(split[0])
        offset = split[1]
    if shape:
        index.append(offset)
    return tuple(ZERO if size == 1 else part for part, size in zip(index, shape, strict=True))


def radix(offset: Affine) -> list[Var] | None:
    """The variables of a dense row-major enumeration, outermost first; None if it is not dense."""
    if offset.const:
        return None
    order = sorted(offset.terms, key=lambda t: t[1])
    expected = 1
    for var, coef in order:
        if coef != expected:
            return None
        expected *= var.size
    return [var for var, _ in reversed(order)]


def refine(
    left: list[Var], right: list[Var]
) -> tuple[list[Var], dict[Var, Affine], dict[Var, Affine]] | None:
    """Split two row-major variable lists with equal products until they are one list.

    Returns:
        The common list, and for each side the substitution from its old variables to the new ones; variables already in common are kept.
        None if the factors do not divide each other.
    """
    common: list[Var] = []
    parts: tuple[dict[Var, list[Var]], dict[Var, list[Var]]] = ({}, {})
    stacks = ([(v, v.size) for v in reversed(left)], [(v, v.size) for v in reversed(right)])
    # Both stacks hold the outermost remaining factor at their end after reversal; walk from the innermost.
    walk_left, walk_right = stacks[0], stacks[1]
    i = j = 0
    rest_left = walk_left[0][1] if walk_left else 1
    rest_right = walk_right[0][1] if walk_right else 1
    while i < len(walk_left) and j < len(walk_right):
        a, b = walk_left[i][0], walk_right[j][0]
        step = min(rest_left, rest_right)
        if max(rest_left, rest_right) % step:
            return None
        whole = rest_left == a.size == step and rest_right == b.size == step
        piece = (
            b if rest_right == b.size == step else a if rest_left == a.size == step else Var(step)
        )
        if whole:
            piece = b
        common.append(piece)
        parts[0].setdefault(a, []).append(piece)
        parts[1].setdefault(b, []).append(piece)
        rest_left //= step
        rest_right //= step
        if rest_left == 1:
            i += 1
            rest_left = walk_left[i][1] if i < len(walk_left) else 1
        if rest_right == 1:
            j += 1
            rest_right = walk_right[j][1] if j < len(walk_right) else 1
    if i < len(walk_left) or j < len(walk_right):
        return None
    return list(reversed(common)), _join(parts[0]), _join(parts[1])


def _join(parts: dict[Var, list[Var]]) -> dict[Var, Affine]:
    substitution: dict[Var, Affine] = {}
    for var, pieces in parts.items():
        if pieces == [var]:
            continue
        total, step = ZERO, 1
        for piece in pieces:
            total = total + Affine.build({piece: step})
            step *= piece.size
        substitution[var] = total
    return substitution
