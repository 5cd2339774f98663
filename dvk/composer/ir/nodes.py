"""The primitive graph: the form of operators before fusion.

Five kinds of value: a `source` the host holds (input, weight, result of a call), a `pw` (pointwise) operation on broadcast operands, a
`reduce` over some dimensions, a `scan` along one, and an `extern` call that stays in PyTorch. Views are not values; an operand is a base
value and the chain of views it is read through, so a transpose or a reshape costs nothing inside a kernel.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dvk.composer.ir.affine import (
    ZERO,
    Affine,
    Index,
    Var,
    contiguous_strides,
    delinearize,
    linearize,
)
from dvk.records import Node

FLOATS = ("float16", "bfloat16", "float32", "float64")
HALVES = ("float16", "bfloat16")
EIGHTHS = ("float8_e4m3fn", "float8_e5m2")
"""Floating-point types of 8 bits: values in memory, which kernels compute with in float32 or multiply in matrix units."""
INTS = ("uint8", "int8", "int16", "int32", "int64")
BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}


@dataclass(frozen=True)
class ViewStep:
    """One view: the torch method that makes it, and the shapes before and after."""

    method: str
    args: tuple[Any, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def index_before(self, index: Index) -> Index | None:
        """The index before the view of an index after it; None if it is not affine."""
        if self.method == "permute":
            source: list[Affine] = [ZERO] * len(self.before)
            for position, dim in enumerate(self.args):
                source[dim] = index[position]
            return tuple(source)
        if self.method == "expand":
            tail = index[len(self.after) - len(self.before) :]
            return tuple(
                ZERO if size == 1 else part for part, size in zip(tail, self.before, strict=True)
            )
        if self.method == "reshape":
            return delinearize(
                linearize(index, contiguous_strides(self.after)), self.before
            ) or self._back_by_dims(index)
        if self.method == "select":
            dim, at = self.args
            return (*index[:dim], Affine((), at), *index[dim:])
        if self.method == "flip":
            return tuple(
                part.scale(-1).shift(size - 1) if dim in self.args else part
                for dim, (part, size) in enumerate(zip(index, self.before, strict=True))
            )
        if self.method == "pad":
            return tuple(part.shift(-ahead) for part, ahead in zip(index, self.args, strict=True))
        if self.method == "windows":
            rank = len(self.before)
            walked = {
                dim: index[dim].scale(stride) + index[rank + n].scale(dilation)
                for n, (dim, _, stride, dilation) in enumerate(self.args)
            }
            return tuple(walked.get(dim, index[dim]) for dim in range(rank))
        assert self.method == "slice", self.method
        dim, start, step = self.args
        return (*index[:dim], index[dim].scale(step).shift(start), *index[dim + 1 :])

    def dim_before(self, dim: int) -> int | None:
        """The dimension before the view that `dim` is, or is a part of; None if there is none, or several together are, as of a merge."""
        if self.method == "permute":
            return int(self.args[dim])
        if self.method == "select":
            return dim + (dim >= self.args[0])
        if self.method == "expand":
            ahead = len(self.after) - len(self.before)
            return dim - ahead if dim >= ahead else None
        if self.method == "reshape":
            groups = [olds for olds, news in _apart(self.before, self.after) if dim in news]
            return groups[0][0] if [len(olds) for olds in groups] == [1] else None
        return dim

    def _back_by_dims(self, index: Index) -> Index | None:
        """A reshape of an index that may be out of bounds: in dimensions of extent one, which have a single valid position, or in
        dimensions that it does not split in two. What reads such an index drops the values out of bounds.
        """
        if 0 in self.before:
            return None
        source = [ZERO] * len(self.before)
        for olds, news in _apart(self.before, self.after):
            parts, sizes = [index[d] for d in news], [self.after[d] for d in news]
            whole = linearize(tuple(parts), contiguous_strides(sizes))
            if len(olds) > 1:
                spans = zip((part.span() for part in parts), sizes, strict=True)
                if any(lo < 0 or hi >= size for (lo, hi), size in spans):
                    return None
                inner = delinearize(whole, tuple(self.before[d] for d in olds))
                if inner is None:
                    return None
            else:
                inner = (whole,)
            for dim, part in zip(olds, inner, strict=True):
                source[dim] = part
        return tuple(source)

    def layout_after(
        self, strides: tuple[int, ...], offset: int
    ) -> tuple[tuple[int, ...], int] | None:
        """Strides and offset of the view in the memory of a tensor with these; None if the view is a copy."""
        if self.method == "permute":
            return tuple(strides[dim] for dim in self.args), offset
        if self.method == "select":
            dim, at = self.args
            return strides[:dim] + strides[dim + 1 :], offset + strides[dim] * at
        if self.method == "slice":
            dim, start, step = self.args
            inner = (*strides[:dim], strides[dim] * step, *strides[dim + 1 :])
            return inner, offset + strides[dim] * start
        if self.method == "expand":
            ahead = len(self.after) - len(self.before)
            grown = (b != a for b, a in zip(self.before, self.after[ahead:], strict=True))
            inner = tuple(0 if more else s for more, s in zip(grown, strides, strict=True))
            return (0,) * ahead + inner, offset
        if self.method != "reshape" or 0 in self.before:
            return None
        made = [1] * len(self.after)
        for olds, news in _apart(self.before, self.after):
            for outer, inner_dim in itertools.pairwise(olds):
                if strides[outer] != strides[inner_dim] * self.before[inner_dim]:
                    return None
            sizes = contiguous_strides(self.after[dim] for dim in news)
            for dim, size in zip(news, sizes, strict=True):
                made[dim] = strides[olds[-1]] * size
        # PyTorch recognises a memory format by all strides, also by those of dimensions of size 1.
        step = strides[-1] if strides else 1
        for dim in reversed(range(len(made))):
            made[dim] = step if self.after[dim] == 1 else made[dim]
            step = made[dim] * self.after[dim]
        return tuple(made), offset

    def call(self, value: str) -> str:
        """Torch source that applies the view to `value`."""
        if self.method == "pad":
            behind = [
                after - before - ahead
                for before, after, ahead in zip(self.before, self.after, self.args, strict=True)
            ]
            both = [n for pair in zip(self.args[::-1], behind[::-1], strict=True) for n in pair]
            return f"torch.nn.functional.pad({value}, {both!r})"
        if self.method == "windows":
            for dim, size, stride, dilation in self.args:
                value += f".unfold({dim}, {dilation * (size - 1) + 1}, {stride})" + (
                    f"[..., ::{dilation}]" if dilation > 1 else ""
                )
            return value
        if self.method == "slice":
            dim, start, step = self.args
            stop = max(start + (self.after[dim] - 1) * step + 1, start)
            inner = ", ".join([":"] * dim + [f"{start}:{stop}" + (f":{step}" if step != 1 else "")])
            return f"{value}[{inner}]"
        if self.method in ("reshape", "expand"):
            return f"{value}.{self.method}({', '.join(map(repr, self.after)) or '()'})"
        return f"{value}.{self.method}({', '.join(map(repr, self.args))})"


def _apart(
    before: tuple[int, ...], after: tuple[int, ...]
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the smallest groups of neighbouring dimensions that a reshape turns into each other; without dimensions of extent one."""
    ahead = [(d, size) for d, size in enumerate(before) if size > 1]
    behind = [(d, size) for d, size in enumerate(after) if size > 1]
    while ahead or behind:
        olds, news = [ahead.pop(0)], [behind.pop(0)]
        while (mine := math.prod(n for _, n in olds)) != (theirs := math.prod(n for _, n in news)):
            if mine < theirs:
                olds.append(ahead.pop(0))
            else:
                news.append(behind.pop(0))
        yield [d for d, _ in olds], [d for d, _ in news]


@dataclass(frozen=True, eq=False)
class IRNode:
    """One value of the primitive graph; identity makes it equal to another."""

    kind: str
    op: str
    shape: tuple[int, ...]
    dtype: str
    operands: tuple[Operand, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    node: Node | None = None
    """The captured operator: always set for a source or an extern."""

    def __repr__(self) -> str:
        return f"{self.kind}:{self.op}{list(self.shape)}"


@dataclass(frozen=True)
class View:
    """A base value read through a chain of views."""

    base: IRNode
    steps: tuple[ViewStep, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.steps[-1].after if self.steps else self.base.shape

    @property
    def dtype(self) -> str:
        return self.base.dtype

    def then(self, method: str, args: tuple[Any, ...], after: tuple[int, ...]) -> View:
        if method in ("reshape", "expand") and after == self.shape:
            return self
        if (
            method == "flip"
            and self.steps
            and (self.steps[-1].method, self.steps[-1].args) == (method, args)
        ):
            return View(self.base, self.steps[:-1])
        if method == "permute" and self.steps and self.steps[-1].method == "permute":
            order = tuple(self.steps[-1].args[dim] for dim in args)
            inner = View(self.base, self.steps[:-1])
            straight = order == tuple(range(len(order)))
            return inner if straight else inner.then(method, order, after)
        if method == "reshape" and self.steps and self.steps[-1].method == "reshape":
            return View(self.base, self.steps[:-1]).then(
                method, args, after
            )  # both row by row: only the last shape counts
        return View(self.base, (*self.steps, ViewStep(method, args, self.shape, after)))

    def call(self, base: str) -> str:
        """Torch source that applies the chain to `base`."""
        for step in self.steps:
            base = step.call(base)
        return base

    def layout(self, strides: tuple[int, ...]) -> tuple[tuple[int, ...], int] | None:
        """Strides and offset, in elements, of the view in the memory of a base with these strides; None if it takes a copy."""
        found: tuple[tuple[int, ...], int] | None = strides, 0
        for step in self.steps:
            found = found and step.layout_after(*found)
        return found

    def base_index(self, index: Index) -> Index | None:
        """The base's own index for an index into the view."""
        current: Index | None = index
        for step in reversed(self.steps):
            if current is None:
                return None
            current = step.index_before(current)
        return current


Scalar = bool | int | float
Operand = View | Scalar


def broadcast_index(index: Index, shape: tuple[int, ...]) -> Index:
    """Index into an operand of `shape` for an index into the broadcast result."""
    tail = index[len(index) - len(shape) :] if shape else ()
    return tuple(ZERO if size == 1 else part for part, size in zip(tail, shape, strict=True))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the broadcast result; operands are known to be compatible."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return (
        tuple(
            next((size for size in column if size != 1), 1) for column in zip(*padded, strict=True)
        )
        if rank
        else ()
    )


def operand_index(prim: IRNode, position: int, index: Index, inner: Index) -> Index | None:
    """The index at which `prim` reads the base of its operand.

    Args:
        index: index of the result, one part per dimension of `prim.shape`.
        inner: for a reduction, the index into its operand; ignored otherwise.
    """
    operand = prim.operands[position]
    assert isinstance(operand, View)
    if prim.op == "gather" and not position:
        return operand.base_index(gathered_index(prim, index))
    return operand.base_index(
        inner if prim.kind == "reduce" else broadcast_index(index, operand.shape)
    )


def gathered_index(prim: IRNode, index: Index) -> Index:
    """The index at which a `gather` reads its first operand's view: the stand-ins among its `at` are computed indices."""
    return tuple(Affine.of(way) if isinstance(way, Var) else index[way] for way in prim.attrs["at"])


def memory_shape(prim: IRNode) -> tuple[int, ...]:
    """The shape of the tensor that holds a value: elements of a `scatter` are added to those of another shape."""
    return tuple(prim.attrs["into"]) if prim.op == "scatter" else prim.shape


def reduced_dims(prim: IRNode) -> tuple[int, ...]:
    """Dimensions of the operand that a reduction removes."""
    return tuple(prim.attrs["dims"])


def register_type(dtype: str) -> str:
    """The type of a value inside a kernel: floating-point types of 16 and 8 bits are computed in float32."""
    return "float32" if dtype in HALVES or dtype in EIGHTHS else dtype


def rounded(value: float, dtype: str) -> float:
    """Round a number to fp16 or bf16; unchanged for other types."""
    if dtype not in HALVES or value != value or value in (float("inf"), float("-inf")):
        return value
    try:
        if dtype == "float16":
            return float(struct.unpack("e", struct.pack("e", value))[0])
        bits = struct.unpack("I", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(struct.unpack("f", struct.pack("I", bits))[0])
