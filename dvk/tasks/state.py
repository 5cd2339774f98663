"""Seeds, and snapshots of a module's parameters and buffers."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

State = dict[
    str, tuple[torch.Tensor, torch.Tensor]
]  # name → (the tensor object, a copy of its values)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run the body with torch (CPU and current GPU), `random` and numpy seeded; restore their states afterwards."""
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy else None
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        reseed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy:
                numpy.random.set_state(numpy_state)


def reseed(seed: int) -> None:
    """Seed torch, `random` and numpy permanently."""
    torch.manual_seed(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def generators() -> list[Any]:
    """Return the states of all generators that `seeded` seeds; they differ before and after a call that draws."""
    states: list[Any] = [torch.get_rng_state().numpy().tobytes(), random.getstate()]
    if numpy := sys.modules.get("numpy"):
        name, keys, *rest = numpy.random.get_state()
        states.append((name, keys.tobytes(), *rest))
    if torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state().numpy().tobytes())
    return states


def snapshot(model: nn.Module) -> State:
    """Return every parameter and buffer of `model`, non-persistent ones included, with a copy of its values."""
    return {name: (tensor, tensor.detach().clone()) for name, tensor in _tensors(model)}


def restore(model: nn.Module, state: State) -> None:
    """Restore what `snapshot` saved: the same tensor objects with the same values."""
    modules = dict(model.named_modules())  # TorchScript has no get_submodule
    with torch.no_grad():
        for name, (tensor, values) in state.items():
            owner, _, leaf = name.rpartition(".")
            holder = modules[owner]
            if getattr(holder, leaf) is not tensor:
                setattr(holder, leaf, tensor)
            tensor.copy_(values)


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()
