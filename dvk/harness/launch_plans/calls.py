"""Facts of a call that a recording needs, without values: layouts of tensors, plain arguments, weights, the GPU.

The referee describes its live objects; the runner makes fake ones with the same layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pydantic import Field
from torch import nn

from dvk.records import Record

PLAIN = (bool, int, str, type(None))


class Layout(Record):
    """Layout of one tensor."""

    dtype: str = Field(description="torch dtype without the prefix.")
    shape: tuple[int, ...] = Field(description="Sizes in elements, outermost first.")
    strides: tuple[int, ...] = Field(description="Strides in elements.")
    offset: int = Field(
        0, description="Elements between the start of its memory and its first element."
    )
    device: str = Field("cuda", description="`cuda` or `cpu`.")

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """Return the layout of a dense tensor.

        Raises:
            ValueError: it has no strides.
        """
        if tensor.layout is not torch.strided:
            raise ValueError(f"a tensor of layout {tensor.layout} has no strides")
        return cls(
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            offset=int(tensor.storage_offset()),
            device=tensor.device.type,
        )

    @property
    def extent(self) -> int:
        """Return the elements of memory from its first to its last element; 0 if it has none."""
        if 0 in self.shape:
            return 0
        return 1 + sum(
            (size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)
        )

    @property
    def num_bytes(self) -> int:
        """Return the bytes of memory that it needs, with those before it."""
        return (self.offset + self.extent) * getattr(torch, self.dtype).itemsize


class CallSpec(Record):
    """One call: a tree of arguments whose tensors are numbered in order of occurrence."""

    variant: str = Field(description="Name of the shape variant, `native` for the task's own.")
    args: Any = Field(description="Encoded positional arguments.")
    kwargs: Any = Field(description="Encoded named arguments.")
    tensors: tuple[Layout, ...] = Field(description="Layouts by number.")


class GpuProperties(Record):
    """Facts that a candidate may ask about its GPU."""

    capability: tuple[int, int] = Field(description="Compute capability, major and minor.")
    max_shared_bytes: int = Field(description="Shared memory one block may have, opted in.")
    properties: dict[str, int | str] = Field(
        description="Public fields of torch.cuda.get_device_properties."
    )

    @property
    def arch(self) -> int:
        """Return Triton's form: 90 for capability 9.0."""
        return self.capability[0] * 10 + self.capability[1]

    @classmethod
    def of_device(cls, index: int = 0) -> GpuProperties:
        """Return the installed GPU; opens it."""
        properties = torch.cuda.get_device_properties(index)
        names = [name for name in dir(properties) if not name.startswith("_")]
        fields = {
            name: value
            for name in names
            if isinstance(value := getattr(properties, name), (int, str))
        }
        shared = int(getattr(properties, "shared_memory_per_block_optin", 0)) or 48 << 10
        return cls(
            capability=(properties.major, properties.minor),
            max_shared_bytes=shared,
            properties=fields,
        )


def describe_call(variant: str, args: list[Any], kwargs: Mapping[str, Any]) -> CallSpec:
    """Return the specification of a live call.

    Raises:
        ValueError: an argument is neither a dense tensor nor plain data.
    """
    tensors: list[Layout] = []

    def tensor(value: torch.Tensor) -> int:
        tensors.append(Layout.of(value))
        return len(tensors) - 1

    encoded = encode_tree(list(args), tensor), encode_tree(dict(kwargs), tensor)
    return CallSpec(variant=variant, args=encoded[0], kwargs=encoded[1], tensors=tuple(tensors))


def describe_state(model: nn.Module) -> dict[str, Layout]:
    """Return layouts of a module's state_dict, by name."""
    return {name: Layout.of(tensor) for name, tensor in model.state_dict().items()}


def encode_tree(value: Any, tensor: Callable[[torch.Tensor], int]) -> Any:
    """Encode nested data as JSON; `tensor` numbers the tensors.

    Raises:
        ValueError: something in it is not plain data.
    """
    if isinstance(value, torch.Tensor):
        return {"tensor": tensor(value)}
    if type(value) is float:
        return {"float": repr(value)}
    if type(value) in PLAIN:
        return {"value": value}
    if type(value) in (list, tuple):
        return {type(value).__name__: [encode_tree(v, tensor) for v in value]}
    if type(value) is dict and all(type(key) in PLAIN for key in value):
        return {"dict": [[key, encode_tree(v, tensor)] for key, v in value.items()]}
    raise ValueError(f"a {type(value).__name__} is not plain data")


def decode_tree(tree: Any, tensor: Callable[[int], Any]) -> Any:
    """Decode the result of `encode_tree`; `tensor` finds the tensors.

    Raises:
        ValueError: `tree` does not come from `encode_tree`.
    """
    if not isinstance(tree, dict) or len(tree) != 1:
        raise ValueError("malformed tree")
    ((kind, inner),) = tree.items()
    if kind == "tensor" and type(inner) is int:
        return tensor(inner)
    if kind == "float" and isinstance(inner, str):
        return float(inner)
    if kind == "value" and type(inner) in PLAIN:
        return inner
    if kind in ("list", "tuple") and isinstance(inner, list):
        items = [decode_tree(v, tensor) for v in inner]
        return items if kind == "list" else tuple(items)
    if (
        kind == "dict"
        and isinstance(inner, list)
        and all(isinstance(pair, list) and len(pair) == 2 for pair in inner)
    ):
        return {key: decode_tree(v, tensor) for key, v in inner}
    raise ValueError("malformed tree")
