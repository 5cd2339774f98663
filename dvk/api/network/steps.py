"""A training step of a model: forward, and backward along fixed cotangents of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from dvk.api.network.truths import Call, called, leaves
from dvk.errors import UsageError
from dvk.tasks.state import seeded
from dvk.tasks.trees import map_tensors, named_tensors

GRADIENT = "gradient of "
"""Begins the names of gradients among what a step returns."""
ALONG = 17
"""Seed of the cotangents."""
REMEDY = "set its dropout probabilities to 0 in the configuration, or train in eval mode: --eval, model.eval()"


def stepped(model: nn.Module, call: Call, seed: int) -> list[tuple[str, torch.Tensor]]:
    """Make one step with copies of the arguments, from a seed; the model's buffers and its `.grad`s are left as they were.

    Returns:
        Name and value of each tensor of the result, of the gradient of each floating input and trained parameter (zeros where there is
        none), and of each buffer after the call.
    """
    before = [(name, one, one.detach().clone()) for name, one in model.named_buffers()]
    args, kwargs = leafed(call)
    sources = [(name, t) for name, t in named_tensors((args, kwargs)) if t.requires_grad]
    sources += [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    try:
        with torch.enable_grad(), seeded(seed):
            results = leaves(model(*args, **kwargs))
            outputs = pulled(results)
            tensors = [t for _, t in sources]
            how = {"allow_unused": True}
            found = torch.autograd.grad(outputs, tensors, cotangents(outputs), **how)
        state = [(f"buffer {name}", one.detach().clone()) for name, one, _ in before]
    finally:
        _restore([(one, value) for _, one, value in before])
    grads = [
        (f"{GRADIENT}{name}", torch.zeros_like(t) if grad is None else grad)
        for (name, t), grad in zip(sources, found, strict=True)
    ]
    return [(name, t.detach()) for name, t in [*results, *grads]] + state


def leafed(call: Call) -> Call:
    """Return copies of the arguments, of which the floating ones require gradients."""

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        copied = tensor.detach().clone()
        return copied.requires_grad_() if tensor.is_floating_point() else copied

    return map_tensors(leaf, call)


def pulled(results: Sequence[tuple[str, torch.Tensor]]) -> list[torch.Tensor]:
    """Return the tensors of a result that have a gradient."""
    return [t for _, t in results if t.requires_grad]


def cotangents(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return fixed random tensors like the outputs: eighths in [-1, 1], which every floating type holds exactly."""
    dice = torch.Generator().manual_seed(ALONG)
    drawn = [torch.randint(-8, 9, one.shape, generator=dice) for one in outputs]
    return [d.to(one.device, one.dtype) / 8 for d, one in zip(drawn, outputs, strict=True)]


def timed_call(model: nn.Module, call: Call, *, train: bool) -> Callable[[Any], None]:
    """Return what calls the model, or something compiled of it, once for a measurement; `clear` its gradients before each.

    With `train` the call is a step: gradients of parameters, and of inputs that require them, go into `.grad`.
    """
    args, kwargs = call
    if not train:
        return lambda forward: forward(*args, **kwargs)
    with torch.enable_grad():
        along = cotangents(pulled(leaves(model(*args, **kwargs))))

    def step(forward: Any) -> None:
        with torch.enable_grad():
            torch.autograd.backward(pulled(leaves(forward(*args, **kwargs))), along)

    return step


def clear(model: nn.Module, call: Call) -> None:
    """Forget all gradients, as `zero_grad(set_to_none=True)` does."""
    for one in [*model.parameters(), *(t for _, t in named_tensors(call))]:
        if one.is_leaf:
            one.grad = None


@contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """Give a model its gradients and buffers back afterwards."""
    grads = [(p, p.grad) for p in model.parameters()]
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    try:
        yield
    finally:
        for weight, grad in grads:
            weight.grad = grad
        _restore(buffers)


def check_trainable(model: nn.Module, call: Call) -> None:
    """Make one step, and see whether a second one computes the same.

    Raises:
        UsageError: no output has a gradient, or random numbers such as dropout's decide on the result.
        Exception: whatever the model raises.
    """
    with torch.enable_grad():
        results = called(model, call, 0)
    if not pulled(results):
        problem = "the model has nothing to train: no output depends on a parameter that requires a gradient"
        raise UsageError(problem, "set requires_grad on its parameters, or leave out --train")
    del results
    first, other = stepped(model, call, 0), stepped(model, call, 1)
    moved = [
        name
        for (name, one), (_, two) in zip(first, other, strict=True)
        if not torch.equal(one, two) and not _near(one, two)
    ]
    if moved:
        problem = f"the model draws random numbers, as for dropout: `{moved[0]}` differs from call to call"
        raise UsageError(problem, REMEDY)


def _near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results differ as those of sums in another order do, or share their NaNs: no dropout."""
    if not one.is_floating_point() or one.shape != other.shape:
        return False
    size = float(one.abs().nan_to_num().max()) if one.numel() else 0.0
    most = 64 * torch.finfo(one.dtype).eps * size
    return torch.allclose(one, other, rtol=0, atol=most, equal_nan=True)


def _restore(buffers: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for one, value in buffers:
            if not torch.equal(one, value):  # a write has drop-ins look at their module again
                one.copy_(value)
