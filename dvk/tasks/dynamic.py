"""Grammar of `--dynamic`: an input with named dimensions and the range of their sizes. Parses only.

    NAME=DTYPE[DIM,DIM,…][<HIGH][:FILL]     x=float32[batch:1..4096, 197, 768]     y=float32[batch, 16]

DIM is a number, `NAME:LO..HI` (both ends included), or the name of a dimension with a range elsewhere: tensors share it. The rest is as in
`--input` (`dvk.tasks.specs`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from dvk.errors import TaskError
from dvk.records import ShapeVariant, Task
from dvk.tasks.specs import parse_input

HINT = 'write e.g. --dynamic "x=float32[batch:1..4096, 197, 768]"; another input shares the dimension by its name: "y=float32[batch, 16]"'
LEAST_WIDTH = 4
"""Sizes in the narrowest range that is worth one program."""
MAX_DIMS = 3
NUM_POINTS = {1: 4, 2: 2, 3: 1}
"""Number of dimensions → sizes of each at which schedules are measured."""

_SPEC = re.compile(
    r"\s*(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<dtype>[a-z]+\d*)\[(?P<dims>[^\]]*)\](?P<rest>.*)",
    re.DOTALL,
)
_DIM = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\s*:\s*(?P<lo>\d+)\s*\.\.\s*(?P<hi>\d+))?")


@dataclass(frozen=True)
class DynamicDim:
    """A named dimension and the sizes it may have, both ends included."""

    name: str
    lo: int
    hi: int

    def __contains__(self, size: int) -> bool:
        return self.lo <= size <= self.hi

    def __str__(self) -> str:
        return f"{self.name}:{self.lo}..{self.hi}"


Sizes = Mapping[str, int]
"""The size of each dimension, by name."""


@dataclass(frozen=True)
class DynamicInputs:
    """The inputs of all `--dynamic` of a command."""

    dims: tuple[DynamicDim, ...]
    inputs: tuple[tuple[str, str, tuple[str | int, ...], str], ...]
    """Name, dtype, sizes or names of dimensions, and the rest of the spec."""

    def specs(self, sizes: Sizes, given: Sequence[str], *, drawn: bool) -> tuple[str, ...]:
        """All inputs as `--input` specs at these sizes.

        Args:
            given: the command's `--input`.
            drawn: the file has get_inputs(), which says how values are drawn.
        """
        made = {parse_input(text).name: text for text in given}
        for name, dtype, shape, rest in self.inputs:
            dims = ",".join(str(sizes[d] if isinstance(d, str) else d) for d in shape)
            how = rest or (":like" if drawn else "")
            made[name] = f"{name}={dtype}[{dims}]{how}"
        return tuple(made.values())

    def variant(self, sizes: Sizes) -> ShapeVariant:
        """The inputs at these sizes, as the judge draws them."""
        changes = tuple(
            (name, position, sizes[d])
            for name, _, shape, _ in self.inputs
            for position, d in enumerate(shape)
            if isinstance(d, str)
        )
        return ShapeVariant(name=label(sizes), changes=changes)

    def points(self) -> list[dict[str, int]]:
        """Sizes at which schedules are measured: the middles of equal stretches on a logarithmic scale, as a grid."""
        number = NUM_POINTS[len(self.dims)]
        axes = []
        for dim in self.dims:
            ratio = dim.hi / dim.lo
            middles = [round(dim.lo * ratio ** ((k + 0.5) / number)) for k in range(number)]
            axes.append(list(dict.fromkeys(min(max(m, 2), dim.hi) for m in middles)))
        return [dict(zip((d.name for d in self.dims), sizes)) for sizes in product(*axes)]

    def fitted(self) -> list[dict[str, int]]:
        """Sizes at which a graph is captured to find its formulas: primes where there are enough, spread over the range."""
        number = 3 if len(self.dims) == 1 else 3 + len(self.dims)
        axes = [_spread(dim, number) for dim in self.dims]
        return [
            {
                # In another order for each dimension, so that no two grow together.
                dim.name: axis[(k * (1 + place) + place) % number if place else k]
                for place, (dim, axis) in enumerate(zip(self.dims, axes))
            }
            for k in range(number)
        ]

    def check(self, given: Sequence[str]) -> None:
        """Refuse an `--input` of the same name that the range does not hold.

        Raises:
            TaskError: its size is outside of the range, or a fixed size differs.
        """
        limits = {dim.name: dim for dim in self.dims}
        told = {spec.name: spec for spec in map(parse_input, given)}
        for name, _, shape, _ in self.inputs:
            spec = told.get(name)
            if spec is None or spec.dtype is None:
                continue
            for position, (size, d) in enumerate(zip(spec.shape, shape)):
                if isinstance(d, str) and size not in limits[d]:
                    raise TaskError(
                        f"--input `{name}` has {d}={size}, outside of {limits[d]}",
                        "widen the range of --dynamic, or drop the --input",
                    )
                if isinstance(d, int) and size != d:
                    raise TaskError(
                        f"--input `{name}` has size {size} in dimension {position}, --dynamic {d}",
                        "give both the same size, or drop the --input",
                    )


def parse(texts: Sequence[str]) -> DynamicInputs | None:
    """Read all `--dynamic` of one command line; None if there are none.

    Raises:
        TaskError: one does not follow the grammar, a range is none, or a name is used twice or never given a range.
    """
    if not texts:
        return None
    dims: dict[str, DynamicDim] = {}
    inputs: list[tuple[str, str, tuple[str | int, ...], str]] = []
    for text in texts:
        match = _SPEC.fullmatch(text)
        if match is None:
            raise TaskError(f"cannot read --dynamic `{text}`", HINT)
        if match["name"] in {one[0] for one in inputs}:
            raise TaskError(
                f"--dynamic `{match['name']}` is given twice", "give every input one --dynamic"
            )
        shape = tuple(_dimension(piece.strip(), text, dims) for piece in match["dims"].split(","))
        parse_input(
            f"{match['name']}={match['dtype']}[{','.join('2' if isinstance(d, str) else str(d) for d in shape)}]{match['rest']}"
        )
        inputs.append((match["name"], match["dtype"], shape, match["rest"].strip()))
    used = {d for _, _, shape, _ in inputs for d in shape if isinstance(d, str)}
    if unknown := sorted(used - dims.keys()):
        raise TaskError(
            f"dimension `{unknown[0]}` has no range",
            f"write it where it first stands, e.g. {unknown[0]}:1..4096",
        )
    if not dims:
        raise TaskError(f"--dynamic `{texts[0]}` names no dimension", HINT)
    if len(dims) > MAX_DIMS:
        raise TaskError(
            f"--dynamic has {len(dims)} dimensions", f"at most {MAX_DIMS} can vary in one program"
        )
    return DynamicInputs(tuple(dims.values()), tuple(inputs))


def _dimension(piece: str, text: str, dims: dict[str, DynamicDim]) -> str | int:
    """One entry of a shape; a range is entered among `dims`."""
    if piece.isdigit() and int(piece) > 0:
        return int(piece)
    match = _DIM.fullmatch(piece)
    if match is None:
        raise TaskError(
            f"--dynamic `{text.strip()}`: `{piece}` is neither a size nor a range", HINT
        )
    name = match["name"]
    if match["lo"] is not None:
        lo, hi = int(match["lo"]), int(match["hi"])
        if not 1 <= lo <= hi:
            raise TaskError(
                f"--dynamic `{text.strip()}`: {lo}..{hi} is no range of sizes",
                "write the smaller size first; the least is 1",
            )
        if hi - lo < LEAST_WIDTH - 1:
            raise TaskError(
                f"--dynamic `{text.strip()}`: {lo}..{hi} holds fewer than {LEAST_WIDTH} sizes",
                "give each size its --extra-input instead",
            )
        if name in dims and dims[name] != DynamicDim(name, lo, hi):
            raise TaskError(
                f"dimension `{name}` has two ranges: {dims[name]} and {lo}..{hi}",
                "give it one range",
            )
        dims[name] = DynamicDim(name, lo, hi)
    return name


def label(sizes: Sizes) -> str:
    """Sizes as text: `batch=7, seq=128`."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def sampled(dims: Sequence[DynamicDim], box: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """Sizes of a stretch at which one program is checked: both ends, their neighbours, an odd and a prime one between.

    With several dimensions each takes its sizes in turn, the corners first.
    """
    axes = {dim.name: _along(*box[dim.name]) for dim in dims}
    corners = product(*((axis[0], axis[1]) for axis in axes.values()))
    longest = max(map(len, axes.values()))
    mixed = [
        tuple(axis[(k + shift) % len(axis)] for shift, axis in enumerate(axes.values()))
        for k in range(longest)
    ]
    every = dict.fromkeys([*corners, *mixed])
    return [dict(zip(axes, sizes)) for sizes in every]


def _along(lo: int, hi: int) -> list[int]:
    middle = math.isqrt(lo * hi)
    odd = middle + 1 - middle % 2
    prime = next((n for n in range(middle + 2, hi) if is_prime(n)), hi)
    sizes = dict.fromkeys([lo, hi, min(lo + 1, hi), max(hi - 1, lo), min(odd, hi), prime])
    return [*sizes] if len(sizes) > 1 else [lo, lo]


def _spread(dim: DynamicDim, number: int) -> list[int]:
    """So many sizes of a range, spread on a logarithmic scale; a narrow range repeats some."""
    lo = max(dim.lo, 2)
    points: list[int] = []
    for k in range(number):
        near = round(lo * (dim.hi / lo) ** (k / (number - 1)))
        order = sorted(range(lo, dim.hi + 1), key=lambda n: abs(n - near))[:200]
        free = [n for n in order if n not in points] or order
        points.append(next((n for n in free if is_prime(n)), free[0]))
    return points


def is_prime(n: int) -> bool:
    """Whether n has no divisor but 1 and itself."""
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def with_variants(task: Task, variants: Sequence[ShapeVariant]) -> Task:
    """The task with these sizes in place of those that the judge would try by itself."""
    return task.model_copy(
        update={"shape_variants": tuple(variants), "num_shape_variants": 1 + len(variants)}
    )
