"""Whether a call under torch.autocast computes what the same call computes without it.

It does if autocast casts no operand: norms, activations and losses of float32 values, or products whose operands have autocast's type
already. A drop-in then runs its kernels under autocast, too.
"""

from __future__ import annotations

from typing import Any

import torch

from dvk.composer.capture.inline import casts
from dvk.composer.ir.errors import CannotCompose

TYPES = ("bfloat16", "float16")
DEVICES = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
"""Device → PyTorch's name of autocast's dispatch key there."""
COMPOSITE = "CompositeImplicitAutograd"
"""The key of operators that call others, which autocast may cast."""


def without_effect(program: Any, device: str) -> tuple[str, ...]:
    """Types with which autocast changes nothing in an exported program whose nested graphs are inlined."""
    nodes = [n for n in program.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
    if device not in DEVICES or any(n.op != "call_function" for n in nodes):
        return ()
    if any(isinstance(n.target, torch._ops.HigherOrderOperator) for n in nodes):
        return ()
    concerned = [n for n in nodes if _may_cast(n.target, DEVICES[device])]
    return tuple(t for t in TYPES if not any(_is_cast(n, device, t) for n in concerned))


def _may_cast(target: Any, key: str) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False
    known = torch._C._dispatch_has_kernel_for_dispatch_key
    return known(target.name(), key) or known(target.name(), COMPOSITE)


def _is_cast(node: Any, device: str, dtype: str) -> bool:
    try:
        return bool(casts(node, [(device, getattr(torch, dtype), True, False)]))
    except CannotCompose:
        return True
