"""Elements of a tensor that the graph's results depend on in every case.

Element indices are followed through views, through pointwise operators as they broadcast, and up to a result, or to an operator that mixes
all its inputs and whose own result matters in full. Only operators named here are followed; elements that reach others may not be needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from dvk import aten
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import walk_refs, written
from dvk.nanolang.listing.symbolic import packet
from dvk.records import Graph, Node

MOST_ELEMENTS = 1 << 22
MOST_STEPS = 64
"""Operators that a tensor's elements are followed through."""
EACH = (aten.of("activation") - {"_prelu_kernel", "glu", "prelu"}) | frozenset(
    """
    add sub rsub mul div neg abs square pow sqrt rsqrt reciprocal exp exp2 expm1 log log1p log2 sin cos erf softshrink hardshrink tanhshrink
    clamp clamp_min clamp_max maximum minimum lerp addcmul addcdiv logaddexp
""".split()
)
"""Pointwise operators with operands that broadcast."""
CENTRED = aten.of("normalization") | {"std", "var", "softmax", "log_softmax", "cosine_similarity"}
"""Operators of which a single element may have no effect."""
ALL = CENTRED | frozenset(
    """
    sum mean amax amin logsumexp linalg_vector_norm mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss
    binary_cross_entropy_with_logits kl_div pairwise_distance matmul linear mm bmm
""".split()
)
"""Operators whose results together depend on all elements of their operands."""
WHOLE_VIEWS = aten.of("reshape") | {"permute", "transpose", "t", "contiguous", "movedim"}
VIEWS = (
    WHOLE_VIEWS
    | aten.of("cut")
    | {"narrow", "slice", "select", "getitem", "expand", "broadcast_to"}
)


class LiveElements:
    """The needed elements of a graph's tensors."""

    def __init__(self, graph: Graph):
        self.nodes = {node.name: node for node in graph.nodes}
        self.readers: dict[str, list[Node]] = {name: [] for name in self.nodes}
        self.varies: set[str] = set()
        """Values that depend on inputs or weights; others are constant, and may hide elements."""
        for node in graph.nodes:
            read: set[str] = set()
            walk_refs([list(node.args), dict(node.kwargs)], read.add)
            if node.op in ("input", "param", "buffer") or read & self.varies:
                self.varies.add(node.name)
            for name in sorted(read & self.readers.keys()):
                self.readers[name].append(node)
        self.returned: set[str] = set()
        walk_refs(graph.outputs, self.returned.add)
        self.changes = any(written(node) for node in graph.nodes)
        self.kept: set[str] = set()
        """Values that matter in full."""
        for node in reversed(graph.nodes):
            if node.name in self.returned or any(
                r.name in self.kept and self._keeps(r) for r in self.readers[node.name]
            ):
                self.kept.add(node.name)

    def of(self, name: str) -> torch.Tensor | None:
        """Booleans over a tensor's memory, from its first element to its last, for those its readers need; None if unknown."""
        places = self.places(name)
        if self.changes or places is None:
            return None
        tensor = torch.zeros(int(places.max()) + 1, dtype=torch.bool)
        self._steps = 0
        self._follow(name, places, tensor)
        return tensor

    def all_of(self, name: str) -> torch.Tensor | None:
        """Booleans over a tensor's memory, for the positions of its elements."""
        places = self.places(name)
        if places is None:
            return None
        tensor = torch.zeros(int(places.max()) + 1, dtype=torch.bool)
        tensor[places.reshape(-1)] = True
        return tensor

    def places(self, name: str) -> torch.Tensor | None:
        """The offset of each element, in the tensor's shape; None for a large or an empty tensor."""
        node = self.nodes[name]
        shape = tuple(map(int, node.shape or ()))
        if node.shape is None or not 0 < math.prod(shape) <= MOST_ELEMENTS:
            return None
        strides = tuple(map(int, node.strides or contiguous_strides(shape)))
        extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        return torch.arange(extent).as_strided(shape, strides) if extent <= MOST_ELEMENTS else None

    def _follow(self, name: str, places: Any, tensor: torch.Tensor) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS or (
            isinstance(places, torch.Tensor) and places.numel() > MOST_ELEMENTS
        ):
            return
        single = places if isinstance(places, torch.Tensor) else None
        if self._steps > 1 and name in self.returned and single is not None:
            tensor[single.reshape(-1)] = True
        for reader in self.readers[name]:
            kind = packet(reader)
            if kind in VIEWS:
                moved = _moved(reader, name, places)
                if moved is not None:
                    self._follow(reader.name, moved, tensor)
            elif single is None or not self._certain(reader):
                continue
            elif kind == "glu":
                dim = reader.args[1] if len(reader.args) > 1 else -1
                for half in single.chunk(2, dim):
                    self._follow(reader.name, half, tensor)
            elif kind in EACH:
                shape = tuple(map(int, reader.shape or ()))
                if torch.broadcast_shapes(tuple(single.shape), shape) == shape:
                    self._follow(reader.name, single.broadcast_to(shape), tensor)
            elif kind in ALL and reader.name in self.kept:
                tensor[single.reshape(-1)] = True

    def _keeps(self, reader: Node) -> bool:
        """The operands matter in full if the result does."""
        return packet(reader) in WHOLE_VIEWS or (
            packet(reader) in EACH | ALL and self._certain(reader)
        )

    def _certain(self, reader: Node) -> bool:
        """No operand makes another irrelevant: constant masks, factors of 0, equal bounds."""
        read: set[str] = set()
        walk_refs([list(reader.args), dict(reader.kwargs)], read.add)
        numbers = [v for v in (*reader.args, *reader.kwargs.values()) if type(v) in (int, float)]
        kind = packet(reader)
        if kind in EACH and (
            0 in numbers
            or (len(numbers) > 1 and kind in ("clamp", "hardtanh") and numbers[0] >= numbers[1])
        ):
            return False
        shapes = [self.nodes[name].shape or () for name in read if name in self.nodes]
        return read <= self.varies and not (kind in CENTRED and any(1 in shape for shape in shapes))


def _moved(node: Node, name: str, places: Any) -> Any:
    """Apply a view to a tensor, or to several; None if that fails."""

    def operand(value: Any) -> Any:
        if isinstance(value, Mapping):
            return places if value.get("ref") == name else None
        return [operand(v) for v in value] if isinstance(value, (list, tuple)) else value

    if node.op == "getitem":
        index = node.args[1]
        return (
            places[index]
            if isinstance(places, (list, tuple)) and type(index) is int and index < len(places)
            else None
        )
    try:
        _, name_of, overload = node.op.split(".")
        function = getattr(getattr(torch.ops.aten, name_of), overload)
        made = function(
            *map(operand, node.args), **{key: operand(value) for key, value in node.kwargs.items()}
        )
    except (RuntimeError, TypeError, AttributeError, ValueError, IndexError, NotImplementedError):
        return None
    if isinstance(made, torch.Tensor) and (
        node.shape is None or tuple(made.shape) != tuple(map(int, node.shape))
    ):
        return None
    return made


__all__ = ["LiveElements"]
