"""A timed call of a training task: forward and backward in one, along lent cotangents.

The work around both is on the clock, as is every candidate's: it is kept to a few microseconds, where arguments and results are tensors
without a structure. A walk of PyTorch's through trees takes hundreds, in which a GPU would have finished a small module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import nn

from dvk.harness.transport.calls import pulled, trained, watched, with_gradients
from dvk.tasks.trees import map_tensors

PLAIN = (torch.Tensor, torch.nn.Parameter, bool, int, float, str, type(None))
"""Types of arguments and results that hold no tensors within."""


class TrainingStep:
    """Calls a module, and pulls its outputs back.

    Args:
        model: owns the weights.
        forward: the module, or what `torch.compile` made of it.
        along: gives the cotangents, one for each output that has a gradient.
        fixed: positions of the input tensors that the module writes.
    """

    def __init__(
        self,
        model: nn.Module,
        forward: Callable[..., Any],
        along: Callable[[], Sequence[torch.Tensor]],
        fixed: Collection[int] = (),
    ):
        self._model = model
        self._weights: dict[str, nn.Parameter] = {}
        self._forward, self._along, self._fixed = forward, along, fixed

    def find_weights(self) -> None:
        """Find the weights, before a series of calls: loading a state may have replaced them."""
        self._weights = trained(self._model)
        for weight in self._weights.values():
            weight.requires_grad_(True)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return what `calls.call` returns with `backward`."""
        if not self._weights:
            self.find_weights()
        given, named, inputs = _leaves(args, kwargs, self._fixed)
        with torch.enable_grad():
            result = self._forward(*given, **named)
            sources = [*inputs, *self._weights.values()]
            grads = torch.autograd.grad(
                pulled(result), sources, list(self._along()), allow_unused=True
            )
        return with_gradients(_detached(result), inputs, self._weights, grads)


def _leaves(
    args: tuple[Any, ...], kwargs: dict[str, Any], fixed: Collection[int]
) -> tuple[list[Any], dict[str, Any], list[torch.Tensor]]:
    """Return what `calls.watched` returns."""
    if kwargs or fixed or not all(type(value) in PLAIN for value in args):
        return watched(list(args), kwargs, fixed)
    given: list[Any] = []
    inputs: list[torch.Tensor] = []
    for value in args:
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
            value = value.detach().requires_grad_(True)
            inputs.append(value)
        given.append(value)
    return given, kwargs, inputs


def _detached(result: Any) -> Any:
    """Return a result whose tensors belong to no graph."""
    if isinstance(result, torch.Tensor):
        return result.detach()
    if type(result) in (tuple, list) and all(type(value) in PLAIN for value in result):
        return type(result)(v.detach() if isinstance(v, torch.Tensor) else v for v in result)
    return map_tensors(lambda tensor: tensor.detach(), result)


def begin(call: Callable[..., Any]) -> None:
    """Prepare what timed calls call for a series."""
    if isinstance(call, TrainingStep):
        call.find_weights()
