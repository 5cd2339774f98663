"""Calls under torch.autocast, as a task asks for them: by `--autocast`, or because the live module was given under one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from dvk.errors import TaskError
from dvk.records import Task


def autocast_of(task: Task) -> AbstractContextManager[Any]:
    """The context that a call of the task is in."""
    if task.autocast is None:
        return nullcontext()
    return torch.autocast(task.device, getattr(torch, task.autocast))


def under_autocast(model: nn.Module, task: Task) -> nn.Module:
    """Have every call of a module enter the task's autocast; returns the module, whose class is now a subclass of what it was.

    Raises:
        TaskError: its class cannot be changed.
    """
    if task.autocast is None:
        return model
    kind, device, dtype = type(model), task.device, getattr(torch, task.autocast)

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) is dtype:
            return kind.__call__(self, *args, **kwargs)
        with torch.autocast(device, dtype):
            return kind.__call__(self, *args, **kwargs)

    same = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__call__": called}
    try:
        model.__class__ = type(kind.__name__, (kind,), same)
    except TypeError as error:
        raise TaskError(
            f"`{kind.__name__}` cannot be called under autocast: {error}", "leave out --autocast"
        ) from None
    return model


def enabled(device: str) -> str | None:
    """The type of the autocast that is on for a device; None if it is off."""
    if not torch.is_autocast_enabled(device):
        return None
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
