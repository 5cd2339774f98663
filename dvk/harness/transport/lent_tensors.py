"""Tensors that the referee lends to runners: inputs, weights and (on a GPU) places to put outputs.

On a CPU a memfd that each process maps, every tensor's end flush with its last page (to 64 bytes)
and an unmapped page behind it: an access beyond the end faults at once. On a GPU memory of the referee's that each process
maps (`device_memory`); bands of known bytes around the tensors show what was written outside them
(`guard_bands`).
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import torch

from dvk.harness.transport import process_memory as memory
from dvk.harness.transport.device_memory import DeviceMemory
from dvk.harness.transport.guard_bands import Bands

Layout = dict[str, Any]
"""Layout of one tensor: dtype (no prefix), shape, strides, and `conj` or `neg` if that bit is set; JSON."""

ALIGNMENT = 64
"""torch's own on CPUs; vector code of honest kernels counts on it."""

_NUMBERS = itertools.count()
"""Numbers of this process' boards: two of the same layouts are different offers."""


def layout_of(tensor: torch.Tensor) -> Layout:
    """Return the layout of a strided tensor."""
    layout = {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
    }
    return {
        **layout,
        **{
            bit: True
            for bit, is_set in (("conj", tensor.is_conj()), ("neg", tensor.is_neg()))
            if is_set
        },
    }


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values as stored: `tensor` with its conjugate and negative bits cleared."""
    tensor = tensor.conj() if tensor.is_conj() else tensor
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def values_of(memory: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return `memory` as the tensor of this layout that it was copied from: with its conjugate and negative bits."""
    memory = memory.conj() if layout.get("conj") else memory
    return torch._neg_view(memory) if layout.get("neg") else memory


def extent_of(layout: Layout) -> int:
    """Return the elements from the first to the last one, gaps of the strides included."""
    if 0 in layout["shape"]:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(layout["shape"], layout["strides"], strict=True))


def bytes_of(layout: Layout) -> int:
    """Return the bytes from the first to the last element."""
    return extent_of(layout) * dtype_of(layout).itemsize


def empty_of(layout: Layout) -> torch.Tensor:
    """Return a new tensor of this layout."""
    return torch.empty_strided(
        tuple(layout["shape"]), tuple(layout["strides"]), dtype=dtype_of(layout)
    )


def dtype_of(layout: Layout) -> torch.dtype:
    """Return torch's dtype."""
    dtype: torch.dtype = getattr(torch, layout["dtype"])
    return dtype


@cache
def comparable(dtype: torch.dtype) -> bool:
    """Whether tensors of it can be made and compared; quantised dtypes need scales, and bit dtypes cannot be compared."""
    try:
        one = torch.zeros(1, dtype=dtype)
        one = one.float() if dtype.is_floating_point and dtype.itemsize == 1 else one
        return torch.equal(one, one)
    except (RuntimeError, NotImplementedError, TypeError):
        return False


def layout_claimed(leaf: dict[str, Any]) -> Layout | None:
    """Return the layout of a tensor as another process describes it; None if it is impossible."""
    try:
        layout: Layout = {
            "dtype": str(leaf["dtype"]),
            "shape": [int(n) for n in leaf["shape"]],
            "strides": [int(n) for n in leaf["strides"]],
        }
        strided = leaf.get("layout") == "torch.strided"
        layout.update({bit: True for bit in ("conj", "neg") if leaf.get(bit) is True})
        sound = isinstance(dtype_of(layout), torch.dtype) and all(
            0 <= n < 1 << 40 for n in layout["shape"]
        )
        sound = sound and all(0 <= n < 1 << 40 for n in layout["strides"])
        sound = sound and (not strided or len(layout["shape"]) == len(layout["strides"]) <= 64)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    return layout if sound else None


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return everything from a strided tensor's first to its last element, as one dimension."""
    return tensor.as_strided((extent_of(layout_of(tensor)),), (1,))


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides; `clone` makes others if elements overlap or have gaps."""
    copy = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    if copy.numel():
        flat(copy).copy_(flat(tensor))
    return copy


class Board:
    """Tensors in lent memory.

    Attributes:
        tensors: views of the lent memory, in the order of the layouts.
    """

    def __init__(self, layouts: Sequence[Layout], device: str, lent: int | None = None):
        """Create the owner's end; with `lent`, a descriptor from `offer`, a borrower's.

        Raises:
            OSError, RuntimeError: no memory, or it cannot be mapped here.
        """
        self.layouts = list(layouts)
        self.device = device
        self._number = next(_NUMBERS)
        sizes = [bytes_of(layout) for layout in layouts]
        self._memory: _Shared | _Device = (
            _Shared(sizes, lent) if device == "cpu" else _Device(sizes, lent)
        )
        self.tensors = [
            torch.empty_strided(
                tuple(layout["shape"]),
                tuple(layout["strides"]),
                dtype=dtype_of(layout),
                device=device,
            )
            if size == 0
            else self._memory.bytes(i, size)
            .view(dtype_of(layout))
            .as_strided(tuple(layout["shape"]), tuple(layout["strides"]))
            for i, (layout, size) in enumerate(zip(layouts, sizes, strict=True))
        ]

    def offer(self) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return a borrower's JSON object and descriptors."""
        offered = {"layouts": self.layouts, "device": self.device, "board": self._number}
        return offered, self._memory.offer()

    @classmethod
    def borrow(cls, offered: dict[str, Any], descriptors: list[int]) -> Board:
        """Open the other end of `offer`; takes its descriptor from `descriptors`."""
        return cls(offered["layouts"], offered["device"], descriptors.pop(0))

    def put(self, tensors: Sequence[torch.Tensor]) -> None:
        """Copy values in, with the same layout; they are visible to all processes when this returns."""
        for place, tensor in zip(self.tensors, tensors, strict=True):
            if place.numel():
                flat(place).copy_(flat(tensor))
        if self.device == "cuda":  # another process's kernels do not wait for this stream
            torch.cuda.synchronize()

    def poison(self) -> None:
        """Fill with bytes that read as NaN, or as -1."""
        for place in self.tensors:
            if place.numel():
                flat(place).view(torch.uint8).fill_(0xFF)

    def holds(self, tensors: Sequence[torch.Tensor], but: Collection[int] = ()) -> list[int]:
        """Return positions, `but` left out, whose bits differ from `tensors`."""
        return [
            i
            for i, (place, tensor) in enumerate(zip(self.tensors, tensors, strict=True))
            if i not in but
            and place.numel()
            and not _same_bytes(flat(place).view(torch.uint8), flat(tensor).view(torch.uint8))
        ]

    def restore_guards(self) -> None:
        """Restore the memory around the tensors."""
        if isinstance(self._memory, _Device):
            self._memory.bands.paint(self._memory.block)

    def written_beside(self) -> list[int]:
        """Return positions of tensors next to which something was written since the last call, or `restore_guards`; on a CPU that faults
        instead."""
        result = (
            self._memory.bands.broken(self._memory.block)
            if isinstance(self._memory, _Device)
            else []
        )
        if result:
            self.restore_guards()
        return result

    def close(self) -> None:
        """Give the memory back; the tensors must not be used again."""
        self.tensors.clear()
        self._memory.close()


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether tensors of equal length are equal. On a CPU by memcmp, which takes a third of torch.equal's time."""
    if one.device.type != "cpu":
        return torch.equal(one, other)
    return memory.equal(one.data_ptr(), other.data_ptr(), one.numel())


class _Shared:
    def __init__(self, sizes: Sequence[int], lent: int | None):
        self._sizes = sizes
        descriptor = memory.shared(sizes) if lent is None else lent
        self._descriptor = descriptor if lent is None else None
        try:
            self._mapping = memory.Mapping(descriptor, sizes)
        finally:
            if lent is not None:  # a borrower only needs it mapped
                os.close(lent)

    def bytes(self, number: int, size: int) -> torch.Tensor:
        start = (
            self._mapping.addresses[number]
            + memory.pages_of(size)
            - -(-size // ALIGNMENT) * ALIGNMENT
        )
        return torch.frombuffer((ctypes.c_char * size).from_address(start), dtype=torch.uint8)

    def offer(self) -> tuple[int, ...]:
        assert self._descriptor is not None, "a borrower has nothing to lend"
        return (self._descriptor,)

    def close(self) -> None:
        self._mapping.close()
        if self._descriptor is not None:
            os.close(self._descriptor)


class _Device:
    """One allocation for all tensors, with bands between them."""

    def __init__(self, sizes: Sequence[int], lent: int | None):
        self.bands = Bands(sizes)
        self._memory = DeviceMemory(self.bands.size, lent)
        self.block = self._memory.block
        if lent is None:
            self.bands.flood(self.block)

    def bytes(self, number: int, size: int) -> torch.Tensor:
        return self._memory.bytes(self.bands.offsets[number], size)

    def offer(self) -> tuple[int, ...]:
        assert self._memory.descriptor is not None, "a borrower has nothing to lend"
        return (self._memory.descriptor,)

    def close(self) -> None:
        self._memory.close()
