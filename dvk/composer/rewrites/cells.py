"""Decompose a recurrent cell: two linears, and gates as pointwise work.

The library launches a kernel per operation of a gate, or one kernel that cannot fuse with its neighbours. As operators, the gates become
one kernel with the work around the cell. The formulas are those of torch.nn.RNNCell, GRUCell and LSTMCell in the library's order, so
results differ only in rounding. A state of zeros needs no matmul: its linear is the bias, if weights are finite.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir import recurrence
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import pinned
from dvk.composer.ir.nodes import FLOATS
from dvk.composer.rewrites.edit import packet, ref, split_outputs
from dvk.records import Graph, Node

GATES = {f"{name}_cell": gates for name, gates in recurrence.GATES.items()}
"""Operator → number of gates, each of which has as many weight rows as the state has columns."""

Value = dict[str, str]
"""A reference to a node."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph with decomposed cells, or None without any."""
    nodes = {n.name: n for n in graph.nodes}
    kept = pinned(graph)

    def apart(node: Node) -> tuple[list[Value], list[Node]] | None:
        if (
            packet(node) not in GATES
            or node.kwargs
            or node.name in kept
            or (states := _states(node, nodes)) is None
        ):
            return None
        cell = _Cell(node, states)
        return cell.results(), cell.made

    return split_outputs(graph, apart)


def _states(node: Node, nodes: dict[str, Node]) -> list[Node] | None:
    """h and, for an LSTM, c, each [batch, hidden]; None for operands of several types, or that broadcast."""
    given = node.args[1] if isinstance(node.args[1], (list, tuple)) else [node.args[1]]
    x, *states = (nodes[ref(v) or ""] for v in (node.args[0], *given))
    weights = [nodes[ref(v) or ""] for v in node.args[2:] if v is not None]
    every = [x, *states, *weights]
    if x.dtype not in FLOATS or any(
        n.dtype != x.dtype or n.shape is None or 0 in n.shape for n in every
    ):
        return None
    shapes = [n.shape or () for n in every]
    if len(shapes[0]) != 2 or len(shapes[1]) != 2 or len(weights) not in (2, 4):
        return None
    (batch, inputs), hidden = shapes[0], shapes[1][1]
    rows = GATES[packet(node)] * hidden
    wanted = [
        (batch, inputs),
        *((batch, hidden) for _ in states),
        (rows, inputs),
        (rows, hidden),
        (rows,),
        (rows,),
    ]
    return states if shapes == wanted[: len(shapes)] else None


class _Cell:
    """The nodes that replace a cell."""

    def __init__(self, node: Node, states: list[Node]):
        self.node, self.made = node, list[Node]()
        self.batch, self.hidden = states[0].shape or (0, 0)
        self.dtype = states[0].dtype
        self.states: list[Value] = [{"ref": n.name} for n in states]
        x, _, weight, across, bias, added = (*node.args, None, None)[:6]
        self.wide = GATES[packet(node)] * self.hidden
        self.of_x = self._add("linear.default", x, weight, bias, columns=self.wide)
        if packet(states[0]) != "zeros":
            self.of_h = self._add(
                "linear.default", self.states[0], across, added, columns=self.wide
            )
        elif added is not None:
            self.of_h = self._add(
                "expand.default", added, [self.batch, self.wide], columns=self.wide, strides=(0, 1)
            )
        else:
            self.of_h = self._add("zeros.default", [self.batch, self.wide], columns=self.wide)

    def _add(
        self, op: str, *args: Any, columns: int = 0, strides: tuple[int, ...] = (), name: str = ""
    ) -> Value:
        """A new node, [batch, columns]; the default is the state's number of columns."""
        shape = (self.batch, columns or self.hidden)
        name = name or f"{self.node.name}_n{len(self.made)}"
        self.made.append(
            Node(
                name=name,
                op=f"aten.{op}",
                args=args,
                shape=shape,
                dtype=self.dtype,
                strides=strides or contiguous_strides(shape),
            )
        )
        return {"ref": name}

    def _gate(self, of: Value, number: int) -> Value:
        made = self._add("slice.Tensor", of, 1, number * self.hidden, (number + 1) * self.hidden)
        self.made[-1] = self.made[-1].model_copy(update={"strides": (self.wide, 1)})
        return made

    def results(self) -> list[Value]:
        """The new states: the node's own value, or the items of its tuple."""
        if packet(self.node) == "gru_cell":
            return [self._gru()]
        total = self._add("add.Tensor", self.of_x, self.of_h, columns=self.wide)
        if packet(self.node) == "lstm_cell":
            return self._lstm(total)
        return [
            self._add(
                "relu.default" if "relu" in self.node.op else "tanh.default",
                total,
                name=self.node.name,
            )
        ]

    def _gru(self) -> Value:
        """r, z = σ(x + h) of their gates, n = tanh(x + r·h) of the third; the new state is (h − n)·z + n."""
        add, (h,) = self._add, self.states
        reset, keep = (
            add(
                "sigmoid.default",
                add("add.Tensor", self._gate(self.of_h, n), self._gate(self.of_x, n)),
            )
            for n in range(2)
        )
        new = add(
            "tanh.default",
            add(
                "add.Tensor",
                self._gate(self.of_x, 2),
                add("mul.Tensor", self._gate(self.of_h, 2), reset),
            ),
        )
        return add(
            "add.Tensor",
            add("mul.Tensor", add("sub.Tensor", h, new), keep),
            new,
            name=self.node.name,
        )

    def _lstm(self, total: Value) -> list[Value]:
        """i, f, g, o = σ, σ, tanh, σ of their gates; c ← f·c + i·g and h = o·tanh(c)."""
        add = self._add
        applied = ("sigmoid", "sigmoid", "tanh", "sigmoid")
        take, forget, new, give = (
            add(f"{op}.default", self._gate(total, n)) for n, op in enumerate(applied)
        )
        c = add(
            "add.Tensor", add("mul.Tensor", forget, self.states[1]), add("mul.Tensor", take, new)
        )
        return [add("mul.Tensor", give, add("tanh.default", c)), c]
