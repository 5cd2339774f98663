"""The values of one step of a loop, from its results down: each operator as lines of a `TimeScan`, each read as an address.

A value is asked for at dimensions (`step_axes`), and asks for its operands at dimensions in turn: views only move them. A sum's dimension
is a new axis until a state is read there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from dvk.composer.capture.step_axes import Axes, Dim
from dvk.composer.capture.time_marks import Unfit
from dvk.composer.ir.graph_edits import packet, ref
from dvk.composer.ir.nodes import FLOATS
from dvk.composer.ir.time_scan import FUNCTIONS, Access, Line
from dvk.records import Node


@dataclass(frozen=True)
class At:
    """One place of a dimension: `first` in the first step, `move` further in each."""

    first: int
    move: int


Place = Dim | At
SAME = (
    "alias",
    "contiguous",
    "clone",
    "to",
    "_to_copy",
    "detach",
    "float",
    "type_as",
    "lift_fresh",
)
RENAMED = {
    "multiply": "mul",
    "divide": "div",
    "subtract": "sub",
    "negative": "neg",
    "max": "maximum",
    "min": "minimum",
}
FILLS = {
    "zeros": 0.0,
    "zeros_like": 0.0,
    "new_zeros": 0.0,
    "ones": 1.0,
    "ones_like": 1.0,
    "new_ones": 1.0,
}
WHOLE = 2**63 - 1


class Values:
    """Lines of a step.

    Args:
        nodes: every node of the graph.
        inside: names of those of the step.
        carried: name of a state's mark → its number.
        canonical: dimensions of the states.
        moves: name of a node and number of its argument → what a step adds to it.
        touched: names of values whose memory an operator of the graph writes.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        inside: set[str],
        carried: Mapping[str, int],
        canonical: Sequence[list[Dim]],
        axes: Axes,
        moves: Mapping[tuple[str, int], int],
        touched: set[str],
    ):
        self.touched = touched
        self.nodes, self.inside, self.carried = nodes, inside, carried
        self.canonical, self.axes, self.moves = canonical, axes, moves
        self.lines: list[Line] = []
        self.operands: list[str] = []
        self.bound: list[tuple[Dim, frozenset[int]]] = []
        """Dimensions of sums, and the axes of their results."""
        self._known: dict[Any, int] = {}

    # -------------------------------------------------------------- lines

    def _line(
        self, op: str, given: tuple[Any, ...], axes: set[int], access: Access | None = None
    ) -> int:
        line = Line(op, given, tuple(sorted(axes)), access)
        key = (line.op, line.given, line.axes, line.access)
        if key not in self._known:
            self.lines.append(line)
            self._known[key] = len(self.lines) - 1
        return self._known[key]

    def _of(self, op: str, *given: Any) -> int:
        axes = {a for g in given if type(g) is int for a in self.lines[g].axes}
        return self._line(op, given, axes)

    def value(self, name: str, dims: list[Place]) -> int:
        """Number of the line that holds a value at these dimensions."""
        node = self.nodes[name]
        if len(dims) != len(node.shape or ()):
            raise Unfit
        if name in self.carried:
            return self._state(self.carried[name], dims)
        op = RENAMED.get(packet(node), packet(node))
        fill = FILLS.get(op, node.args[1] if op in ("full", "full_like") else None)
        if (
            fill is not None
            and type(fill) in (int, float)
            and isfinite(fill)
            and node.name not in self.touched
        ):
            return self._line("literal", (float(fill),), set())
        if name not in self.inside:
            return self.load(node, dims)
        known = getattr(self, f"_{op}", None)
        if op in SAME or known is not None or op in FUNCTIONS:
            if node.dtype not in FLOATS:
                raise Unfit
            if op in SAME:
                return self.value(ref(node.args[0]) or "", dims)
            return int(known(node, dims)) if known is not None else self._pointwise(node, op, dims)
        raise Unfit

    def _state(self, number: int, dims: list[Place]) -> int:
        for dim, own in zip(dims, self.canonical[number], strict=True):
            if isinstance(dim, At):
                raise Unfit
            self.axes.join(own, dim)
        axes = {a for dim in self.canonical[number] for a in self.axes.now(dim)}
        return self._line("state", (number,), axes)

    def load(self, node: Node, dims: Sequence[Place]) -> int:
        """A read of a tensor that is there before the loop."""
        shape, strides = node.shape or (), node.strides
        if node.dtype not in FLOATS or strides is None:
            raise Unfit
        if node.name not in self.operands:
            self.operands.append(node.name)
        base = step = 0
        found: dict[int, int] = {}
        for dim, size, stride in zip(dims, shape, strides, strict=True):
            if isinstance(dim, At):
                base += dim.first * stride
                step += dim.move * stride
                continue
            for axis in reversed(self.axes.now(dim)):
                if axis in found:
                    raise Unfit  # a diagonal
                found[axis] = stride
                stride *= self.axes.sizes[axis]
                size //= self.axes.sizes[axis]
            if dim and size != 1:
                raise Unfit
        access = Access(self.operands.index(node.name), base, step, tuple(sorted(found.items())))
        return self._line("load", (), set(found), access)

    # -------------------------------------------------------------- elementwise

    def _operand(self, value: Any, dims: list[Place]) -> Any:
        """A literal, or an operand that broadcasts to `dims`."""
        name = ref(value)
        if name is None:
            if type(value) not in (int, float) or not isfinite(value):
                raise Unfit
            return float(value)
        shape = self.nodes[name].shape or ()
        mine: list[Place] = list(dims[len(dims) - len(shape) :])
        return self.value(
            name, [() if size == 1 else d for d, size in zip(mine, shape, strict=True)]
        )

    def _pointwise(self, node: Node, op: str, dims: list[Place]) -> int:
        count = FUNCTIONS[op]
        if len(node.args) != count or any(v != 1 for k, v in node.kwargs.items() if k == "alpha"):
            raise Unfit
        if set(node.kwargs) - {"alpha"}:
            raise Unfit
        given = [self._operand(a, dims) for a in node.args]
        if all(type(g) is float for g in given):
            raise Unfit
        return self._of(op, *given)

    def _rsub(self, node: Node, dims: list[Place]) -> int:
        if len(node.args) != 2 or node.kwargs:
            raise Unfit
        return self._of("sub", self._operand(node.args[1], dims), self._operand(node.args[0], dims))

    def _pow(self, node: Node, dims: list[Place]) -> int:
        if node.args[1] != 2:
            raise Unfit
        return self._of("square", self._operand(node.args[0], dims))

    def _clamp(self, node: Node, dims: list[Place]) -> int:
        low, high = (*node.args[1:], None, None)[:2]
        value = self._operand(node.args[0], dims)
        for op, limit in (("maximum", low), ("minimum", high)):
            if limit is not None:
                value = self._of(op, value, self._operand(limit, dims))
        return int(value)

    def _clamp_min(self, node: Node, dims: list[Place]) -> int:
        value, limit = (self._operand(v, dims) for v in node.args)
        return self._of("maximum", value, limit)

    def _addcmul(self, node: Node, dims: list[Place]) -> int:
        if node.kwargs:
            raise Unfit
        total, a, b = (self._operand(v, dims) for v in node.args)
        return self._of("add", total, self._of("mul", a, b))

    def _lerp(self, node: Node, dims: list[Place]) -> int:
        a, b, weight = (self._operand(v, dims) for v in node.args)
        return self._of("add", a, self._of("mul", weight, self._of("sub", b, a)))

    # -------------------------------------------------------------- views

    def _expand_as(self, node: Node, dims: list[Place]) -> int:
        return int(self._operand(node.args[0], dims))

    def _below(self, node: Node) -> tuple[str, tuple[int, ...]]:
        name = ref(node.args[0]) or ""
        return name, tuple(self.nodes[name].shape or ())

    def _select(self, node: Node, dims: list[Place]) -> int:
        name, shape = self._below(node)
        dim, first = node.args[1] % len(shape), node.args[2]
        at = At(first % shape[dim] if first < 0 else first, self.moves.get((node.name, 2), 0))
        return self.value(name, [*dims[:dim], at, *dims[dim:]])

    def _slice(self, node: Node, dims: list[Place]) -> int:
        name, shape = self._below(node)
        defaults: list[Any] = [None, 0, 0, WHOLE, 1]
        _, dim, start, _, step = [*node.args, *defaults[len(node.args) :]]
        dim %= len(shape)
        start = start or 0
        if (node.shape or ())[dim] == shape[dim]:
            return self.value(name, dims)
        if (node.shape or ())[dim] != 1 or step != 1 or start < 0:
            raise Unfit
        return self.value(
            name, [*dims[:dim], At(start, self.moves.get((node.name, 2), 0)), *dims[dim + 1 :]]
        )

    def _unsqueeze(self, node: Node, dims: list[Place]) -> int:
        dim = node.args[1] % len(dims)
        return self.value(self._below(node)[0], [*dims[:dim], *dims[dim + 1 :]])

    def _squeeze(self, node: Node, dims: list[Place]) -> int:
        return self._reshape(node, dims)

    def _expand(self, node: Node, dims: list[Place]) -> int:
        return int(self._operand(node.args[0], dims))

    def _permute(self, node: Node, dims: list[Place]) -> int:
        order = [d % len(dims) for d in node.args[1]]
        mine: list[Place] = [()] * len(dims)
        for place, source in enumerate(order):
            mine[source] = dims[place]
        return self.value(self._below(node)[0], mine)

    def _transpose(self, node: Node, dims: list[Place]) -> int:
        a, b = (d % len(dims) for d in node.args[1:3])
        mine = list(dims)
        mine[a], mine[b] = dims[b], dims[a]
        return self.value(self._below(node)[0], mine)

    def _reshape(self, node: Node, dims: list[Place]) -> int:
        name, shape = self._below(node)
        plain = [d for d in dims if not isinstance(d, At)]
        if len(plain) != len(dims):
            raise Unfit
        return self.value(name, list(self.axes.regrouped(plain, shape)))

    _view = _unsafe_view = _flatten = _unflatten = _view_as = _reshape

    # -------------------------------------------------------------- sums

    def _summed(self, line: int, over: Sequence[Dim]) -> int:
        """Sum a line over dimensions that only it has."""
        axes = {a for dim in over for a in self.axes.now(dim)}
        if not axes:
            return line
        free = set(self.lines[line].axes) - axes
        self.bound += [(dim, frozenset(free)) for dim in over if dim]
        missing = axes - set(self.lines[line].axes)
        if missing == axes:
            raise Unfit
        made = self._line("sum", (line, *()), free)
        scale = self.axes.size(sorted(missing))
        return self._of("mul", made, float(scale)) if missing else made

    def _sum(self, node: Node, dims: list[Place]) -> int:
        asked = node.args[1] if len(node.args) > 1 else None
        return self._over(node, dims, asked)

    def _linalg_vector_norm(self, node: Node, dims: list[Place]) -> int:
        order, asked = (*node.args[1:], 2, None)[:2]
        if order != 2:
            raise Unfit
        return self._of("sqrt", self._over(node, dims, asked, squares=True))

    def _over(self, node: Node, dims: list[Place], asked: Any, squares: bool = False) -> int:
        """A sum over dimensions, all if none are asked for."""
        name, shape = self._below(node)
        if node.kwargs.get("dtype") not in (None, node.dtype, {"dtype": node.dtype}):
            raise Unfit
        asked = [asked] if isinstance(asked, int) else asked or list(range(len(shape)))
        over = {d % len(shape) for d in asked}
        keeps = len(node.shape or ()) == len(shape)
        rest = iter(d for n, d in enumerate(dims) if not (keeps and n in over))
        fresh = {d: self._fresh(node, d, shape[d]) for d in sorted(over)}
        mine: list[Place] = [fresh[d] if d in over else next(rest) for d in range(len(shape))]
        value = self.value(name, mine)
        return self._summed(self._of("square", value) if squares else value, list(fresh.values()))

    def _mean(self, node: Node, dims: list[Place]) -> int:
        _, shape = self._below(node)
        total = self._sum(node, dims)
        asked = node.args[1] if len(node.args) > 1 and node.args[1] else list(range(len(shape)))
        count = 1
        for d in [asked] if isinstance(asked, int) else asked:
            count *= shape[d]
        return self._of("mul", total, 1.0 / count)

    def _fresh(self, node: Node, key: Any, size: int) -> Dim:
        """The dimension of a sum, the same one whenever it is asked for."""
        made = self.axes.made
        if (node.name, key) not in made:
            made[node.name, key] = self.axes.new(size)
        return made[node.name, key]

    def _einsum(self, node: Node, dims: list[Place]) -> int:
        text = node.args[0].replace(" ", "")
        sources, _, result = text.partition("->")
        if "." in text or "->" not in text or len(set(result)) != len(result):
            raise Unfit
        places: dict[str, Place] = dict(zip(result, dims, strict=True))
        summed: dict[str, Dim] = {}
        factors = []
        for letters, value in zip(sources.split(","), node.args[1], strict=True):
            shape = self.nodes[ref(value) or ""].shape or ()
            if len(set(letters)) != len(letters):
                raise Unfit
            for letter, size in zip(letters, shape, strict=True):
                if letter not in places:
                    places[letter] = summed[letter] = self._fresh(node, letter, size)
            mine = [() if s == 1 else places[x] for x, s in zip(letters, shape, strict=True)]
            factors.append(self.value(ref(value) or "", mine))
        line = factors[0]
        for other in factors[1:]:
            line = self._of("mul", line, other)
        return self._summed(line, list(summed.values()))

    def _matmul(self, node: Node, dims: list[Place]) -> int:
        (a, b), inner = node.args, self._fresh(node, 0, self._shape(node.args[0])[-1])
        one, two = len(self._shape(a)), len(self._shape(b))
        if one < 2 or two < 2:
            raise Unfit
        *batch, row, column = dims
        left = self._operand(a, [*batch, row, inner])
        right = self._operand(b, [*batch, inner, column])
        return self._summed(self._of("mul", left, right), [inner])

    _bmm = _mm = _matmul

    def _baddbmm(self, node: Node, dims: list[Place]) -> int:
        if node.kwargs:
            raise Unfit
        product = self._matmul(node.model_copy(update={"args": node.args[1:]}), dims)
        return self._of("add", self._operand(node.args[0], dims), product)

    def _shape(self, value: Any) -> tuple[int, ...]:
        return tuple(self.nodes[ref(value) or ""].shape or ())
