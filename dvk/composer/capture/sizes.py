"""A captured graph whose sizes are formulas of named dimensions, found by capturing at several sizes.

    found = formulas(dims, {sizes: captured graph})
    found.at({"batch": 31})     # the graph with `SymbolicSize`s in place of the numbers that depend on batch

The graphs are compared number by number. A number that is the same in all of them stays a number; another must be a polynomial of the
dimensions that every capture satisfies. Whatever else differs (operators, their order, a float made of a size) means that forward decides
by the size: `SizeDependent` says what.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from typing import Any

from dvk.composer.capture.captured import CapturedGraph
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.symint import symbol
from dvk.records import Node
from dvk.tasks.dynamic import DynamicDim

MAX_DEGREE = 3
"""Of a product of dimensions in a formula: a stride steps over a few of them."""
MAX_TERMS = 3
"""Of a formula."""


class SizeDependent(CannotCompose):
    """The graph is not the same at all sizes."""


Sizes = tuple[int, ...]
"""One size for each dimension, in their order."""
Product = tuple[str, ...]
"""A product of dimensions, by name; empty for 1."""


@dataclass(frozen=True)
class Formula:
    """A polynomial of dimensions: (product, coefficient), …"""

    terms: tuple[tuple[Product, int], ...]

    def value(self, sizes: Mapping[str, int]) -> int:
        """The number at these sizes; symbolic if they are."""
        total = 0
        for product, coefficient in self.terms:
            total = total + math.prod((sizes[name] for name in product), start=coefficient)
        return total


@dataclass(frozen=True)
class SizedGraph:
    """A module's graph for every size of some dimensions."""

    dims: tuple[DynamicDim, ...]
    captured: CapturedGraph
    """One of the captures it was made of: what it holds except the graph is the same at every size."""
    nodes: tuple[Node, ...]
    """Numbers that depend on a size are `Formula`s."""
    outputs: Any

    def at(self, sizes: Mapping[str, int]) -> CapturedGraph:
        """The graph with symbolic sizes whose values are `sizes`.

        Decisions of the composer are made by the values, its texts name the dimensions.
        """
        named = {dim.name: symbol(dim.name, sizes[dim.name]) for dim in self.dims}
        nodes = tuple(
            node.model_copy(
                update={
                    field: _filled(getattr(node, field), named)
                    for field in ("args", "kwargs", "shape", "strides")
                }
            )
            for node in self.nodes
        )
        graph = self.captured.graph.model_copy(
            update={"nodes": nodes, "outputs": _filled(self.outputs, named)}
        )
        return self.captured.model_copy(update={"graph": graph})

    def numbers(self) -> set[int]:
        """Numbers of the graph that no size changes."""
        values: set[int] = set()
        for node in self.nodes:
            _collect((node.args, node.kwargs, node.shape, node.strides), values)
        return values


def operators(dims: Sequence[DynamicDim], captures: Mapping[Sizes, CapturedGraph]) -> None:
    """Refuse captures at several sizes that run other operators.

    Raises:
        SizeDependent: says at which sizes.
    """
    match = _Match(tuple(dims), tuple(captures))
    first, *others = captures.values()
    for other, sizes in zip(others, match.sizes[1:], strict=True):
        if _running(first) != _running(other):
            raise SizeDependent(match.differ("its operators", sizes))


def _running(captured: CapturedGraph) -> list[tuple[str, str, str | None, str | None]]:
    return [(n.name, n.op, n.dtype, n.target) for n in captured.graph.nodes]


def formulas(dims: Sequence[DynamicDim], captures: Mapping[Sizes, CapturedGraph]) -> SizedGraph:
    """Make one graph of captures at several sizes, which differ in every dimension.

    Raises:
        SizeDependent: the graphs differ in more than numbers that follow from the sizes.
    """
    match = _Match(tuple(dims), tuple(captures))
    every = list(captures.values())
    operators(dims, captures)
    for other, sizes in zip(every[1:], match.sizes[1:], strict=True):
        kept = [one.model_dump(exclude={"graph", "blocks"}) for one in (every[0], other)]
        if changed := [key for key in kept[0] if kept[0][key] != kept[1][key]]:
            raise SizeDependent(match.differ(f"its {changed[0]}", sizes))
    nodes = []
    for same in zip(*(one.graph.nodes for one in every), strict=True):
        changes = {
            field: match.merged([getattr(node, field) for node in same], same[0].op)
            for field in ("args", "kwargs", "shape", "strides")
        }
        nodes.append(same[0].model_copy(update=changes))
    outputs = match.merged([one.graph.outputs for one in every], "the result")
    return SizedGraph(match.dims, every[0], tuple(nodes), outputs)


@dataclass(frozen=True)
class _Match:
    dims: tuple[DynamicDim, ...]
    sizes: tuple[Sizes, ...]

    def differ(self, what: str, other: Sizes) -> str:
        """One line: what differs between the first capture and another."""
        first, second = (
            ", ".join(f"{dim.name}={size}" for dim, size in zip(self.dims, one, strict=True))
            for one in (self.sizes[0], other)
        )
        return f"forward depends on the size: {what} at {first} and at {second} differ"

    def merged(self, values: Sequence[Any], where: str) -> Any:
        """One value of those of all captures; `where` names the operator."""
        first = values[0]
        if all(type(v) is type(first) and v == first for v in values):
            return first
        if all(type(v) is int for v in values):
            return self.formula(list(values), where)
        if all(isinstance(v, (list, tuple)) and len(v) == len(first) for v in values):
            return type(first)(self.merged(parts, where) for parts in zip(*values, strict=True))
        if all(isinstance(v, dict) and v.keys() == first.keys() for v in values):
            return {key: self.merged([v[key] for v in values], where) for key in first}
        other = next(n for n, v in enumerate(values) if v != first)
        what = f"an operand of {_short(where)} ({first!r:.40} and {values[other]!r:.40})"
        raise SizeDependent(self.differ(what, self.sizes[other]))

    def formula(self, values: list[int], where: str) -> Formula:
        """The polynomial with the fewest terms that has these values at the captures' sizes."""
        names = [dim.name for dim in self.dims]
        products: list[Product] = [
            product
            for degree in range(MAX_DEGREE + 1)
            for product in combinations_with_replacement(names, degree)
        ]
        rows = [
            [math.prod(sizes[names.index(n)] for n in product) for product in products]
            for sizes in self.sizes
        ]
        for count in range(1, min(MAX_TERMS, len(values) - 1) + 1):
            for chosen in combinations(range(len(products)), count):
                coefficients = _solved([[row[c] for c in chosen] for row in rows], values)
                if coefficients is not None:
                    return Formula(
                        tuple((products[c], n) for c, n in zip(chosen, coefficients, strict=True))
                    )
        other = next(n for n, value in enumerate(values) if value != values[0])
        told = ", ".join(map(str, values))
        what = f"a size of {_short(where)} ({told}), which is no product or sum,"
        raise SizeDependent(self.differ(what, self.sizes[other]))


def _short(operator: str) -> str:
    return operator.removeprefix("aten.").removesuffix(".default")


def _solved(rows: list[list[int]], values: list[int]) -> list[int] | None:
    """Whole numbers, none of them 0, that solve every equation; None if there are none."""
    count = len(rows[0])
    left = [
        [Fraction(n) for n in row] + [Fraction(value)]
        for row, value in zip(rows[:count], values[:count], strict=True)
    ]
    for column in range(count):
        pivot = next((r for r in range(column, count) if left[r][column]), None)
        if pivot is None:
            return None
        left[column], left[pivot] = left[pivot], left[column]
        for r in range(count):
            if r != column and left[r][column]:
                by = left[r][column] / left[column][column]
                left[r] = [a - by * b for a, b in zip(left[r], left[column], strict=True)]
    solution = [left[r][count] / left[r][r] for r in range(count)]
    if any(n.denominator != 1 or not n for n in solution):
        return None
    whole = [int(n) for n in solution]
    fits = all(
        sum(a * b for a, b in zip(row, whole, strict=True)) == value
        for row, value in zip(rows, values, strict=True)
    )
    return whole if fits else None


def _filled(value: Any, named: Mapping[str, int]) -> Any:
    if isinstance(value, Formula):
        return value.value(named)
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(v, named) for v in value)
    if isinstance(value, dict):
        return {key: _filled(v, named) for key, v in value.items()}
    return value


def _collect(value: Any, found: set[int]) -> None:
    if type(value) is int:
        found.add(value)
    elif isinstance(value, (list, tuple)):
        for v in value:
            _collect(v, found)
    elif isinstance(value, dict):
        for v in value.values():
            _collect(v, found)
