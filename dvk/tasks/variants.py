"""Other sizes of the inputs to try on the reference. Shapes only: runs nothing.

An *axis* is a size that several input dimensions share and that can change as one: the batch (dimension 0 of the first tensor and of all
others as long), the width (last dimension), and those between. Axes are tried in that order, each with its likeliest set of members first.
Odd sizes come before size 1: they break alignment and even splits. On a GPU an out-of-range index at a small size kills the process, so
risky sizes come last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dvk.errors import TaskError
from dvk.records import ShapeVariant, TensorSpec

MAX_VARIANTS = 5
BATCH_ENOUGH = 3  # with so many of them, other axes add one each
GROW_BYTES = 64 << 20  # inputs and outputs beyond this shrink to half instead of growing to double

FEW = 2

Members = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class SizeAxis:
    """A size and the sets of input dimensions that may have it, likeliest set first."""

    label: str
    size: int
    groups: tuple[Members, ...]


def axes(inputs: Sequence[TensorSpec]) -> list[SizeAxis]:
    """Return the axes of a call, batch first, then from the last dimension inwards."""
    lead = next((spec for spec in inputs if spec.shape), None)
    if lead is None:
        return []
    result = [
        SizeAxis(
            "batch",
            lead.shape[0],
            _distinct(
                tuple((s.name, 0) for s in inputs if s.shape and s.shape[0] == lead.shape[0]),
                _everywhere(inputs, lead.shape[0]),
                ((lead.name, 0),),
            ),
        )
    ]
    if any(spec.dtype in ("int16", "int32", "int64", "uint8") for spec in inputs):
        return result  # integers may index into any other dimension: its size is not free
    for back in range(1, len(lead.shape)):
        dimension = len(lead.shape) - back
        size = lead.shape[dimension]
        label = "width" if back == 1 else f"dim{dimension}"
        result.append(
            SizeAxis(
                label,
                size,
                _distinct(
                    tuple(
                        (s.name, len(s.shape) - back)
                        for s in inputs
                        if len(s.shape) >= back and s.shape[-back] == size
                    ),
                    _everywhere(inputs, size),
                    ((lead.name, dimension),),
                ),
            )
        )
    return result


def sizes(axis: SizeAxis, num_bytes: int, enough: bool) -> Iterator[tuple[str, int]]:
    """Return names and sizes to try along an axis.

    Args:
        axis: the axis.
        num_bytes: bytes of the native inputs and outputs.
        enough: other axes already gave BATCH_ENOUGH variants; one more does.
    """
    n, label = axis.size, axis.label
    seen = {n}
    for name, size in _proposals(label, n, num_bytes):
        if size >= 1 and size not in seen and (label == "batch" or not enough or len(seen) == 1):
            seen.add(size)
            yield name, size


def variant(name: str, members: Members, size: int) -> ShapeVariant:
    """Return the record of one size along one set of members."""
    return ShapeVariant(
        name=name, changes=tuple((leaf, dimension, size) for leaf, dimension in members)
    )


def listed(function: object, inputs: Sequence[TensorSpec]) -> list[ShapeVariant] | None:
    """Return the variants that a file lists; None if it has no such function.

    Raises:
        TaskError: it fails, or an entry is no (name, [(input, dimension, size), …]) of the inputs.
    """
    if not callable(function):
        return None
    hint = 'return e.g. [("batch=1", [("x", 0, 1)])]'
    ranks = {spec.name: len(spec.shape) for spec in inputs}
    found = []
    try:
        for name, changes in function():
            for one, dimension, size in changes:
                if one not in ranks or not 0 <= dimension < ranks[one] or size < 1:
                    raise TaskError(
                        f"get_shape_variants() has no valid ({one!r}, {dimension}, {size})", hint
                    )
            found.append(ShapeVariant(name=name, changes=tuple(map(tuple, changes))))
    except TaskError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise TaskError(f"get_shape_variants() failed: {error}", hint) from error
    return found


def few(found: Sequence[ShapeVariant]) -> tuple[ShapeVariant, ...]:
    """Return the variants that a brief look is at: up to `FEW`, unlike each other."""
    return tuple(found[:: max(1, len(found) // FEW)][:FEW])


def safe_to_broadcast(axis: SizeAxis, members: Members) -> bool:
    """Whether size 1 keeps its meaning: `members` is not one tensor's dimension alone, which others would broadcast."""
    return len(axis.groups) == 1 or members != axis.groups[-1]


def _proposals(label: str, n: int, num_bytes: int) -> Iterator[tuple[str, int]]:
    if label != "batch":
        less = 1 if n % 2 == 0 else 2
        if n > 2 * less:
            yield f"{label}-{less}", n - less
    more = 3 if n % 2 == 0 else 2
    yield f"{label}+{more}", n + more
    if num_bytes <= GROW_BYTES or n < 4:
        yield f"{label}*2+1", 2 * n + 1
    elif n % 4 == 0 or n % 4 == 1:
        yield f"{label}/2+1", n // 2 + 1
    else:
        yield f"{label}/2", n // 2
    if label == "batch":
        yield "batch=1", 1


def _everywhere(inputs: Sequence[TensorSpec], size: int) -> Members:
    return tuple((s.name, d) for s in inputs for d, n in enumerate(s.shape) if n == size)


def _distinct(*groups: Members) -> tuple[Members, ...]:
    return tuple(dict.fromkeys(groups))
