"""Recognise a loop over experts in a captured graph (`rewrites.experts`): for each expert the same steps on the rows that chose it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from dvk import aten
from dvk.composer.rewrites.edit import packet, reads, ref, users
from dvk.records import Graph, Node

CHECKS = ("sym_size", "_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size")
"""Operators about the number of rows alone."""
ZEROS = ("zeros", "zeros_like", "new_zeros")
MATMULS = ("linear", "matmul", "mm", "__matmul__")
Kind = Literal["rows", "picked", "same", "linear", "elementwise", "old", "added"]


@dataclass(frozen=True)
class Operand:
    """One of a step's operands: the value of an earlier step (`row`), a value outside of the loop (`name`), or a literal."""

    row: int = -1
    name: str = ""
    literal: Any = None


@dataclass(frozen=True)
class Step:
    """One operator on an expert's rows.

    Attributes:
        kind: `rows` of `source` at the tokens; `picked`: its elements at tokens and picks; `same`: a view that changes nothing.
        width: columns of `rows`; `source` may have them in another shape (`unsqueeze`).
    """

    kind: Kind
    node: Node
    operands: tuple[Operand, ...] = ()
    source: str = ""
    width: int = 0

    def like(self, other: Step) -> bool:
        """The same step of another expert, whose weights may differ."""
        mine = [(o.row, bool(o.name), o.literal) for o in self.operands]
        yours = [(o.row, bool(o.name), o.literal) for o in other.operands]
        kinds = [
            (s.kind, s.node.op, s.node.dtype, s.source, s.width, s.node.kwargs)
            for s in (self, other)
        ]
        return kinds[0] == kinds[1] and mine == yours


@dataclass
class Body:
    """The steps of one expert, the last of which is added to the result."""

    steps: list[Step] = field(default_factory=list)
    inside: set[str] = field(default_factory=set)
    """Nodes that depend on the expert's tokens."""
    end: Node | None = None
    before: str = ""
    """The result that it adds to."""


@dataclass(frozen=True)
class Loop:
    """A loop over experts.

    Attributes:
        chosen: tokens × picks: the chosen experts.
        bodies: by expert.
        last: the node that holds the whole result.
        start: what the experts' results are added to; None for zeros.
        inside: nodes that only the loop needs.
    """

    chosen: Node
    bodies: tuple[Body, ...]
    last: Node
    start: str | None
    inside: frozenset[str]

    @property
    def experts(self) -> int:
        return len(self.bodies)


@dataclass(frozen=True)
class _Mask:
    """The choice of one expert: where `chosen` is `expert`; `turned`: as picks × tokens."""

    where: Node
    chosen: str
    expert: int
    turned: bool


def find_loops(graph: Graph) -> Iterator[Loop]:
    """The loops over all experts of a graph."""
    nodes = {node.name: node for node in graph.nodes}
    by_choice: dict[str, list[_Mask]] = {}
    for node in graph.nodes:
        if packet(node) in ("where", "nonzero_numpy") and len(node.args) == 1:
            mask = _mask(node, nodes)
            if mask is not None:
                by_choice.setdefault(mask.chosen, []).append(mask)
    for chosen, masks in by_choice.items():
        loop = _loop(graph, nodes, nodes[chosen], masks)
        if loop is not None:
            yield loop


def _mask(where: Node, nodes: dict[str, Node]) -> _Mask | None:
    node = nodes[ref(where.args[0]) or ""]
    turned = False
    while packet(node) in ("t", "transpose", "permute") and len(node.shape or ()) == 2:
        node, turned = nodes[ref(node.args[0]) or ""], not turned
    if packet(node) == "eq" and isinstance(node.args[1], int):
        return _Mask(where, ref(node.args[0]) or "", node.args[1], turned)
    if packet(node) != "select" or node.args[1] != 0:
        return None
    expert, node = node.args[2], nodes[ref(node.args[0]) or ""]
    if packet(node) != "permute" or tuple(node.args[1]) not in ((2, 1, 0), (2, 0, 1)):
        return None
    turned ^= tuple(node.args[1]) == (2, 1, 0)
    hot = nodes[ref(node.args[0]) or ""]
    if packet(hot) != "one_hot":
        return None
    return _Mask(where, ref(hot.args[0]) or "", expert, turned)


def _loop(graph: Graph, nodes: dict[str, Node], chosen: Node, masks: list[_Mask]) -> Loop | None:
    """The loop over all experts that a router may choose; None if something else happens in it."""
    top = nodes.get(ref(chosen.args[0]) or "") if chosen.op == "getitem" else None
    if top is None or packet(top) != "topk" or chosen.args[1] != 1 or len(chosen.shape or ()) != 2:
        return None
    scores = nodes[ref(top.args[0]) or ""]
    masks = sorted(masks, key=lambda mask: mask.expert)
    if [mask.expert for mask in masks] != list(range((scores.shape or (0,))[-1])):
        return None
    bodies = [_body(graph, nodes, mask, chosen) for mask in masks]
    if any(body is None or body.end is None for body in bodies):
        return None
    found = [body for body in bodies if body is not None]
    first = found[0]
    for body in found:
        alike = len(body.steps) == len(first.steps) and all(
            a.like(b) for a, b in zip(first.steps, body.steps, strict=True)
        )
        if not alike:
            return None
    return _closed(graph, nodes, chosen, found)


def _closed(graph: Graph, nodes: dict[str, Node], chosen: Node, bodies: list[Body]) -> Loop | None:
    """The loop, if nothing outside reads what is inside but the whole result."""
    readers = users(graph)
    ends = {body.end.name: body for body in bodies if body.end is not None}
    befores = {body.before for body in bodies}
    last = [name for name in ends if name not in befores]
    start = [name for name in befores if name not in ends]
    if len(last) != 1 or len(start) != 1 or len(befores) != len(bodies):
        return None
    inside = frozenset().union(*(body.inside for body in bodies))
    for name in inside - {last[0]}:
        if any(reader.name not in inside for reader in readers[name]):
            return None
    if any(reader.name not in inside for reader in readers[start[0]]):
        return None
    zero = packet(nodes[start[0]]) in ZEROS
    return Loop(chosen, tuple(bodies), nodes[last[0]], None if zero else start[0], inside)


def _body(graph: Graph, nodes: dict[str, Node], mask: _Mask, chosen: Node) -> Body | None:
    reader = _Reader(nodes, mask, chosen)
    for node in graph.nodes:
        if reader.body.end is None and not reader.take(node):
            return None
    return reader.body


class _Reader:
    """Reads the steps of one expert; a value inside is a role or the number of a step."""

    def __init__(self, nodes: dict[str, Node], mask: _Mask, chosen: Node):
        self.nodes, self.mask, self.chosen = nodes, mask, chosen
        self.body = Body()
        self.found: dict[str, int | str] = {mask.where.name: "places"}
        self.body.inside.add(mask.where.name)

    def take(self, node: Node) -> bool:
        """Read one node; False for one that has no place in a loop over experts."""
        if node.name in self.found or not any(name in self.found for name in reads(node)):
            return True
        self.body.inside.add(node.name)
        name = packet(node)
        if name in CHECKS or node.op.startswith("python."):
            self.found[node.name] = "check"
            return True
        if node.op == "getitem":
            self.found[node.name] = ("pick", "token")[(node.args[1] == 0) != self.mask.turned]
            return True
        if name in ("index_add_", "index_add"):
            return self._ends(node, node.args[3], node.args[2], node.args[1] == 0)
        if name in ("index_put_", "index_put") and len(node.args[1]) == 1:
            adds = node.args[3:] == (True,)
            value = node.args[2] if adds else self._added(node)
            return value is not None and self._ends(node, value, node.args[1][0], True)
        made = self._step(node)
        if made is None:
            return False
        self.found[node.name] = len(self.body.steps)
        self.body.steps.append(made)
        return True

    def _role(self, value: Any) -> int | str | None:
        return self.found.get(ref(value) or "")

    def _added(self, node: Node) -> Any:
        """What is added in `out[token] = out[token] + value`; the steps that read and add go."""
        steps, last = self.body.steps, self._role(node.args[2])
        if last != len(steps) - 1 or not steps or node.args[3:] not in ((), (False,)):
            return None
        add = steps.pop()
        olds = [
            n
            for n, operand in enumerate(add.operands)
            if operand.row >= 0
            and (steps[operand.row].kind, steps[operand.row].source)
            == ("rows", ref(node.args[0]) or "")
        ]
        if packet(add.node).rstrip("_") != "add" or len(olds) != 1 or len(add.operands) != 2:
            return None
        old = add.operands[olds[0]].row
        scaled = bool(add.node.kwargs)  # alpha
        if scaled or any(operand.row == old for step in steps for operand in step.operands):
            return None
        if old == len(steps) - 1:
            steps.pop()
        else:
            steps[old] = Step("old", steps[old].node)
        return add.node.args[1 - olds[0]]

    def _ends(self, node: Node, value: Any, places: Any, fits: bool) -> bool:
        step = self._role(value)
        if self._role(places) != "token" or not isinstance(step, int) or not fits or node.kwargs:
            return False
        if step != len(self.body.steps) - 1:
            return False
        self.body.end, self.body.before = node, ref(node.args[0]) or ""
        return True

    def _step(self, node: Node) -> Step | None:
        name = packet(node)
        if name == "index":
            return self._read(node)
        below = self._below(node.args[0])
        if name in ("reshape", "view", "squeeze") and below is not None:
            same = below.kind == "rows" and below.width == self._asked(node)
            return Step("same", node, (self._operand(node.args[0]),)) if same else None
        if name == "unsqueeze" and below is not None:
            same = below.kind == "picked" and node.args[1] in (1, -1)
            return Step("same", node, (self._operand(node.args[0]),)) if same else None
        operands = tuple(map(self._operand, node.args))
        if any(isinstance(self._role(a), str) for a in node.args):
            return None
        if name in MATMULS:
            fits = operands[0].row >= 0 and all(o.name for o in operands[1:]) and not node.kwargs
            return Step("linear", node, operands) if fits else None
        row = aten.OPERATORS.get(name.removesuffix("_"))
        plain = row is not None and row.category in (*aten.POINTWISE, "cast")
        return Step("elementwise", node, operands) if plain else None

    def _below(self, value: Any) -> Step | None:
        """The step that makes an operand."""
        step = self._role(value)
        return self.body.steps[step] if isinstance(step, int) else None

    def _operand(self, value: Any) -> Operand:
        step = self._role(value)
        if isinstance(step, int):
            return Operand(row=step)
        name = ref(value)
        return Operand(name=name) if name is not None else Operand(literal=value)

    def _read(self, node: Node) -> Step | None:
        """Rows or elements of what is outside, at the expert's places."""
        source, places = self.nodes[ref(node.args[0]) or ""], node.args[1]
        shape, (tokens, picks) = source.shape or (), self.chosen.shape or (0, 0)
        if source.name in self.found:
            return None
        roles = [self._role(place) for place in places]
        below = source
        while packet(below) == "unsqueeze":  # one for each expert
            below = self.nodes[ref(below.args[0]) or ""]
        if roles == ["token"] and len(shape) == 2 and shape[0] == tokens:
            return Step("rows", node, source=below.name, width=shape[1])
        ahead = len(places) == 2 and places[0] is None and shape[:2] == (1, tokens)
        if ahead and roles[1] == "token" and len(shape) == 3:
            return Step("rows", node, source=below.name, width=shape[2])
        if roles == ["token", "pick"] and shape in ((tokens, picks), (tokens, picks, 1)):
            return Step("picked", node, source=below.name)
        return None

    def _asked(self, node: Node) -> int:
        """The width that a reshape of rows asks for; a squeeze of the first dimension keeps it."""
        if packet(node) == "squeeze":
            below = self._below(node.args[0])
            return below.width if below is not None and node.args[1:] == (0,) else 0
        asked = node.args[1]
        return asked[-1] if len(asked) == 2 and isinstance(asked[-1], int) else 0
