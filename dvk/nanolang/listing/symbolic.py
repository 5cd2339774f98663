"""A captured graph with named sizes in place of numbers, for prompts and kernels.

Every distinct size above 1 of any value's shape gets one name, by order of first appearance: `s0=16384 s1=1024`. Operands that are sizes (a
view's shape, a norm's normalized shape, the start of a slice) use the names; all other operands stay literals, even with the same number.
Strides that are not row-major are products of the sizes they step over, if possible.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.symint import SymbolicSize, named
from dvk.records import Graph, Node

SIZED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "view",
            "reshape",
            "_unsafe_view",
            "expand",
            "broadcast_to",
            "layer_norm",
            "rms_norm",
            "split",
            "split_with_sizes",
            "new_zeros",
            "new_ones",
            "new_empty",
            "new_full",
            "unflatten",
        ),
        (1, 2),
    ),
    **dict.fromkeys(("zeros", "ones", "empty", "full", "rand", "randn", "arange"), (0, 1)),
    **dict.fromkeys(("slice", "narrow"), (2, 3)),
    "conv1d": (6,),
    "conv2d": (6,),
    "conv3d": (6,),
    "instance_norm": (),
    "group_norm": (1,),
}
"""Operator → positions of the operands that are sizes (for convolutions and group norm, the number of groups)."""
END = (1 << 63) - 1
"""The end of an open slice."""


class Names:
    """Value → name of the sizes of one graph."""

    def __init__(self, graph: Graph):
        self.sizes: dict[int, SymbolicSize] = {}
        for node in graph.nodes:
            for size in node.shape or ():
                if size > 1 and size not in self.sizes:
                    named(f"s{len(self.sizes)}", int(size), self.sizes)

    @property
    def values(self) -> dict[str, int]:
        """Name → value, in order."""
        return {repr(size): value for value, size in self.sizes.items()}

    def size(self, value: int) -> int:
        """A size by its name; a number that no shape has stays a number."""
        return self.sizes.get(value, value) if type(value) is int else value

    def strides(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
        """Strides as products of the sizes they step over."""
        order = sorted(
            (d for d in range(len(shape)) if shape[d] > 1), key=lambda d: (strides[d], -d)
        )
        result = list(strides)
        step: int = 1
        for dim in order:
            if strides[dim] == step:
                result[dim] = step
            else:
                result[dim] = step = self._product(strides[dim])
            step = step * shape[dim]
        return tuple(result)

    def _product(self, value: int) -> int:
        """A stride that is not dense: a size, a product of two, or the number."""
        if value in self.sizes:
            return self.sizes[value]
        pair = next(
            (
                a * self.sizes[value // b]
                for b, a in self.sizes.items()
                if value % b == 0 and value // b in self.sizes
            ),
            None,
        )
        return value if pair is None else pair


def symbolic(graph: Graph, names: Names) -> Graph:
    """The graph with the sizes of `names`; it lowers, fuses and renders as the numeric one does."""
    return graph.model_copy(update={"nodes": tuple(_node(node, names) for node in graph.nodes)})


def _node(node: Node, names: Names) -> Node:
    changed: dict[str, Any] = {}
    if node.shape is not None:
        shape = changed["shape"] = tuple(names.size(s) for s in node.shape)
        if node.strides is not None:
            row_major = contiguous_strides(shape)
            changed["strides"] = (
                row_major
                if tuple(row_major) == node.strides
                else names.strides(shape, node.strides)
            )
    places = SIZED.get(packet(node), ())
    if places:
        changed["args"] = tuple(
            _sized(a, names) if n in places else a for n, a in enumerate(node.args)
        )
    return node.model_copy(update=changed)


def _sized(value: Any, names: Names) -> Any:
    return [names.size(v) for v in value] if isinstance(value, (list, tuple)) else names.size(value)


def packet(node: Node) -> str:
    """`add` for `aten.add.Tensor`; the op itself outside ATen."""
    return node.op.split(".")[1] if node.op.startswith("aten.") else node.op
