"""Attention layers for which eager PyTorch calls a fused function instead of their operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dvk.composer.capture.calling import ModuleCall
from dvk.composer.capture.eager_calls import CallSite

FAST = (
    "_native_multi_head_attention",
    "_transformer_encoder_layer_fwd",
    "_nested_tensor_from_mask",
)
"""Fused functions of torch that attention layers call in eval mode instead of their operators."""
LAYERS = (
    torch.nn.MultiheadAttention,
    torch.nn.TransformerEncoderLayer,
    torch.nn.TransformerEncoder,
)


def is_fake(call: ModuleCall) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    held = [*call.tensors.values(), *call.model.parameters(), *call.model.buffers()]
    return any(isinstance(t, FakeTensor) for t in held)


def fused_attention_layers(call: ModuleCall) -> list[CallSite]:
    """Attention layers that run as one of torch's fused functions, given a mask."""
    model = call.model
    if is_fake(call) or not any(isinstance(m, LAYERS) and not m.training for m in model.modules()):
        return []
    seen: dict[CallSite, None] = {}
    paths = {id(module): path for path, module in model.named_modules()}
    stack: list[tuple[str, bool]] = []
    real = torch.nn.Module.__call__
    before = {name: getattr(torch, name) for name in FAST}

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        masked = any(value is not None and "mask" in name for name, value in kwargs.items()) or (
            isinstance(self, (torch.nn.TransformerEncoderLayer, torch.nn.TransformerEncoder))
            and any(a is not None for a in args[1:])
        )
        stack.append((paths.get(id(self), ""), masked))
        try:
            return real(self, *args, **kwargs)
        finally:
            stack.pop()

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if (
                stack
                and stack[-1][0]
                and (stack[-1][1] or function is before["_nested_tensor_from_mask"])
            ):
                seen[CallSite(stack[-1][0])] = None
            return function(*args, **kwargs)

        return run

    args, kwargs = call.arguments([t.detach().clone() for t in call.tensors.values()])
    state = [(b, b.detach().clone()) for b in model.buffers()]
    for name, function in before.items():
        setattr(torch, name, noting(function))
    torch.nn.Module.__call__ = called  # type: ignore[method-assign]
    try:
        with (
            torch.no_grad(),
            torch.random.fork_rng(
                [d for d in {t.device for t in call.tensors.values()} if d.type == "cuda"]
            ),
        ):
            model.forward(*args, **kwargs)
    except ZeroDivisionError:
        return []
    finally:
        torch.nn.Module.__call__ = real  # type: ignore[method-assign]
        for name, function in before.items():
            setattr(torch, name, function)
        with torch.no_grad():
            for buffer, value in state:
                if buffer._version:
                    buffer.copy_(value)
    return list(seen)
