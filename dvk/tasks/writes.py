"""In-place writes to inputs: which ones a call made, and which changes are not allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dvk.errors import TaskError
from dvk.tasks.hygiene import equal
from dvk.tasks.input_sampler import Call
from dvk.tasks.trees import Named


@dataclass(frozen=True)
class Before:
    """One input tensor as it was before a call."""

    shape: torch.Size
    strides: tuple[int, ...]
    version: int
    address: int


def noted(inputs: Named) -> list[Before]:
    """Record the inputs before the call."""
    return [
        Before(t.shape, t.stride(), 0 if t.is_inference() else t._version, t.data_ptr())
        for _, t in inputs
    ]


def containers(call: Call) -> tuple[Any, list[int]]:
    """Record the nesting of a call's arguments and the objects in it; called before the call and after it."""
    leaves, spec = pytree.tree_flatten(call)
    return spec, [id(leaf) for leaf in leaves]


def check_containers(call: Call, before: tuple[Any, list[int]], entry: str) -> None:
    """Refuse changes that a copy of the arguments would not show.

    Raises:
        TaskError: the call put something into a list or dict among its arguments, or took something out.
    """
    if containers(call) != before:
        raise TaskError(
            f"{entry} changes a list or dict among its inputs",
            'write into the tensors (cache["k"].copy_(…)) or return new ones, and leave lists and dicts as they are',
        )


def written(inputs: Named, before: list[Before], kept: Named, entry: str) -> tuple[str, ...]:
    """Return names of the inputs that the call wrote, by their values or by PyTorch's version counters.

    Args:
        inputs: the call's own, after it.
        before: their record.
        kept: equal inputs that no call has used.
        entry: name of the callee, for messages.

    Raises:
        TaskError: an input has another shape or other memory than before.
    """
    names = []
    for (name, tensor), was, (_, other) in zip(inputs, before, kept, strict=True):
        now = noted([(name, tensor)])[0]
        if (now.shape, now.strides, now.address) != (was.shape, was.strides, was.address):
            raise TaskError(
                f"{entry} gives its input `{name}` another shape or other memory",
                "write values in place (x.copy_(…), x[:, i] = …), or work on a view or a copy",
            )
        if now.version != was.version or not equal(tensor, other):
            names.append(name)
    return tuple(names)
