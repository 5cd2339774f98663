"""Device guard that lets torch's C++ use CUDA tensors in a process without a GPU.

Several bindings (`contiguous`, `copy_`, indexing, `to`) switch the current device before they dispatch. With fake CUDA tensors that calls
the CUDA runtime, or a CPU build of torch, which cannot answer. Torch keeps one guard object per device type in a table. The one installed
for CUDA is a copy of that of meta tensors, which does nothing, except that it names `cuda:0` as the current device. Measured: without it
seven of sixteen common operations on fake CUDA tensors raise, with it none.

It relies on the layout of c10::impl::DeviceGuardImplInterface under the Itanium C++ ABI: its first virtual functions have been type,
exchangeDevice and getDevice since 2018.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SYMBOL = "_ZN3c104impl26device_guard_impl_registryE"
"""c10::impl::device_guard_impl_registry: an array of pointers, indexed by c10::DeviceType."""
CUDA, META, LENGTH = 1, 14, 21
FUNCTIONS = 32
"""Copied entries of the virtual table; it has about 25."""
CURRENT = CUDA
"""c10::Device{CUDA, 0} as two bytes in a register: the kind, then the index."""

_kind = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(lambda this: CUDA)
_exchange = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p, ctypes.c_uint16)(
    lambda this, device: CURRENT
)
_current = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p)(lambda this: CURRENT)
_held: list[ctypes.Array[ctypes.c_void_p]] = []


@contextmanager
def idle_guard() -> Iterator[None]:
    """Make `cuda:0` the current device inside the body, and switching to it a no-op.

    Raises:
        RuntimeError: this torch has no such table.
    """
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
    try:
        table = (ctypes.c_void_p * LENGTH).in_dll(ctypes.CDLL(path), SYMBOL)
    except (OSError, ValueError) as error:
        raise RuntimeError(f"this torch has no table of device guards: {error}") from None
    model = table[META]
    if not model:
        raise RuntimeError("this torch has no guard for meta tensors")
    before, table[CUDA] = table[CUDA], ctypes.addressof(_guard(model))
    try:
        yield
    finally:
        table[CUDA] = before


def _guard(model: int) -> ctypes.Array[ctypes.c_void_p]:
    """Return an object like the one at `model`, with three replaced functions."""
    functions = (ctypes.c_void_p * FUNCTIONS)()
    ctypes.memmove(
        functions, ctypes.c_void_p.from_address(model).value or 0, ctypes.sizeof(functions)
    )
    for number, function in enumerate((_kind, _exchange, _current)):
        functions[number] = ctypes.cast(function, ctypes.c_void_p).value
    made = (ctypes.c_void_p * 1)(ctypes.addressof(functions))
    _held.extend((functions, made))  # torch keeps a bare pointer
    return made
