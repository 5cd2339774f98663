"""Whether a training task has gradients, by one step on its example inputs."""

from __future__ import annotations

from typing import Any

import torch

from dvk.errors import TaskError
from dvk.tasks.build import BuiltTask
from dvk.tasks.sourcefile import blame
from dvk.tasks.state import seeded
from dvk.tasks.trees import map_tensors, named_tensors

REMEDY = "drop --train, or let forward() compute from floating inputs and weights with operators that have one"


def check_gradients(built: BuiltTask, args: list[Any], kwargs: dict[str, Any], seed: int) -> None:
    """Make one step, forward and backward.

    Raises:
        TaskError: nothing has a gradient, or an operator has no backward.
    """
    inputs: list[torch.Tensor] = []

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        inputs.append(tensor.detach().requires_grad_(True))
        return inputs[-1]

    args, kwargs = map_tensors(leaf, (args, kwargs))
    weights = [weight for weight in built.model.parameters() if weight.requires_grad]
    with torch.enable_grad(), seeded(seed):
        try:
            result = built.model(*args, **kwargs)
            outputs = [t for _, t in named_tensors(result) if t.requires_grad]
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise _cannot(built, blame(error)) from error
        if not outputs:
            raise _cannot(
                built, "no output depends on an input or a weight through operators with a gradient"
            )
        try:
            along = [torch.ones_like(t) for t in outputs]
            torch.autograd.grad(outputs, [*inputs, *weights], along, allow_unused=True)
        except (Exception, SystemExit) as error:  # so may its backward
            raise _cannot(built, blame(error)) from error


def _cannot(built: BuiltTask, why: str) -> TaskError:
    return TaskError(f"{built.task.entry} has no gradients: {why}", REMEDY)
