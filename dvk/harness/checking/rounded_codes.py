"""Whether a reference quantises: makes integers of eight bits from floats by rounding, as opposed to indices and classes in these types.

A code whose value is near a boundary may come out as the next one, and no other. An index or a class may come out as any other at a tie.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dvk.tasks.trees import named_tensors

_CASTS = ("_to_copy", "copy_")
_PLACES = ("arg", "sort", "topk", "kthvalue", "mode", "searchsorted", "bucketize", "nonzero")
"""Starts of names of operators that return places."""


class RoundedCodes(TorchDispatchMode):
    """Follows integers that floats were converted to; `found`: some have eight bits."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False
        self._rounded: dict[int, torch.Tensor] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's default would import torch._dynamo at the first operator, which takes 2 s

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if self.found or name.startswith(_PLACES):
            return result
        given = [t for _, t in named_tensors((args, kwargs or {}))]
        casts = name in _CASTS and any(t.is_floating_point() for t in given)
        if casts or any(id(t) in self._rounded for t in given):
            for _, tensor in named_tensors(result):
                if _integral(tensor):
                    self._rounded[id(tensor)] = tensor  # kept, so that no other has its id
                    self.found |= tensor.itemsize == 1
        return result


def _integral(tensor: torch.Tensor) -> bool:
    kind = tensor.dtype
    return not (kind.is_floating_point or kind.is_complex or kind is torch.bool)
