"""A timed call of a training task: forward and backward in one, along lent cotangents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import nn

from dvk.harness.transport.calls import pulled, trained, watched, with_gradients
from dvk.tasks.trees import map_tensors


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
        given, named, inputs = watched(list(args), kwargs, self._fixed)
        with torch.enable_grad():
            result = self._forward(*given, **named)
            sources = [*inputs, *self._weights.values()]
            grads = torch.autograd.grad(
                pulled(result), sources, list(self._along()), allow_unused=True
            )
        output = map_tensors(lambda tensor: tensor.detach(), result)
        return with_gradients(output, inputs, self._weights, grads)


def begin(call: Callable[..., Any]) -> None:
    """Prepare what timed calls call for a series."""
    if isinstance(call, TrainingStep):
        call.find_weights()
