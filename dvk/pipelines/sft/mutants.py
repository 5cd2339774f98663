"""More graphs from one: operators and operands are exchanged, so that few things can be memorised.

Capturing a task costs more than writing texts for it, and a small model's errors on new tasks are wrong
operands. A mutant keeps a captured graph's shapes. Pointwise operators become others that earlier tasks had, with
their literals; operands become other values of the same shape; a sum may become a maximum. Its texts are the composer's, of
families that are executed on captured tasks (`gate`); a mutant is no task and is not executed itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from dvk.composer import CapturedGraph
from dvk.nanolang.text.named import OperatorForm, form_of, function
from dvk.records import Node
from dvk.taskgen import signature_of, split_of

ALIKE = (
    ("aten.sum.dim_IntList", "aten.mean.dim", "aten.amax.default", "aten.amin.default"),
    ("aten.softmax.int", "aten.log_softmax.int"),
)
"""Operators that take the same operands."""
MOST_EDITS = 5
"""Exchanges in one graph."""
TRIES = 8
"""Mutations tried to find one that is no held-out composition."""
POOL = 400
"""Operators kept for each number of operands."""


class Mutants:
    """Makes mutants of one captured graph after another; operators come from those it has seen.

    Args:
        rng: all choices are drawn from it.
    """

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.pool: dict[int, list[Node]] = {}

    def see(self, captured: CapturedGraph) -> None:
        """Add the graph's operators."""
        for node in captured.graph.nodes:
            form = _form(node)
            if form is not None:
                known = self.pool.setdefault(form.count, [])
                if len(known) < POOL:
                    known.append(node)
                else:
                    known[self.rng.randrange(POOL)] = node

    def of(self, captured: CapturedGraph) -> CapturedGraph | None:
        """A graph like this one, for training; None if nothing can be exchanged."""
        for _ in range(TRIES):
            nodes = list(captured.graph.nodes)
            changed = sum(self._edit(nodes) for _ in range(self.rng.randint(1, MOST_EDITS)))
            graph = captured.graph.model_copy(update={"nodes": tuple(nodes)})
            if (
                changed
                and graph != captured.graph
                and split_of(signature_of(graph.signature())) == "train"
            ):
                return captured.model_copy(update={"graph": graph})
        return None

    def several(self, captured: CapturedGraph, count: int) -> Iterator[CapturedGraph]:
        """Yield up to `count` graphs like this one; fewer if nothing can be exchanged."""
        for _ in range(count):
            mutant = self.of(captured)
            if mutant is None:
                return
            yield mutant

    def _edit(self, nodes: list[Node]) -> bool:
        edit = self.rng.choice(
            (self._operator, self._operator, self._operand, self._order, self._alike)
        )
        places = list(range(len(nodes)))
        self.rng.shuffle(places)
        for place in places:
            made = edit(place, nodes)
            if made is not None:
                nodes[place] = made
                return True
        return False

    def _operator(self, place: int, nodes: list[Node]) -> Node | None:
        """Another operator on the same operands."""
        node = nodes[place]
        form, known = _form(node), {n.name: n for n in nodes}
        others = self.pool.get(form.count, []) if form is not None else []
        if not others or any(known[ref].dtype != node.dtype for ref in _refs(node)):
            return None
        other, given = self.rng.choice(others), iter(_refs(node))
        return node.model_copy(
            update={
                "op": other.op,
                "kwargs": other.kwargs,
                "args": tuple({"ref": next(given)} if _is_ref(a) else a for a in other.args),
            }
        )

    def _operand(self, place: int, nodes: list[Node]) -> Node | None:
        """Another value of the same shape, if the replaced one has other readers."""
        node = nodes[place]
        if _form(node) is None:
            return None
        known, readers = (
            {n.name: n for n in nodes[:place]},
            [ref for n in nodes for ref in _refs(n)],
        )
        at = self.rng.choice([n for n, a in enumerate(node.args) if _is_ref(a)])
        old = known[node.args[at]["ref"]]
        alike = [
            n.name
            for n in known.values()
            if n is not old and (n.shape, n.dtype, n.strides) == (old.shape, old.dtype, old.strides)
        ]
        if not alike or readers.count(old.name) < 2:
            return None
        args = list(node.args)
        args[at] = {"ref": self.rng.choice(alike)}
        return node.model_copy(update={"args": tuple(args)})

    def _order(self, place: int, nodes: list[Node]) -> Node | None:
        """The node with its first two operands exchanged."""
        node, form = nodes[place], _form(nodes[place])
        if form is None or form.count != 2:
            return None
        given = iter(reversed(_refs(node)))
        known = {n.name: n for n in nodes}
        if len({(known[r].dtype, known[r].strides) for r in _refs(node)}) > 1:
            return None
        return node.model_copy(
            update={"args": tuple({"ref": next(given)} if _is_ref(a) else a for a in node.args)}
        )

    def _alike(self, place: int, nodes: list[Node]) -> Node | None:
        """A reduction or a softmax of another kind."""
        node = nodes[place]
        kinds = next((k for k in ALIKE if node.op in k), ())
        others = [op for op in kinds if op != node.op]
        if (
            not others
            or node.kwargs
            or (kinds is ALIKE[0] and not (len(node.args) > 1 and node.args[1]))
        ):
            return None
        return node.model_copy(update={"op": self.rng.choice(others)})


def _refs(node: Node) -> list[str]:
    """The values that are a node's own operands, in order."""
    return [a["ref"] for a in node.args if _is_ref(a)]


def _is_ref(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"ref"}


def _form(node: Node) -> OperatorForm | None:
    """The form of a pointwise operator of floating-point numbers."""
    if node.dtype not in ("float32", "float16", "bfloat16") or not node.op.startswith("aten."):
        return None
    form = form_of(node)
    return form if form is not None and function(form) is not None else None


__all__ = ["Mutants"]
