"""RNN, GRU and LSTM over whole sequences: one linear for all inputs, then a kernel that runs the steps.

A layer becomes a linear, which holds the weights of both directions if there are two, and a `recurrent` node (`dvk.composer.ir.recurrence`)
with the matmuls of the state and the gates. Weights are packed once, and again whenever one is written. The summation order differs from
the library's: results differ only in rounding.

It covers float32 and float64, any number of layers, one direction or two, batches first or not. Packed sequences, projections and dropout
between the layers in training stay calls of the library.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import pinned
from dvk.composer.ir.recurrence import GATES, RECURRENT, Recurrence
from dvk.composer.rewrites.edit import packet, ref, split_outputs
from dvk.records import Graph, Node

Value = dict[str, str]
"""A reference to a node."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph with recurrent kernels, or None if none applies."""
    nodes = {n.name: n for n in graph.nodes}
    kept = pinned(graph)
    parts: dict[str, dict[int, Node]] = {}
    for node in graph.nodes:
        if node.op == "getitem":
            parts.setdefault(ref(node.args[0]) or "", {})[node.args[1]] = node

    def apart(node: Node) -> tuple[list[Value], list[Node]] | None:
        if (
            packet(node) not in GATES
            or not node.op.endswith(".input")
            or node.kwargs
            or node.name in kept
        ):
            return None
        stack = _Stack(node, parts.get(node.name, {}).get(0), nodes)
        return (stack.results(), stack.made) if stack.is_covered() else None

    return split_outputs(graph, apart)


class _Stack:
    """The nodes that replace a recurrent network, layer by layer.

    Args:
        out: the node of its first result, if it is used.
    """

    def __init__(self, node: Node, out: Node | None, nodes: dict[str, Node]):
        self.node, self.out, self.made = node, out, list[Node]()
        x, given, held, self.biased, self.layers, dropout, training, both, self.first = node.args
        self.drops = bool(training and dropout and self.layers > 1)
        self.mode, self.ways = packet(node), 2 if both else 1
        self.x = nodes[ref(x) or ""]
        self.states = [nodes[ref(v) or ""] for v in (given if isinstance(given, list) else [given])]
        self.weights = [nodes[ref(v) or ""] for v in held]
        self.hidden = (self.states[0].shape or (0,))[-1]
        self.across = self.ways * self.hidden

    # -------------------------------------------------------------- what is covered

    def is_covered(self) -> bool:
        """Operands have one type and the shapes without projections, and nothing is drawn."""
        x, rows = self.x.shape or (), GATES[self.mode] * self.hidden
        every = [self.x, *self.states, *self.weights]
        if self.drops or self.x.dtype not in ("float32", "float64") or len(x) != 3:
            return False
        if any(n.dtype != self.x.dtype or 0 in (n.shape or (0,)) for n in every):
            return False
        wanted: list[tuple[int, ...]] = []
        for layer in range(self.layers):
            one = [
                (rows, self.across if layer else x[2]),
                (rows, self.hidden),
                *([(rows,), (rows,)] if self.biased else []),
            ]
            wanted += one * self.ways
        state = (self.layers * self.ways, x[0 if self.first else 1], self.hidden)
        return (
            [n.shape for n in self.weights] == wanted
            and all(n.shape == state for n in self.states)
            and self._is_time_major()
        )

    def _is_time_major(self) -> bool:
        """The library's own first result has step-major memory."""
        if self.out is None or self.out.shape is None or self.out.strides is None:
            return True
        one, other, _ = self.out.shape
        strides = (
            (self.across, one * self.across, 1)
            if self.first
            else (other * self.across, self.across, 1)
        )
        return all(
            a == b
            for a, b, size in zip(self.out.strides, strides, self.out.shape, strict=True)
            if size > 1
        )

    # -------------------------------------------------------------- writing

    def _add(
        self,
        op: str,
        *args: Any,
        shape: tuple[int, ...],
        strides: tuple[int, ...] = (),
        **kwargs: Any,
    ) -> Value:
        name = f"{self.node.name}_n{len(self.made)}"
        self.made.append(
            Node(
                name=name,
                op=op,
                args=args,
                kwargs=kwargs,
                shape=shape,
                dtype=self.x.dtype,
                strides=strides or contiguous_strides(shape),
            )
        )
        return {"ref": name}

    def results(self) -> list[Value]:
        """y, h and, for an LSTM, c."""
        value: Value = {"ref": self.x.name}
        last: list[list[Value]] = []
        for layer in range(self.layers):
            value, *states = self._layer(layer, value)
            last.append(states)
        if self.first:
            batch, steps, _ = self.x.shape or (0, 0, 0)
            turned = (self.across, batch * self.across, 1)
            value = self._add(
                "aten.transpose.int", value, 0, 1, shape=(batch, steps, self.across), strides=turned
            )
        if self.layers == 1:
            return [value, *last[0]]
        shape = self.states[0].shape or ()
        return [
            value,
            *(
                self._add("aten.cat.default", list(layers), shape=shape)
                for layers in zip(*last, strict=True)
            ),
        ]

    def _layer(self, layer: int, x: Value) -> list[Value]:
        """y [steps, batch, ways·hidden] and the last states of one layer."""
        one, other, inputs = self.x.shape or (0, 0, 0)
        steps, batch = (other, one) if self.first else (one, other)
        count = 4 if self.biased else 2
        sides = [
            self.weights[(layer * self.ways + way) * count :][:count] for way in range(self.ways)
        ]
        wide = GATES[self.mode] * self.across
        weight = self._joined([s[0] for s in sides], (wide, self.across if layer else inputs))
        bias = self._joined([s[2] for s in sides], (wide,)) if self.biased else None
        made = Recurrence(
            self.mode,
            str(self.x.dtype),
            steps,
            batch,
            self.hidden,
            self.ways,
            self.biased,
            self.first and layer == 0,
        )
        a = self._add("aten.linear.default", x, weight, bias, shape=made.shape("a"))
        states = [self._of_layer(n, layer) for n in self.states]
        held = [
            self._packed([s[at] for s in sides], made) for at in ((1, 3) if self.biased else (1,))
        ]
        name = f"{self.node.name}_n{len(self.made)}"
        self.made.append(
            Node(name=name, op=RECURRENT, args=(a, *states, *held), kwargs=asdict(made))
        )
        return [
            self._add("getitem", {"ref": name}, n, shape=made.shape(what))
            for n, what in enumerate(made.written)
        ]

    def _of_layer(self, state: Node, layer: int) -> Value:
        """The layer's slice of the given states."""
        if self.layers == 1:
            return {"ref": state.name}
        shape = (self.ways, *(state.shape or ())[1:])
        return self._add(
            "aten.slice.Tensor",
            {"ref": state.name},
            0,
            layer * self.ways,
            (layer + 1) * self.ways,
            shape=shape,
        )

    def _joined(self, weights: list[Node], shape: tuple[int, ...]) -> Value:
        """The weights of all directions, concatenated."""
        if len(weights) == 1:
            return {"ref": weights[0].name}
        return self._add(
            "derived",
            *({"ref": n.name} for n in weights),
            shape=shape,
            make="lambda u, v: torch.cat((u, v))",
        )

    def _packed(self, weights: list[Node], made: Recurrence) -> Value:
        """Weights or biases of the state in the kernel's layout: blocks of units, rounded up with zeros."""
        inner = (weights[0].shape or ())[1:]
        gates, hidden, blocks, lanes = made.gates, made.hidden, made.blocks, made.lanes
        beyond = (*(0 for _ in range(2 * len(inner) + 1)), blocks * lanes - hidden)
        order = (1, 3, 0, 2) if inner else (1, 0, 2)
        names = ", ".join(f"w{n}" for n in range(len(weights)))
        make = (
            f"lambda {names}: torch.stack([torch.nn.functional.pad(w.reshape({(gates, hidden, *inner)}), {beyond})"
            f".reshape({(gates, blocks, lanes, *inner)}).permute({order}) for w in ({names},)]).contiguous()"
        )
        return self._add(
            "derived",
            *({"ref": n.name} for n in weights),
            shape=made.shape("w" if inner else "b"),
            make=make,
        )
