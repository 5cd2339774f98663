"""A loop of which two steps were traced (`time_loops`), as one operator: a `TimeScan`.

The two steps must be the same operators; an index may differ by a constant, which each further step adds. What a step reads of the one
before is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from dvk.composer.capture.step_axes import Axes, Dim
from dvk.composer.capture.step_values import Values
from dvk.composer.capture.time_marks import CARRY, LAST, MARK, OUT, Unfit
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import is_step, refs, touched, written
from dvk.composer.ir.graph_edits import packet, rebuilt, ref, users
from dvk.composer.ir.nodes import BYTES
from dvk.composer.ir.time_scan import TIME_SCAN, Access, Result, TimeScan
from dvk.records import Graph, Node

ROUNDS = 40
"""Times that a step is read until no axes meet any more."""
LIMIT = 2**31
"""Elements from which an offset does not fit 32 bits."""
INDEX = {"select": (2,), "slice": (2, 3)}
"""Operators with an index that may differ between steps, and its place."""


def rolled(graph: Graph, found: list[range]) -> Graph:
    """The graph with an operator for each loop.

    Raises:
        Unfit: a loop is not covered.
    """
    for number, steps in enumerate(found):
        graph = _Roller(graph, number, steps).graph_after()
    if any(node.op == MARK for node in graph.nodes):
        raise Unfit
    return graph


@dataclass(frozen=True)
class _Collected:
    """A stack of what the steps append."""

    node: Node
    value: str
    dim: int


class _Roller:
    """One loop."""

    def __init__(self, graph: Graph, number: int, steps: range):
        self.graph, self.steps = graph, steps
        self.nodes = {n.name: n for n in graph.nodes}
        self.marks = [n for n in graph.nodes if n.op == MARK and n.args[1] == number]
        carries = [n for n in self.marks if n.args[2] == CARRY]
        half = len(carries) // 2
        if not half or len(carries) != 2 * half:
            raise Unfit
        self.first, self.second = carries[:half], carries[half:]
        at = {n.name: p for p, n in enumerate(graph.nodes)}
        a, b = at[self.first[0].name], at[self.second[0].name]
        self.one, self.two = list(graph.nodes[a:b]), list(graph.nodes[b : 2 * b - a])
        self.moves: dict[tuple[str, int], int] = {}
        self.twin: dict[str, str] = {}
        self._compare()

    def _compare(self) -> None:
        """Match the operators of both steps."""
        inside, ahead = {n.name for n in self.one}, {n.name for n in self.two}
        if len(self.one) != len(self.two):
            raise Unfit
        for a, b in zip(self.one, self.two, strict=True):
            same = (a.op, a.shape, a.dtype, a.strides) == (b.op, b.shape, b.dtype, b.strides)
            if not same or written(a) or is_step(a) or len(a.args) != len(b.args):
                raise Unfit
            self.twin[a.name] = b.name
            if a.op == MARK and a.args[2] == CARRY:
                if a.args[3] != b.args[3] or ref(b.args[0]) not in inside:
                    raise Unfit
                continue
            if a.kwargs != b.kwargs:
                raise Unfit
            for place, (x, y) in enumerate(zip(a.args, b.args, strict=True)):
                self._argument(a, place, x, y)
            if inside.intersection(refs([list(b.args)])) or ahead.intersection(
                refs([list(a.args)])
            ):
                raise Unfit

    def _argument(self, node: Node, place: int, x: Any, y: Any) -> None:
        if isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
            for a, b in zip(x, y, strict=True):
                self._argument(node, -1, a, b)
        elif (name := ref(x)) is not None:
            if ref(y) != self.twin.get(name, name):
                raise Unfit
        elif x != y:
            if place not in INDEX.get(packet(node), ()) or type(x) is not int or type(y) is not int:
                raise Unfit
            shape = self.nodes[ref(node.args[0]) or ""].shape or ()
            last, size = x + (y - x) * (len(self.steps) - 1), shape[node.args[1]]
            if (x < 0) != (last < 0) or not -size <= last <= size or (place == 2 and last == size):
                raise Unfit
            self.moves[node.name, place] = y - x

    def _narrow_results_only(self) -> None:
        """A step's values are rounded to a narrower type only where they are collected: lines are not rounded."""
        readers = users(self.graph)
        for node in self.one:
            given = [self.nodes[r].dtype for r in refs([list(node.args)])]
            narrower = any(BYTES.get(str(g), 0) > BYTES.get(str(node.dtype), 0) for g in given)
            if narrower and any(r.op != MARK or r.args[2] != OUT for r in readers[node.name]):
                raise Unfit

    # -------------------------------------------------------------- results

    def _collected(self) -> list[_Collected]:
        """Stacks of marks."""
        readers = users(self.graph)
        result: dict[str, _Collected] = {}
        for mark in self.marks:
            if mark.args[2] != OUT:
                continue
            if mark.name in {n.name for n in self.one}:
                for reader in readers[mark.name]:
                    result[reader.name] = self._stack(reader, mark)
            elif any(r.name not in result for r in readers[mark.name]):
                raise Unfit
        return list(result.values())

    def _stack(self, reader: Node, mark: Node) -> _Collected:
        again, rest = {"ref": self.twin[mark.name]}, len(self.steps) - 1
        listed = reader.args[0] if reader.args else None
        if packet(reader) not in ("stack", "cat") or listed != [
            {"ref": mark.name},
            *[again] * rest,
        ]:
            raise Unfit
        dim = reader.args[1] if len(reader.args) > 1 else reader.kwargs.get("dim", 0)
        rank = len(mark.shape or ()) + (packet(reader) == "stack")
        if reader.dtype != mark.dtype:
            raise Unfit
        return _Collected(reader, ref(mark.args[0]) or "", dim % rank)

    def graph_after(self) -> Graph:
        """The graph with the operator in place of both steps."""
        stacks = self._collected()
        finals = [n for n in self.marks if n.args[2] == LAST]
        inside = {n.name for n in self.one}
        carried = {n.name: p for p, n in enumerate(self.first)}
        back = {b: a for a, b in self.twin.items()}
        after = {n.name: back.get(ref(n.args[0]) or "") for n in finals}
        if any(name is None for name in after.values()):
            raise Unfit
        self._narrow_results_only()
        writes = touched(self.graph.nodes)
        axes = Axes()
        canonical = [[axes.new(s) for s in n.shape or ()] for n in self.first]
        shown = [[axes.new(s) for s in self.nodes[c.value].shape or ()] for c in stacks]
        lasts = [[axes.new(s) for s in n.shape or ()] for n in finals]
        nexts = [ref(n.args[0]) or "" for n in self.second]
        for _ in range(ROUNDS):
            before = axes.changes
            values = Values(self.nodes, inside, carried, canonical, axes, self.moves, writes)
            starts = [
                values.value(ref(n.args[0]) or "", list(canonical[p]))
                for p, n in enumerate(self.first)
            ]
            ends = [values.value(name, list(canonical[p])) for p, name in enumerate(nexts)]
            outs = [values.value(c.value, list(d)) for c, d in zip(stacks, shown, strict=True)]
            finish = [
                values.value(after[n.name] or "", list(d))
                for n, d in zip(finals, lasts, strict=True)
            ]
            if axes.changes == before and not _sums_join(values):
                break
        else:
            raise Unfit
        made = _Made(
            values, self.steps, canonical, list(zip(starts, ends, strict=True)), self.first
        )
        scan = made.scan(
            [made.stacked(c, line, d) for c, line, d in zip(stacks, outs, shown, strict=True)],
            [made.final(n, line, d) for n, line, d in zip(finals, finish, lasts, strict=True)],
        )
        self._fits(scan)
        return self._with(scan, values.operands, stacks, finals)

    def _fits(self, scan: TimeScan) -> None:
        """Offsets have 32 bits, and no value of a step is wider than the arithmetic."""
        wide = any(n.dtype == "float64" for n in self.one)
        if wide and scan.compute != "float64":
            raise Unfit
        spans = [
            sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
            for shape, strides, _ in scan.operands
        ]
        if max([*spans, *(prod(r.shape) for r in scan.results)], default=0) >= LIMIT:
            raise Unfit

    def _with(
        self,
        scan: TimeScan,
        operands: Sequence[str],
        stacks: Sequence[_Collected],
        finals: Sequence[Node],
    ) -> Graph:
        """The graph, where the operator stands at the end of the second step: later writes to its operands come after it."""
        name = f"{self.first[0].name}_scan"
        call = Node(
            name=name, op=TIME_SCAN, args=tuple({"ref": o} for o in operands), kwargs=scan.given()
        )
        replacement: dict[str, list[Node]] = {n.name: [] for n in (*self.one, *self.two)}
        results = [*(c.node for c in stacks), *finals]
        order = [n.name for n in self.graph.nodes]
        last = self.two[-1].name
        if not results or any(order.index(o) > order.index(last) for o in operands):
            raise Unfit
        for number, (node, result) in enumerate(zip(results, scan.results, strict=True)):
            nodes = [
                Node(
                    name=f"{name}_{number}",
                    op="getitem",
                    args=({"ref": name}, number),
                    shape=result.shape,
                    dtype=result.dtype,
                    strides=contiguous_strides(result.shape),
                ),
                node.model_copy(
                    update={
                        "op": "aten.reshape.default",
                        "args": ({"ref": f"{name}_{number}"}, list(node.shape or ())),
                        "kwargs": {},
                        "strides": contiguous_strides(node.shape or ()),
                    }
                ),
            ]
            replacement[node.name] = nodes
        if any(replacement[n.name] for n in (*self.one, *self.two)):
            raise Unfit
        replacement[last] = [call]
        made = rebuilt(self.graph, replacement, {})
        known = {n.name for n in made.nodes}
        read = refs([[list(n.args), n.kwargs] for n in made.nodes] + [made.outputs])
        if not known.issuperset(read):
            raise Unfit
        return made


def _sums_join(values: Values) -> bool:
    """Have two sums over axes of one size run over the same axis, where neither sums what the other one leaves."""
    bound = [(values.axes.now(dim), free) for dim, free in values.bound]
    for a, free in bound:
        for b, other in bound:
            meet = len(a) == len(b) == 1 and a != b and values.axes.size(a) == values.axes.size(b)
            if meet and not set(a) & other and not set(b) & free:
                values.axes.join(a, b)
                return True
    return False


class _Made:
    """The scan of a step's values, with its axes in new numbers."""

    def __init__(
        self,
        values: Values,
        steps: range,
        canonical: Sequence[list[Dim]],
        states: list[tuple[int, int]],
        firsts: Sequence[Node],
    ):
        self.values, self.count, self.axes = values, len(steps), values.axes
        self.canonical, self.states = canonical, states
        inner = {a for dim, _ in values.bound for a in self.axes.now(dim)}
        if len(inner) > 1 or any(set(self.axes.now(dim)) & free for dim, free in values.bound):
            raise Unfit
        for dims in canonical:
            held = [a for dim in dims for a in self.axes.now(dim)]
            if len(set(held)) != len(held):
                raise Unfit
        self.inner = next(iter(inner), -1)
        self.kinds = sorted({str(n.dtype) for n in firsts})
        self.numbers: dict[int, int] = {}
        self.lanes = -1

    def _number(self, axis: int) -> int:
        return self.numbers.setdefault(axis, len(self.numbers))

    def stacked(self, collected: _Collected, line: int, dims: list[Dim]) -> Result:
        """A result with the steps as a dimension."""
        node = self.values.nodes[collected.value]
        shape = list(node.shape or ())
        shape.insert(collected.dim, self.count)
        with_time: list[Dim | None] = [*dims]
        with_time.insert(collected.dim, None)
        return self._result(line, str(node.dtype), shape, with_time)

    def final(self, node: Node, line: int, dims: list[Dim]) -> Result:
        return self._result(line, str(node.dtype), list(node.shape or ()), [*dims])

    def _result(self, line: int, dtype: str, shape: list[int], dims: list[Dim | None]) -> Result:
        step, found = 0, dict[int, int]()
        for dim, stride in zip(dims, contiguous_strides(tuple(shape)), strict=True):
            if dim is None:
                step = stride
                continue
            for axis in reversed(self.axes.now(dim)):
                if axis in found:
                    raise Unfit
                found[axis] = stride
                stride *= self.axes.sizes[axis]
        if set(self.values.lines[line].axes) - set(found):
            raise Unfit
        return Result(line, dtype, tuple(shape), Access(0, 0, step, tuple(sorted(found.items()))))

    def scan(self, outputs: list[Result], last: list[Result]) -> TimeScan:
        results = [*outputs, *last]
        used = {a for dims in self.canonical for dim in dims for a in self.axes.now(dim)}
        used |= {a for line in self.values.lines for a in line.axes}
        used |= {a for r in results for a, _ in r.access.strides}
        free = sorted(used - {self.inner})
        if results and free:
            near = dict(results[0].access.strides)
            self.lanes = min(free, key=lambda a: (near.get(a, 1 << 60), a))
        order = [*(a for a in free if a != self.lanes)]
        for axis in (*order, *(a for a in (self.inner, self.lanes) if a >= 0)):
            self._number(axis)

        def access(given: Access | None) -> Access | None:
            if given is None:
                return None
            strides = tuple(sorted((self._number(a), s) for a, s in given.strides))
            return replace(given, strides=strides)

        lines = tuple(
            replace(
                line, axes=tuple(sorted(map(self._number, line.axes))), access=access(line.access)
            )
            for line in self.values.lines
        )
        nodes = [self.values.nodes[name] for name in self.values.operands]
        sizes = [0] * len(self.numbers)
        for axis, number in self.numbers.items():
            sizes[number] = self.axes.sizes[axis]
        states = tuple(
            (start, end, tuple(sorted(self._number(a) for dim in dims for a in self.axes.now(dim))))
            for (start, end), dims in zip(self.states, self.canonical, strict=True)
        )

        def placed(result: Result) -> Result:
            made = access(result.access)
            assert made is not None
            return replace(result, access=made)

        return TimeScan(
            steps=self.count,
            sizes=tuple(sizes),
            inner=self.numbers.get(self.inner, -1),
            lanes=self.numbers.get(self.lanes, -1),
            operands=tuple(
                (tuple(n.shape or ()), tuple(n.strides or ()), str(n.dtype)) for n in nodes
            ),
            lines=lines,
            states=states,
            outputs=tuple(map(placed, outputs)),
            last=tuple(map(placed, last)),
            narrow=self.kinds[0] if len(self.kinds) == 1 else "float32",
        )
