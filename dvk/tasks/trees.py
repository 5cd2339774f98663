"""Tensors in nested inputs and outputs: find them, name them, describe them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dvk.errors import TaskError
from dvk.records import TensorSpec

Named = list[tuple[str, torch.Tensor]]


def take_apart(names: Mapping[str, Any]) -> None:
    """Register dataclasses among these values as structures, like tuples and dicts; those whose constructor takes no fields stay leaves."""
    for kind in list(names.values()):
        if (
            not isinstance(kind, type)
            or not dataclasses.is_dataclass(kind)
            or issubclass(kind, torch.nn.Module)
        ):
            continue
        fields = dataclasses.fields(kind)
        if kind in pytree.SUPPORTED_NODES or not all(field.init for field in fields):
            continue
        order = [field.name for field in fields]

        def flat(value: Any, order: list[str] = order) -> tuple[list[Any], None]:
            return [getattr(value, name) for name in order], None

        def with_keys(value: Any, order: list[str] = order) -> tuple[list[Any], None]:
            return [(pytree.GetAttrKey(name), getattr(value, name)) for name in order], None

        def whole(parts: Iterable[Any], _: Any, kind: Any = kind, order: list[str] = order) -> Any:
            return kind(**dict(zip(order, parts, strict=True)))

        pytree.register_pytree_node(kind, flat, whole, flatten_with_keys_fn=with_keys)


_seen: set[type] = set()
"""Dataclasses met in trees."""


def take_apart_kinds(tree: Any) -> None:
    """`take_apart` the dataclasses of values in the tree that no file has at its top level: nested ones, those of other modules."""
    while (
        kinds := {type(leaf) for leaf in pytree.tree_leaves(tree) if dataclasses.is_dataclass(leaf)}
        - _seen
        - {type}
    ):
        _seen.update(kinds)
        take_apart({kind.__qualname__: kind for kind in kinds})


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Return `tree` with `function` applied to every tensor in it."""
    take_apart_kinds(tree)
    return pytree.tree_map_only(torch.Tensor, function, tree)


def named_tensors(tree: Any, root: str = "") -> Named:
    """Return every tensor of `tree` with its path: `x`, `x.0`, `state.mask`; the root alone is `output`."""
    take_apart_kinds(tree)
    result: Named = []
    for path, leaf in pytree.tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, torch.Tensor):
            steps = [root] if root else []
            steps += [
                str(getattr(key, "idx", getattr(key, "key", getattr(key, "name", key))))
                for key in path
            ]
            result.append((".".join(steps) or "output", leaf))
    return result


def named_inputs(args: list[Any], kwargs: dict[str, Any], names: list[str]) -> Named:
    """Return the tensors of one call under the parameters' names.

    Args:
        names: name of each positional argument.
    """
    result: Named = []
    for name, value in [*zip(names, args, strict=True), *kwargs.items()]:
        result += named_tensors(value, name)
    return result


def describe(name: str, tensor: torch.Tensor) -> TensorSpec:
    """Return shape, dtype, strides and device of one tensor.

    Raises:
        TaskError: it has no strides: sparse, nested, quantised in torch's own sense, or without data.
    """
    if (
        tensor.layout is not torch.strided
        or tensor.is_nested
        or tensor.is_quantized
        or tensor.is_meta
    ):
        kind = (
            "meta"
            if tensor.is_meta
            else str(tensor.layout if tensor.layout is not torch.strided else tensor.dtype)
        )
        raise TaskError(
            f"`{name}` is not a plain dense tensor but {kind.removeprefix('torch.')}",
            "sparse, nested, meta and torch-quantised tensors are not supported: pass dense ones",
        )
    return TensorSpec(
        name=name,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
    )
