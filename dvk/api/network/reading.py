"""What a model reads of its configuration objects in one call. A patch then fits models whose configuration differs in anything else, such
as a name, a version or labels: those of pretrained weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch
from torch import nn

Reads = dict[str, list[str]]
"""Name of a class of configurations → the attributes that were read of its instances."""
OWN = ("builtins", "torch", "typing", "enum", "functools", "collections")
"""Packages whose objects are no configurations."""


def reads(model: nn.Module, args: Any, kwargs: Any) -> Reads:
    """Call the model once, and return what it read of its configurations.

    Raises:
        Exception: whatever the model raises.
    """
    with _recorded(list(_configurations(model))) as found, torch.no_grad():
        model(*args, **kwargs)
    return {kind: sorted(names) for kind, names in found.items()}


def _configurations(model: nn.Module) -> Iterator[Any]:
    """Plain objects that modules hold: neither tensors, modules, functions, containers nor members of an enumeration."""
    seen: set[int] = set()
    for module in model.modules():
        for value in vars(module).values():
            kind = type(value)
            home = kind.__module__.partition(".")[0]
            plain = not isinstance(value, (nn.Module, type, Enum)) and not callable(value)
            if plain and home not in OWN and hasattr(value, "__dict__") and id(value) not in seen:
                seen.add(id(value))
                yield value


@contextmanager
def _recorded(objects: list[Any]) -> Iterator[dict[str, set[str]]]:
    """Have these objects record the names of values that are read of them."""
    reads: dict[str, set[str]] = {}
    were: list[tuple[Any, type]] = []
    for one in objects:
        kind = type(one)
        names = reads.setdefault(kind.__name__, set())

        def read(self: Any, name: str, kind: Any = kind, names: set[str] = names) -> Any:
            value = kind.__getattribute__(self, name)
            if not name.startswith("__") and not callable(value):
                names.add(name)
            return value

        try:
            one.__class__ = type(kind.__name__, (kind,), {"__getattribute__": read})
        except TypeError:  # its layout is fixed: all of it counts
            del reads[kind.__name__]
            continue
        were.append((one, kind))
    try:
        yield reads
    finally:
        for one, kind in were:
            one.__class__ = kind
