"""Uses of integer and mask inputs by a reference, observed while it runs.

An indexing integer is bounded by what it indexes; one that is compared with a constant may have a special meaning there (`labels != -1`,
`ignore_index`); one that indexes writes must not repeat. Each input is followed through the operators that derive other integers or
booleans from it, so `table[ids + offset]` is one use of `ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dvk.tasks.trees import named_tensors

_COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_OVERWRITING = frozenset({"index_put", "_index_put_impl", "index_copy", "scatter"})


@dataclass
class Use:
    """Uses of one input."""

    sizes: set[int] = field(default_factory=set)
    """Sizes of dimensions that it indexes."""
    special: set[int] = field(default_factory=set)
    """Values at or next to which its meaning changes."""
    overwrites: bool = False
    """Whether it indexes writes other than additions."""


class TensorUses(TorchDispatchMode):
    """Follows some tensors through the body.

    Args:
        tensors: integers and booleans.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]):
        super().__init__()
        self.uses = [Use() for _ in tensors]
        self._alive: list[torch.Tensor] = list(tensors)
        """Tensors kept alive while their memory is identified by its address."""
        self._made_of: dict[int, frozenset[int]] = {}
        for number, tensor in enumerate(tensors):
            self._made_of[_memory(tensor)] = self._made_of.get(_memory(tensor), frozenset()) | {
                number
            }

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's default would import torch._dynamo at the first operator, which takes 2 s

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sources: frozenset[int] = frozenset().union(
            *[self._of(t) for _, t in named_tensors((args, kwargs or {}))]
        )
        if sources:
            given = {**dict(zip([a.name for a in func._schema.arguments], args)), **(kwargs or {})}
            self._note(func._schema.name.partition("::")[2].rstrip("_"), given)
            for _, made in named_tensors(result):
                if not (made.is_floating_point() or made.is_complex()):
                    self._alive.append(made)
                    self._made_of[_memory(made)] = self._of(made) | sources
        return result

    def _of(self, value: Any) -> frozenset[int]:
        known = isinstance(value, torch.Tensor) and value.layout is torch.strided
        return self._made_of.get(_memory(value), frozenset()) if known else frozenset()

    def _note(self, name: str, given: dict[str, Any]) -> None:
        base, other = given.get("self", given.get("weight")), given.get("other")
        if name in _COMPARED and isinstance(other, (int, float)):
            self._special(base, {int(other) - 1, int(other), int(other) + 1})
        if name.startswith("clamp"):
            edges = [given.get(edge) for edge in ("min", "max")]
            self._special(
                base,
                {
                    int(edge) + step
                    for edge, step in zip(edges, (-1, 1))
                    if isinstance(edge, (int, float))
                },
            )
        if "ignore_index" in given:
            self._special(given.get("target"), {int(given["ignore_index"])})
        if not isinstance(base, torch.Tensor):
            return
        for index, size in _indexed(name, base, given):
            for number in self._of(index):
                self.uses[number].sizes.add(size)
                self.uses[number].overwrites |= (
                    name in _OVERWRITING and not given.get("accumulate") and not given.get("reduce")
                )

    def _special(self, tensor: Any, values: set[int]) -> None:
        if isinstance(tensor, torch.Tensor):
            for number in self._of(tensor):
                self.uses[number].special |= values


def _indexed(name: str, base: torch.Tensor, given: dict[str, Any]) -> list[tuple[Any, int]]:
    """Return the tensors that index, and the size of what each indexes."""
    index, indices = given.get("index"), given.get("indices")
    if isinstance(given.get("target"), torch.Tensor) and name.startswith("nll_loss"):
        return [(given["target"], base.shape[1 if base.dim() > 1 else 0])]
    if isinstance(indices, (list, tuple)):
        return [
            (one, base.shape[d])
            for d, one in enumerate(indices)
            if isinstance(one, torch.Tensor) and d < base.dim()
        ]
    if isinstance(indices, torch.Tensor):
        return [(indices, base.shape[0])] if base.dim() else []
    if isinstance(index, torch.Tensor) and base.dim():
        return [
            (index, base.shape[given["dim"]] if isinstance(given.get("dim"), int) else base.numel())
        ]
    return []


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else 0


__all__ = ["TensorUses", "Use"]
