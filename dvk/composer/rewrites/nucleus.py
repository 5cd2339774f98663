"""Filters by cumulative sums of a sorted line, as nucleus sampling (top-p) has them, without the sort.

`sort` puts a line in order, `cumsum` adds up its weights, a comparison with a limit tells which places are kept, and `scatter` takes them
back to where they came from. All else in between is computed place by place, or is a sum or a softmax of the line: it is the same of the
line as it was. Only the comparison depends on the order. It becomes a `nucleus`, which finds the place where the sum reaches the limit
(`lowering.nucleus`), and nothing is sorted, added up or scattered. Equal values are in the order of a stable sort, as PyTorch has them.

Left alone: lines that are read in order by anything else (a shifted mask, a draw, the caller).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dvk import aten
from dvk.composer.ir.effects import pinned, refs
from dvk.composer.lowering.nucleus import NUCLEUS, TESTS
from dvk.composer.lowering.selections import SINGLE
from dvk.composer.rewrites.edit import packet, reads, rebuilt, ref
from dvk.records import Graph, Node

SOFTMAX = ("softmax", "_softmax", "log_softmax", "_log_softmax")
BY_PLACE = aten.of(*aten.POINTWISE) | {
    "to",
    "_to_copy",
    "clone",
    "zeros_like",
    "ones_like",
    "full_like",
}
"""Operators that compute each place from the same place of their operands."""
OF_LINES = ("sum", "amax", "amin", "mean")
"""Reductions whose result is the same in any order."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph without some of its sorts, or None if it has none of this kind."""
    found: Graph | None = None
    kept = pinned(graph)
    for node in graph.nodes:
        if packet(node) == "sort" and node.name not in kept:
            found = _Sorted.of(found or graph, node, kept) or found
    return found


@dataclass
class _Sorted:
    """A sorted line, and what is computed of it."""

    nodes: dict[str, Node]
    sort: Node
    dim: int
    descends: bool
    line: str
    """What is sorted."""
    ordered: set[str] = field(default_factory=set)
    """Values in its order, each computed place by place."""
    places: set[str] = field(default_factory=set)
    """Where the places came from."""
    sums: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Cumulative sums → what they sum, and whether each includes its own place."""
    replacement: dict[str, list[Node]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    tests: int = 0

    @classmethod
    def of(cls, graph: Graph, sort: Node, kept: set[str]) -> Graph | None:
        """The graph without a sort, or None if its order is needed."""
        nodes = {node.name: node for node in graph.nodes}
        line = nodes[ref(sort.args[0]) or ""]
        rest = dict(zip(("dim", "descending"), sort.args[1:], strict=False)) | sort.kwargs
        if line.dtype not in SINGLE or not line.shape or line.name in kept:
            return None
        dim = rest.get("dim", -1) % len(line.shape)
        made = cls(nodes, sort, dim, bool(rest.get("descending", False)), line.name)
        behind = graph.nodes[graph.nodes.index(sort) + 1 :]
        if not all(
            node.name not in kept and made.takes(node) for node in behind if made.reads(node)
        ):
            return None
        if made.ordered.union(made.places, made.sums).intersection(refs(graph.outputs)):
            return None
        made.replacement[sort.name] = []
        return rebuilt(graph, made.replacement, made.renamed) if made.tests else None

    def reads(self, node: Node) -> bool:
        """The node reads something in the line's order."""
        known = {self.sort.name, *self.ordered, *self.places, *self.sums}
        return not known.isdisjoint(reads(node))

    def takes(self, node: Node) -> bool:
        """Note what becomes of a node; False if it needs the order."""
        read = set(reads(node))
        if node.op == "getitem" and self.sort.name in read:
            return self._part(node)
        if packet(node) == "_assert_tensor_metadata":
            self.replacement[node.name] = []
            return True
        if read & self.places:
            return self._back(node)
        if read & self.sums.keys():
            return self._of_sums(node)
        if packet(node) == "cumsum" and self._is_along(node) and len(node.args) == 2:
            of = ref(node.args[0]) or ""
            self.sums[node.name] = of, True
            self.replacement[node.name] = []
            return not node.kwargs and self._is_weight(of)
        if packet(node) in OF_LINES and self._is_of_lines(node):
            return True
        self.ordered.add(node.name)
        softmax = packet(node) in SOFTMAX and self._is_along(node)
        return softmax or (packet(node) in BY_PLACE and self._is_by_place(node))

    def _part(self, node: Node) -> bool:
        values = node.args[1] == 0
        (self.ordered if values else self.places).add(node.name)
        self.replacement[node.name] = []
        if values:
            self.renamed[node.name] = self.line
        return True

    def _back(self, node: Node) -> bool:
        """A scatter of a value to the places that its elements came from: the value in the line's own order."""
        if node.op != "aten.scatter.src" or node.kwargs:
            return False
        _, dim, places, source = node.args
        value = self.nodes[ref(source) or ""]
        if ref(places) not in self.places or value.name not in self.ordered:
            return False
        # Two tensors must not become one, nor a result its operand.
        if value.name in (*self.renamed, *self.renamed.values()):
            return False
        whole = value.shape == node.shape == self.nodes[self.line].shape
        same = (value.dtype, value.strides) == (node.dtype, node.strides)
        if not whole or not same or dim % len(node.shape or ()) != self.dim:
            return False
        self.replacement[node.name] = []
        self.renamed[node.name] = value.name
        return True

    def _of_sums(self, node: Node) -> bool:
        """A sum without its own place, or the comparison of one with a limit."""
        if len(node.args) != 2 or node.kwargs:
            return False
        first, second = (ref(value) for value in node.args)
        summed = self.sums.get(first or "")
        if summed is None or second in self.sums:
            return False
        of, includes = summed
        if packet(node) == "sub" and includes and second is not None and self._is_same(of, second):
            self.sums[node.name] = of, False
            self.replacement[node.name] = []
            return True
        limit = self.nodes.get(second or "")
        if packet(node) not in TESTS or (limit is not None and not self._is_wide(limit)):
            return False
        self.tests += 1
        self.ordered.add(node.name)
        kwargs = {
            "dim": self.dim,
            "descends": self.descends,
            "test": packet(node),
            "includes": includes,
        }
        args = {"ref": self.line}, {"ref": self.renamed.get(of, of)}, node.args[1]
        self.replacement[node.name] = [
            node.model_copy(update={"op": NUCLEUS, "args": args, "kwargs": kwargs})
        ]
        return True

    def _is_weight(self, name: str) -> bool:
        """No value is below 0, so that the sum never falls."""
        node = self.nodes[self.renamed.get(name, name)]
        while packet(node) in ("to", "_to_copy", "float"):
            node = self.nodes[self.renamed.get(of := ref(node.args[0]) or "", of)]
        row = aten.OPERATORS.get(packet(node))
        return node.dtype in SINGLE and row is not None and row.bounds[0] >= 0

    def _is_same(self, name: str, other: str) -> bool:
        """Two names of a value, or of one that is computed twice."""
        a, b = self.nodes[name], self.nodes[other]
        return name == other or (a.op, a.args, a.kwargs) == (b.op, b.args, b.kwargs)

    def _is_along(self, node: Node) -> bool:
        dim = node.args[1] if len(node.args) > 1 else None
        return isinstance(dim, int) and dim % len(node.shape or (1,)) == self.dim

    def _is_of_lines(self, node: Node) -> bool:
        shape, at = self.nodes[self.line].shape or (), self.dim
        return node.shape == (*shape[:at], 1, *shape[at + 1 :])

    def _is_by_place(self, node: Node) -> bool:
        """All that it reads has the line's order, or one value a line."""
        others = [self.nodes[name] for name in reads(node) if name not in self.ordered]
        return node.shape == self.nodes[self.line].shape and all(map(self._is_wide, others))

    def _is_wide(self, node: Node) -> bool:
        """A tensor with one value a line."""
        if node.shape is None or node.name in self.ordered:
            return False
        at = self.dim - len(self.nodes[self.line].shape or ()) + len(node.shape)
        return at < 0 or node.shape[at] == 1
