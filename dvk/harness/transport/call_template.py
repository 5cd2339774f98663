"""A call's arguments as text, with slots for lent tensors. The referee writes, runners read, never the reverse.

Classes and functions of the task's file are named by where they stand in it: each process executes the file under another name.
"""

from __future__ import annotations

import base64
import io
import pickle
import sys
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dvk.errors import TaskError
from dvk.tasks.beside import PREFIX
from dvk.tasks.trees import map_tensors, take_apart


class Slot:
    """Stands for a tensor."""


def empty(args: list[Any], kwargs: dict[str, Any]) -> str:
    """Return the call without its tensors.

    Raises:
        TaskError: an argument cannot be sent to another process.
    """
    buffer = io.BytesIO()
    try:
        _Writer(buffer).dump(map_tensors(lambda _: Slot(), (args, kwargs)))
    except Exception as error:  # a user's class may raise anything
        raise TaskError(
            f"an input cannot be sent to another process: {type(error).__name__}: {str(error)[:300]}",
            "pass tensors and plain values, in lists, dicts, or NamedTuples and dataclasses at the top level of the file",
        ) from error
    return base64.b64encode(buffer.getvalue()).decode()


def fill(
    text: str, tensors: Sequence[torch.Tensor], module: ModuleType | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """Return the call with `tensors` in its slots, in order of occurrence.

    Args:
        module: the task's file as this process has executed it.

    Raises:
        Whatever the classes of its arguments raise.
    """
    places = iter(tensors)
    call: tuple[list[Any], dict[str, Any]] = _Reader(
        io.BytesIO(base64.b64decode(text)), module
    ).load()
    args, kwargs = pytree.tree_map_only(Slot, lambda _: next(places), call)
    return args, kwargs


class _Writer(pickle.Pickler):
    def persistent_id(self, value: Any) -> str | None:
        if isinstance(value, torch.Tensor):
            raise pickle.PicklingError(
                "it holds a tensor and is neither a list, tuple, dict, NamedTuple nor dataclass"
            )
        if not isinstance(value, (type, FunctionType)) or not str(value.__module__).startswith(
            PREFIX
        ):
            return None
        home = sys.modules.get(value.__module__)
        named = (
            [value.__qualname__, *(name for name, held in vars(home).items() if held is value)]
            if home is not None
            else []
        )
        for name in named:
            if _found(home, name) is value:
                return name
        raise pickle.PicklingError(
            f"`{value.__qualname__}` does not stand at the top level of the file"
        )


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, module: ModuleType | None):
        super().__init__(file)
        self._module = module

    def persistent_load(self, name: Any) -> Any:
        return self._known(_found(self._module, name))

    def find_class(self, module: str, name: str) -> Any:
        return self._known(super().find_class(module, name))

    def _known(self, result: Any) -> Any:
        take_apart({"": result})
        return result


def _found(home: Any, path: str) -> Any:
    for part in path.split("."):
        home = getattr(home, part, None)
    return home
