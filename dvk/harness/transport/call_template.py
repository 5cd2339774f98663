"""A call's arguments as text, with slots for lent tensors. The referee writes, runners read, never the reverse."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dvk.tasks.trees import map_tensors


class Slot:
    """Stands for a tensor."""


def empty(args: list[Any], kwargs: dict[str, Any]) -> str:
    """Return the call without its tensors.

    Raises:
        Whatever pickle raises for arguments it cannot take.
    """
    return base64.b64encode(pickle.dumps(map_tensors(lambda _: Slot(), (args, kwargs)))).decode()


def fill(text: str, tensors: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """Return the call with `tensors` in its slots, in order of occurrence."""
    places = iter(tensors)
    call: tuple[list[Any], dict[str, Any]] = pickle.loads(base64.b64decode(text))
    args, kwargs = pytree.tree_map_only(Slot, lambda _: next(places), call)
    return args, kwargs
