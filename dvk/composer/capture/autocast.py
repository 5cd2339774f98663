"""Calls under torch.autocast.

A call computes what the same call computes without autocast if that casts no operand: norms, activations and losses of float32 values, or
products whose operands have autocast's type already. A drop-in then runs its kernels under autocast, too.

A capture under autocast holds the casts as operators (`inline`). Its program runs with autocast off, as code inside the module may have
asked for; a program that calls code left to PyTorch runs with autocast on, where that makes no difference to its other operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from dvk.composer.capture.inline import DEVICES, casts, may_cast
from dvk.composer.ir.errors import CannotCompose

TYPES = ("bfloat16", "float16")
INTO_PRODUCTS = ("cdist",)
"""Operators that autocast leaves in float32, and recipes turn into products, which it would cast."""
Setting = tuple[str, torch.dtype, bool, bool]
"""Device, type, on, with a cache of weights: as torch.export keeps a `with torch.autocast(...)`."""


def without_effect(program: Any, device: str) -> tuple[str, ...]:
    """Types with which autocast changes nothing in an exported program whose nested graphs are inlined."""
    nodes = [n for n in program.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
    if device not in DEVICES or any(n.op != "call_function" for n in nodes):
        return ()
    if any(word in str(n.target) for n in nodes for word in INTO_PRODUCTS):
        return ()
    if any(isinstance(n.target, torch._ops.HigherOrderOperator) for n in nodes):
        return ()
    concerned = [n for n in nodes if may_cast(n.target, device)]
    return tuple(t for t in TYPES if not any(_is_cast(n, device, t) for n in concerned))


def ambient(devices: Iterable[str]) -> list[Setting]:
    """The autocast that is on for these devices."""
    return [
        (device, torch.get_autocast_dtype(device), True, False)
        for device in devices
        if device in DEVICES and torch.is_autocast_enabled(device)
    ]


@contextmanager
def off(settings: Iterable[Setting]) -> Iterator[None]:
    """Turn these off meanwhile."""
    with ExitStack() as stack:
        for device, *_ in settings:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _is_cast(node: Any, device: str, dtype: str) -> bool:
    try:
        return bool(casts(node, [(device, getattr(torch, dtype), True, False)]))
    except CannotCompose:
        return True
