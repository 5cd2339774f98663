"""Input sets that a tier compares, in order.

The first is always the native one with the weights as constructed. The most telling sets for their cost come first, so that a wrong
candidate fails early: another distribution with other weights, integers, another shape. Weights change between calls of one candidate and
return at the end, which shows a kernel that folded them once.

Families are drawn with a smaller batch if the native shape is large (`reduced`): they look for wrong arithmetic, which does not depend on
the batch, and the native draws cover every element of the full one.
Measured on two busy cores: drawing 65 M inputs and the float64 truth take 9 s, at the smaller batch 0.6 s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from dvk.harness.checking.input_families import FAMILIES, NATIVE, NONFINITE, QUANTISED
from dvk.harness.checking.weight_sets import INTEGERS
from dvk.harness.seeds import derived
from dvk.records import ShapeVariant, Task, TensorSpec
from dvk.tasks import variants
from dvk.tasks.specs import INTEGERS as INTEGER_DTYPES

LARGE_BYTES = {"cpu": 2 << 20, "cuda": 64 << 20}
"""Elements of inputs and outputs of a native call beyond which families, and calls with a float64 truth, are drawn with about half of
this."""
OTHER_MODE = "other mode"
CODES = ("int8", "uint8", "int16", "int32")


@dataclass(frozen=True)
class InputSetKey:
    """One input set: a shape variant, a family, a weight set and a seed, with or without gradients."""

    variant: str
    family: str
    weights: int
    seed: int
    backward: bool = False
    other_mode: bool = False
    """Whether train and eval mode are swapped."""
    told: str = ""
    """Description of changed arguments other than tensors: `alpha=0.3`."""

    @property
    def text(self) -> str:
        """Return a text for people: `native zero_mean`, `batch+3`."""
        family = self.family if self.family != NATIVE else ""
        return " ".join(
            part
            for part in (
                self.variant,
                family,
                self.told,
                "in the other mode" if self.other_mode else "",
            )
            if part
        )

    @property
    def kind(self) -> str:
        """Return the kind of inputs, under which reasons for leaving it out are kept."""
        if self.other_mode:
            return OTHER_MODE
        return self.family if self.family != NATIVE else self.variant

    @property
    def place(self) -> str:
        """Return a key that is equal for calls with the same memory layout and the same other arguments."""
        return f"{self.variant} {self.told}"


def plan(
    task: Task,
    tier: str,
    num_seeds: int,
    base_seed: int,
    *,
    backward: bool = False,
    brief: bool = False,
    finite_only: bool = False,
) -> list[InputSetKey]:
    """Return the input sets of a tier.

    smoke: the native draw, zero_mean, other arguments, up to two other shapes. search: `num_seeds` native draws, every family, two
    other shapes, the other mode. claim: every other shape, twice as many draws of each family, a third weight set. `brief`, for
    ranking many candidates that trust each other: as search, but one native draw. `finite_only` leaves out `NONFINITE`.
    Tasks whose inputs may be codes have quantised ones first, of which smoke takes one.
    """
    others, few = (
        [variant.name for variant in chosen]
        for chosen in (task.shape_variants, variants.few(task.shape_variants))
    )
    small = reduced(task)
    at = small.name if small is not None else NATIVE

    def family(name: str, other: bool = False) -> tuple[str, str, int]:
        # In turn: a candidate that caches values computed from the weights must notice each way in which they change (`weight_rewrites`).
        return at, name, INTEGERS if name == "integers" else 1 + (FAMILIES.index(name) + other) % 2

    native = (NATIVE, NATIVE, 0)
    families = [name for name in FAMILIES if not (finite_only and name in NONFINITE)]
    start = [native, *[(at, QUANTISED, n) for n in (1, 2) if _may_be_quantised(task)]]
    if tier == "smoke":
        draws = [
            *start[:2],
            family("zero_mean"),
            family("arguments"),
            *[(name, NATIVE, 1) for name in few],
        ]
    else:
        first, second, *rest = families
        draws = [*start, family(first), family(second), *[(name, NATIVE, 1) for name in few[:1]]]
        draws += [family(name) for name in rest]
        draws += [
            (name, NATIVE, 1)
            for name in (few[1:] if tier == "search" else [n for n in others if n not in few[:1]])
        ]
        if tier == "claim":
            draws += [family(name, True) for name in families] + [(NATIVE, NATIVE, 2)]
        draws.append((at, OTHER_MODE, 1))
        # Timed calls are native draws, too, and each of their outputs is checked.
        draws += [native] * (
            0 if brief else num_seeds - 1 if small is None else min(1, num_seeds - 1)
        )
    return [
        InputSetKey(
            v,
            NATIVE if f == OTHER_MODE else f,
            w,
            derived(base_seed, "checked", number),
            backward,
            other_mode=f == OTHER_MODE,
        )
        for number, (v, f, w) in enumerate(draws)
    ]


def _may_be_quantised(task: Task) -> bool:
    """Whether some input may hold codes: 8-bit floats, or integers that are no usual indices."""
    return any(
        len(spec.shape) > 0 and spec.dtype in CODES or spec.dtype.startswith("float8")
        for spec in task.inputs
    )


def reduced(task: Task) -> ShapeVariant | None:
    """Return the smaller batch for families; None if the native one is small, or the batch cannot change."""
    size = sum(_bytes(spec) for spec in (*task.inputs, *task.outputs))
    along = next((v for v in task.shape_variants if v.name.startswith("batch")), None)
    limit = LARGE_BYTES[task.device]
    if size <= limit or along is None:
        return None
    shapes = {spec.name: spec.shape for spec in task.inputs}
    name, dimension, _ = along.changes[0]
    native = shapes[name][dimension]
    batch = max(3, math.floor(native * limit / (2 * size)))
    batch -= 1 - batch % 2  # odd: no vector length divides it
    if batch >= native:
        return None
    return ShapeVariant(
        name=f"batch={batch}", changes=tuple((n, d, batch) for n, d, _ in along.changes)
    )


def indexes_outside(small: ShapeVariant, task: Task, inputs: Iterable[torch.Tensor]) -> bool:
    """Whether some integers are valid indices in the native batch but not in the smaller one."""
    name, dimension, size = small.changes[0]
    native = next(spec.shape[dimension] for spec in task.inputs if spec.name == name)
    given = [
        t for t in inputs if t.numel() and str(t.dtype).removeprefix("torch.") in INTEGER_DTYPES
    ]
    return any(size <= max(int(t.max()), -1 - int(t.min())) < native for t in given)


def _bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * getattr(torch, spec.dtype).itemsize
