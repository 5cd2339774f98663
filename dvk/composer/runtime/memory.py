"""Fresh memory for results, and views of memory; the text travels inside drop-ins, as that of `guards.py` does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch


def dvk_allocator(device: str) -> Callable[[tuple, tuple, torch.dtype], torch.Tensor]:
    """A function from shape, strides and dtype to memory on the device, or on the current GPU.

    It is the one that TorchInductor's programs call, which parses no keywords and passes no dispatcher: 0.9 µs on a CPU, where
    `torch.empty` with dtype and device takes 3.2. A recorder of launches sees only what passes the dispatcher.
    """
    fast = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    made: Any = getattr(fast, f"_empty_strided_{device}", None)
    if made is not None and "dvk_record" not in sys.modules:
        return made
    return lambda shape, strides, dtype: torch.empty_strided(
        shape, strides, dtype=dtype, device=device
    )


def dvk_viewer() -> Callable[[torch.Tensor, tuple, tuple, int], torch.Tensor]:
    """A function from tensor, shape, strides and offset to a view of the tensor's memory, which autograd knows nothing about.

    TorchInductor's programs call the same one: 0.75 µs, where a chain of `reshape`, slice and `permute` takes 1.2 to 2.6 a link.
    """
    fast = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    made: Any = getattr(fast, "_reinterpret_tensor", None)
    if made is not None and "dvk_record" not in sys.modules:
        return made
    return lambda tensor, shape, strides, offset: tensor.as_strided(
        shape, strides, tensor.storage_offset() + offset
    )
