"""A loop over time steps as one kernel: what it reads, how a step changes the state, what it collects.

    S ← f(S, inputs at t),   y_t = g(S, inputs at t)

Values of a step span axes. The kernel's programs share out all axes but one, `inner`, which a program keeps whole because steps sum over
it: in linear attention with S[b, h, k, v] that is k. Of the axis `lanes` (v) a program has a block. So a state stays in registers, and no
program waits for another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.nodes import BYTES

TIME_SCAN = "time_scan"
"""The operator's node: operands as in `TimeScan.operands`, the fields as keyword arguments, results as a tuple."""
FUNCTIONS = {
    "add": 2,
    "sub": 2,
    "mul": 2,
    "div": 2,
    "maximum": 2,
    "minimum": 2,
    "neg": 1,
    "exp": 1,
    "exp2": 1,
    "log": 1,
    "sigmoid": 1,
    "tanh": 1,
    "silu": 1,
    "relu": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "abs": 1,
    "reciprocal": 1,
    "square": 1,
}
"""Elementwise operators of a step, and their operands."""

Strides = tuple[tuple[int, int], ...]
"""Axis → elements from one index to the next."""


@dataclass(frozen=True)
class Access:
    """Elements of a tensor: at `base` + t · `step` + the sum of indices times strides."""

    tensor: int
    base: int
    step: int
    strides: Strides


@dataclass(frozen=True)
class Line:
    """One value of a step.

    Attributes:
        op: `load` (of `access`), `state` (its number in `given`), `literal`, `sum` (over `inner`), or one of `FUNCTIONS`.
        given: numbers of earlier values; floats are literals.
        axes: those that it spans.
    """

    op: str
    given: tuple[Any, ...]
    axes: tuple[int, ...]
    access: Access | None = None


@dataclass(frozen=True)
class Result:
    """A tensor that is written, contiguous: at each step the value `line`, or after the last one (`access.step` 0)."""

    line: int
    dtype: str
    shape: tuple[int, ...]
    access: Access


@dataclass(frozen=True)
class TimeScan:
    """The kernel.

    Attributes:
        sizes: of the axes, by number.
        inner, lanes: axes; -1 if there is none.
        operands: shape, strides and dtype of the tensors that are read.
        lines: values, before the loop those of `ahead`, which do not depend on the step.
        states: number of the first value (in `lines`), of the next step's value, and axes.
        chunked: steps at a time, as products of matrices; 0: one by one.
    """

    steps: int
    sizes: tuple[int, ...]
    inner: int
    lanes: int
    operands: tuple[tuple[tuple[int, ...], tuple[int, ...], str], ...]
    lines: tuple[Line, ...]
    states: tuple[tuple[int, int, tuple[int, ...]], ...]
    outputs: tuple[Result, ...]
    last: tuple[Result, ...]
    narrow: str = "float32"
    """Type of the state between steps, float32 if there are several."""
    chunked: int = 0

    @classmethod
    def of(cls, given: dict[str, Any]) -> TimeScan:
        """From a node's keyword arguments, which may have been JSON."""
        held = {f.name: _tuples(given[f.name]) for f in fields(cls) if f.name in given}
        held["lines"] = tuple(
            Line(op, args, axes, Access(*access) if access else None)
            for op, args, axes, access in held["lines"]
        )
        for name in ("outputs", "last"):
            held[name] = tuple(
                Result(line, dtype, shape, Access(*access))
                for line, dtype, shape, access in held[name]
            )
        return cls(**held)

    def given(self) -> dict[str, Any]:
        """As a node's keyword arguments."""
        return {f.name: _lists(getattr(self, f.name)) for f in fields(self)}

    @property
    def results(self) -> tuple[Result, ...]:
        return (*self.outputs, *self.last)

    @property
    def outer(self) -> tuple[int, ...]:
        """Axes of which a program has one index."""
        return tuple(n for n in range(len(self.sizes)) if n not in (self.inner, self.lanes))

    @property
    def changing(self) -> frozenset[int]:
        """Values that depend on the step."""
        found: set[int] = set()
        for n, line in enumerate(self.lines):
            moves = line.op == "state" or (line.access is not None and line.access.step)
            if moves or any(
                type(a) is int and a in found for a in line.given if line.op != "state"
            ):
                found.add(n)
        return frozenset(found)

    @property
    def compute(self) -> str:
        """Type of the arithmetic."""
        kinds = {kind for *_, kind in self.operands} | {r.dtype for r in self.results}
        return "float64" if "float64" in kinds else "float32"

    @property
    def num_bytes(self) -> int:
        """Bytes read once and written once."""
        return sum(math.prod(shape) * BYTES[kind] for shape, _, kind in self.operands) + sum(
            math.prod(r.shape) * BYTES[r.dtype] for r in self.results
        )

    @property
    def summary(self) -> str:
        """One line for people."""
        how = f", {self.chunked} at a time" if self.chunked else ""
        states = ", ".join(
            "×".join(str(self.sizes[a]) for a in axes) or "1" for *_, axes in self.states
        )
        return f"scan: {self.steps} steps{how} of a state {states}"


def result_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return contiguous_strides(shape)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value


def _lists(value: Any) -> Any:
    if isinstance(value, (Line, Access, Result)):
        return [_lists(getattr(value, f.name)) for f in fields(value)]
    return list(map(_lists, value)) if isinstance(value, (list, tuple)) else value


__all__ = ["FUNCTIONS", "TIME_SCAN", "Access", "Line", "Result", "TimeScan", "result_strides"]
