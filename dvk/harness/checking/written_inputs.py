"""Inputs that the reference writes in place: caches, running buffers, counters, parameters of a step.

Each call of either side, checked or timed, starts from fresh copies of the case's values, restored outside of the clock; what a call leaves
in them counts as output, after its return value. So nothing grows from call to call, and a late, misplaced or missing write is a wrong
answer. The reference runs on separate copies; a candidate's are read from the judge's end of the lent memory.

Such tasks have no launch plans: a replay of two graphs in turn would write the same memory twice.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from dvk.harness.transport.lent_tensors import bytes_of, copied, flat, layout_of
from dvk.records import Task
from dvk.tasks.trees import map_tensors, named_tensors


class WrittenInputs:
    """Inputs of a task's calls that the reference writes.

    Args:
        task: as examined.
        draw: draws args and kwargs of a native call; called only if the task lists such inputs.
    """

    def __init__(self, task: Task, draw: Callable[[], tuple[list[Any], dict[str, Any]]]):
        self._names: dict[str, str] = {}
        """Paths in (args, kwargs), which stay valid if another argument is None."""
        if task.written_inputs:
            paths = [path for path, _ in named_tensors(draw())]
            named = zip(paths, task.inputs, strict=True)
            self._names = {
                path: spec.name for path, spec in named if spec.name in task.written_inputs
            }

    def positions(self, args: list[Any], kwargs: dict[str, Any]) -> list[int]:
        """Positions among the tensors of a call."""
        if not self._names:
            return []
        return [
            number
            for number, (path, _) in enumerate(named_tensors((args, kwargs)))
            if path in self._names
        ]

    def values(self, args: list[Any], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Return those tensors of a call, by name."""
        return {
            self._names[path]: tensor
            for path, tensor in named_tensors((args, kwargs))
            if path in self._names
        }

    def beside(self, model: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return a call's result in separate memory; on copies of what it writes, through which gradients pass."""
        positions = self.positions(args, kwargs)
        if not positions:
            return model(*args, **kwargs)
        args, kwargs = fresh(args, kwargs, positions)
        held = {
            tensor.untyped_storage().data_ptr() for tensor in self.values(args, kwargs).values()
        }
        tensors = named_tensors(model(*args, **kwargs))
        return [
            t
            for _, t in tensors
            if t.layout is not torch.strided or t.untyped_storage().data_ptr() not in held
        ]


def fresh(
    args: list[Any], kwargs: dict[str, Any], positions: Collection[int]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the call with copies at these positions, of the same strides."""
    numbers = iter(range(len(named_tensors((args, kwargs)))))
    made: tuple[list[Any], dict[str, Any]] = map_tensors(
        lambda tensor: copied(tensor) if next(numbers) in positions else tensor, (args, kwargs)
    )
    return made


def restoring(tensors: Sequence[torch.Tensor]) -> Callable[[], None]:
    """Restores the current values of these tensors; on a CPU without PyTorch's operators, so that no profile shows it."""
    kept = [
        (tensor, copied(tensor), bytes_of(layout_of(tensor)))
        for tensor in tensors
        if tensor.numel()
    ]

    def restore() -> None:
        for tensor, values, size in kept:
            if tensor.device.type == "cpu":
                ctypes.memmove(tensor.data_ptr(), values.data_ptr(), size)
            else:
                with torch.no_grad():
                    flat(tensor).copy_(flat(values))

    return restore
