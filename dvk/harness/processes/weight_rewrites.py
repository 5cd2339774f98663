"""Changes of a candidate's weights, in each of the ways in which programs change a module's. Runner side.

    load      load_state_dict
    copy      in place, under no_grad
    data      `weight.data` is assigned
    replace   another Parameter takes its place in its module
    step      in place, all tensors at once, as optimizers do
    convert   the whole module goes to float64 and back, and is written in between

Every way leaves the same values, so a candidate that caches values computed from the weights (packed, folded, captured) must notice each.
No way writes in place through `.data`: a module could detect that only by reading its weights.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

LOAD = "load"
MOST_CONVERTED = 64 << 20
"""Largest module that is converted to float64 and back, in bytes."""

Values = Mapping[str, torch.Tensor]
Owners = list[tuple[nn.Module, str]]


def rewrite(model: nn.Module, values: Values, way: str) -> bool:
    """Set tensors of a module to other values.

    Args:
        model: the module.
        values: by name in its state_dict, in the same shapes; they are copied.
        way: one of WAYS.

    Returns:
        False if that way does not work for this module: part of it may have been written, and `load_state_dict` does the rest.
    """
    held = _held(model)
    if any(name not in held or held[name].shape != value.shape for name, value in values.items()):
        return False  # a state_dict that it made itself
    try:
        with torch.no_grad():
            _WAYS[way](model, {name: (held[name], value) for name, value in values.items()})
    except Exception:  # noqa: BLE001 - a module may refuse to be written so, and then computes nothing wrong
        return False
    return True


def pack_recurrent(model: nn.Module) -> None:
    """Put the weights of recurrent layers into one piece of memory again, as these layers do when they are made on a GPU.

    Other ways to write weights take them apart, and cuDNN would then copy them in each call, which it does not do for the reference.
    """
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()


Pairs = Mapping[str, tuple[torch.Tensor, torch.Tensor]]


def _copy(model: nn.Module, pairs: Pairs) -> None:
    for tensor, value in pairs.values():
        tensor.copy_(value)


def _data(model: nn.Module, pairs: Pairs) -> None:
    for tensor, value in pairs.values():
        tensor.data = torch.empty_like(tensor.data).copy_(value)


def _replace(model: nn.Module, pairs: Pairs) -> None:
    owners = _owners(model)
    made: dict[int, torch.Tensor] = {}
    for tensor, value in pairs.values():
        if id(tensor) in made:
            continue
        new = torch.empty_like(tensor.data).copy_(value)
        made[id(tensor)] = (
            nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else new
        )
        for module, key in owners[id(tensor)]:
            setattr(module, key, made[id(tensor)])


def _step(model: nn.Module, pairs: Pairs) -> None:
    floating = {
        id(tensor): (tensor, value)
        for tensor, value in pairs.values()
        if tensor.is_floating_point()
    }
    tensors, values = (
        [pair[0] for pair in floating.values()],
        [pair[1] for pair in floating.values()],
    )
    if tensors:
        torch._foreach_zero_(tensors)
        torch._foreach_add_(
            tensors, [value.to(tensor.dtype) for tensor, value in zip(tensors, values, strict=True)]
        )
    _copy(model, {name: pair for name, pair in pairs.items() if id(pair[0]) not in floating})


def _convert(model: nn.Module, pairs: Pairs) -> None:
    tensors = [*model.parameters(), *model.buffers()]
    dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    if (
        len(dtypes) != 1
        or torch.float64 in dtypes
        or sum(tensor.nbytes for tensor in tensors) > MOST_CONVERTED
    ):
        _copy(model, pairs)
        return
    model.to(torch.float64)
    now = _held(model)
    for name, (_, value) in pairs.items():
        now[name].copy_(value)
    model.to(dtypes.pop())


_WAYS: dict[str, Callable[[nn.Module, Pairs], None]] = {
    "copy": _copy,
    "data": _data,
    "replace": _replace,
    "step": _step,
    "convert": _convert,
}
WAYS = (LOAD, *_WAYS)
HOW = {
    "copy": "in place (`weight.copy_(…)` under no_grad)",
    "data": "by `weight.data = …`",
    "replace": "by another Parameter in its place",
    "step": "in place, all at once, as an optimizer's step does",
    "convert": "in place, between `.to(float64)` and back",
}
"""Descriptions of the ways other than load_state_dict."""


def all_ways() -> Iterator[str]:
    """Return ways for one candidate's weight changes: first `load`, then every way, in an order that reveals nothing."""
    yield LOAD
    while True:
        yield from random.SystemRandom().sample(WAYS, len(WAYS))


def _held(model: nn.Module) -> dict[str, torch.Tensor]:
    held: dict[str, Any] = dict(model.named_parameters(remove_duplicate=False))
    return held | dict(model.named_buffers(remove_duplicate=False))


def _owners(model: nn.Module) -> dict[int, Owners]:
    """Return for each tensor the modules that hold it, with their attribute names."""
    result: dict[int, Owners] = {}
    for module in model.modules():
        for key, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is not None:
                result.setdefault(id(tensor), []).append((module, key))
    return result


__all__ = ["HOW", "LOAD", "WAYS", "rewrite", "all_ways"]
