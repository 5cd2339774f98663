"""What recipes ask of a graph on a device, to tell whether they would change something."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dvk import aten
from dvk.composer.ir.effects import draws, is_step, shared, written
from dvk.composer.ir.nodes import EIGHTHS, View
from dvk.composer.lowering import CODEGEN_RULES, RULES, attention, lower
from dvk.composer.lowering.dispatch import BLOCK_PRODUCTS
from dvk.composer.lowering.sums_at_places import SCATTERED
from dvk.composer.rewrites import convolution_bias, cudnn, huge_pages, layout, packed_weights
from dvk.records import Graph


@dataclass(frozen=True)
class Occasion:
    """A graph on a device, with what recipes ask of it."""

    original: Graph
    graph: Graph
    """The same with composite operators decomposed, as far as recipes and the back end allow."""
    device: str
    has_families: bool
    """The back end has kernels for the families of `OWN_FAMILIES`."""

    @cached_property
    def operators(self) -> list[str]:
        """Names of ATen's operators; on a GPU the bias of a library convolution is one, added by a kernel."""
        apart = convolution_bias.rewrite(self.graph) if self.device == "cuda" else None
        nodes = (apart or self.graph).nodes
        return [n.op.split(".")[1] for n in nodes if n.op.startswith("aten.")]

    @cached_property
    def owned(self) -> set[str]:
        """Recipes of kernel families that would turn some operator into a kernel."""
        return _owned(self.graph, self.device) if self.has_families else set()

    def is_fused(self) -> bool:
        """Some operator has a rule."""
        return any(o in RULES for o in self.operators)

    def reduces(self) -> bool:
        """Some operator reduces, or has a kernel that does."""
        attends = self.device == "cuda" and attention.RECIPE in self.owned
        return attends or any(o in aten.REDUCING for o in self.operators)

    def normalises_exponents(self) -> bool:
        """Some operator needs the maximum and the sum of a row."""
        return any(
            "softmax" in o or "cross_entropy" in o or o == "logsumexp" for o in self.operators
        )

    def attends(self) -> bool:
        """A softmax may be that of an attention."""
        return any("softmax" in o or "scaled_dot_product" in o for o in self.operators)

    def scales_blocks(self) -> bool:
        """A product of 8-bit floating-point values has scales of blocks."""
        if not self.has_families or all(n.dtype not in EIGHTHS for n in self.graph.nodes):
            return False
        made = lower(self.graph, may_own=BLOCK_PRODUCTS.__eq__, device=self.device)
        return any(prim.attrs.get("blocks") for prim in made.prims)

    def has_epilogue(self) -> bool:
        """A call of a library may have something to fuse behind it."""
        return any(o in aten.LIBRARY for o in self.operators) and self.is_fused()

    def writes_large(self) -> bool:
        """A kernel may write a result of huge pages."""
        return self.is_fused() and any(
            huge_pages.is_large(node.shape, node.dtype)
            for node in self.graph.nodes
            if node.op.startswith("aten.")
        )

    def calls_convolution(self) -> bool:
        return any(cudnn.measured(node, str) for node in self.graph.nodes)

    def packs_weights(self) -> bool:
        """A call of the library may read weights in the library's own layout, perhaps in channels-last memory."""
        return any(
            packed_weights.calls(graph)
            for graph in (self.graph, layout.rewrite(self.graph, self.device))
            if graph is not None
        )

    def is_static(self) -> bool:
        return is_static(self.graph)


def _owned(graph: Graph, device: str) -> set[str]:
    """Recipes of kernel families that would turn some operator here into a kernel, found by trying."""
    of = {
        node.name: CODEGEN_RULES[operator]
        for node in graph.nodes
        if node.op.startswith("aten.") and (operator := node.op.split(".")[1]) in CODEGEN_RULES
    }
    if not of:
        return set()
    without = lower(graph, may_own=lambda recipe: False, device=device).values
    result = set()
    for recipe in {recipe for rules in of.values() for recipe in rules} - {BLOCK_PRODUCTS}:
        alone = lower(graph, may_own=recipe.__eq__, device=device).values
        if any(
            recipe in rules and _left(without[name]) and not _left(alone[name])
            for name, rules in of.items()
        ):
            result.add(recipe)
    return result


def _left(value: object) -> bool:
    """The value is the result of a call that stays with PyTorch."""
    return (
        isinstance(value, View)
        and value.base.kind == "extern"
        and value.base.op != SCATTERED
        and not value.steps
    )


def is_static(graph: Graph) -> bool:
    """Every call runs the same kernels on the same kinds of memory: no random numbers, no writes into arguments.

    Weights and buffers that are written keep their places, so that a replay writes them as a call does.
    """
    if any(is_step(n) or (n.shape is None and n.dtype is not None) for n in graph.nodes):
        return False
    producers = {node.name: node for node in graph.nodes}
    reached = [name for node in graph.nodes for name in written(node)]
    seen = set(reached)
    while reached:
        node = producers[reached.pop()]
        if node.op in ("input", "const"):
            return False
        reached += [name for name in shared(node) if name not in seen]
        seen.update(reached)
    return not any(draws(n) for n in graph.nodes)
