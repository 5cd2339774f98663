"""Which elements of a tensor the graph's results depend on, for certain.

Elements are followed by their numbers: through views as the views move them, through operators of each element by itself as they
broadcast, up to a result or to an operator that mixes all that it is given. What goes another way is not followed, and so not needed
for certain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from dvk.composer.affine import contiguous_strides
from dvk.composer.compact.symbolic import packet
from dvk.composer.lowering import is_view, walk_refs, writes_in_place
from dvk.records import Graph, Node

MOST_ELEMENTS = 1 << 22
MOST_STEPS = 64
"""Operators that a tensor's elements are followed through."""
EACH = frozenset("""
    add sub rsub mul div neg abs square pow sqrt rsqrt reciprocal exp exp2 expm1 log log1p log2 sin cos erf sigmoid tanh relu relu6 gelu
    silu elu celu selu mish softplus softshrink hardshrink tanhshrink hardswish hardsigmoid hardtanh leaky_relu log_sigmoid clamp clamp_min
    clamp_max maximum minimum lerp addcmul addcdiv logaddexp prelu threshold
""".split())  # fmt: skip
"""Of each element by itself, with operands that broadcast."""
ALL = frozenset("""
    sum mean amax amin std var logsumexp softmax log_softmax layer_norm rms_norm batch_norm instance_norm group_norm linalg_vector_norm
    mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy_with_logits kl_div cosine_similarity pairwise_distance
    matmul linear mm bmm
""".split())  # fmt: skip
"""Each result of these depends on all elements of what it is made of, and each element is in one."""
PARTS = frozenset("""
    narrow slice select chunk split split_with_sizes unbind tensor_split hsplit vsplit dsplit getitem index index_select gather embedding
    diagonal linalg_diagonal tril triu topk sort take unfold as_strided
""".split())  # fmt: skip
"""What may leave elements out."""


class Needs:
    """What is needed of a graph's tensors."""

    def __init__(self, graph: Graph):
        self.nodes = {node.name: node for node in graph.nodes}
        self.readers: dict[str, list[Node]] = {name: [] for name in self.nodes}
        for node in graph.nodes:
            read: set[str] = set()
            walk_refs([list(node.args), dict(node.kwargs)], read.add)
            for name in sorted(read & self.readers.keys()):
                self.readers[name].append(node)
        self.returned: set[str] = set()
        walk_refs(graph.outputs, self.returned.add)
        self.changes = any(writes_in_place(node) for node in graph.nodes)
        self._parted: dict[str, bool] = {}

    def of(self, name: str) -> torch.Tensor | None:
        """Flags over a tensor's memory, from its first element to its last: those that must be read; None where that cannot be said."""
        node = self.nodes[name]
        shape = tuple(map(int, node.shape or ()))
        if self.changes or node.shape is None or not 0 < math.prod(shape) <= MOST_ELEMENTS:
            return None
        strides = tuple(map(int, node.strides or contiguous_strides(shape)))
        extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
        if extent > MOST_ELEMENTS:
            return None
        places = torch.arange(extent).as_strided(shape, strides)
        found = torch.zeros(extent, dtype=torch.bool)
        self._steps = 0
        self._follow(name, places, found)
        return found

    def _follow(self, name: str, places: Any, found: torch.Tensor) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS or (isinstance(places, torch.Tensor) and places.numel() > MOST_ELEMENTS):
            return
        if self._steps > 1 and name in self.returned and isinstance(places, torch.Tensor):
            found[places.reshape(-1)] = True
        for reader in self.readers[name]:
            kind = packet(reader)
            if kind in EACH and isinstance(places, torch.Tensor) and reader.shape is not None:
                self._follow(reader.name, torch.broadcast_to(places, tuple(map(int, reader.shape))), found)
            elif kind == "glu" and isinstance(places, torch.Tensor):
                dim = reader.args[1] if len(reader.args) > 1 else -1
                for half in places.chunk(2, dim):
                    self._follow(reader.name, half, found)
            elif kind in ALL and isinstance(places, torch.Tensor) and not self._parts(reader.name):
                found[places.reshape(-1)] = True
            elif is_view(reader):
                moved = _moved(reader, name, places)
                if moved is not None:
                    self._follow(reader.name, moved, found)

    def _parts(self, name: str) -> bool:
        """Somewhere behind this value elements may be left out, or it is used by nothing."""
        if name not in self._parted:
            self._parted[name] = True
            readers = self.readers[name]
            whole = bool(readers) and not any(packet(r) in PARTS or self._parts(r.name) for r in readers)
            self._parted[name] = not (whole or name in self.returned)
        return self._parted[name]


def _moved(node: Node, name: str, places: Any) -> Any:
    """What a view makes of a tensor, or of several; None where it cannot be made."""
    def operand(value: Any) -> Any:
        if isinstance(value, Mapping):
            return places if value.get("ref") == name else None
        return [operand(v) for v in value] if isinstance(value, (list, tuple)) else value

    if node.op == "getitem":
        index = node.args[1]
        return places[index] if isinstance(places, (list, tuple)) and type(index) is int and index < len(places) else None
    try:
        packet, _, overload = node.op.removeprefix("aten.").partition(".")
        function = getattr(getattr(torch.ops.aten, packet), overload or "default")
        made = function(*map(operand, node.args), **{key: operand(value) for key, value in node.kwargs.items()})
    except (RuntimeError, TypeError, AttributeError, ValueError, IndexError, NotImplementedError):
        return None
    whole = made if isinstance(made, torch.Tensor) else None
    if whole is not None and (whole.dtype != torch.int64 or node.shape is None or tuple(whole.shape) != tuple(map(int, node.shape))):
        return None
    return made


__all__ = ["Needs"]
