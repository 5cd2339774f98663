"""GPU memory that one process owns and others map: an allocation of the driver's virtual memory management, passed as a file descriptor.

Memory opened through CUDA IPC (`cuIpcOpenMemHandle`) needs no descriptor, but kernels read large blocks of it slowly, some more than
others. Reading 4 GB on an H200, milliseconds:

    access                    here   CUDA IPC   not shared
    pieces of 2 MB            0.95       2.38         0.95
    blocks of 8 KB in turn    0.93       4.56         0.93
    l1_loss, eager            2.91       3.54         2.90

At 0.4 GB and below there was no difference. A block takes 1.7 ms here to allocate and map, 0.5 ms with CUDA IPC.

Interface: CUDA Driver API, "Virtual Memory Management".
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

PINNED, DESCRIPTOR, ON_DEVICE, READ_WRITE = 1, 1, 1, 3
"""Values of CUmemAllocationType, CUmemAllocationHandleType, CUmemLocationType and CUmemAccess_flags."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class DeviceMemory:
    """A block of `num_bytes` on the current GPU, mapped here.

    Attributes:
        block: the whole block, one byte an element.
        descriptor: the owner's, to be sent to borrowers; None for a borrower.
    """

    def __init__(self, num_bytes: int, lent: int | None = None):
        """Allocate the block; with `lent`, a descriptor received from the owner, map the owner's, and close the descriptor.

        Raises:
            RuntimeError: no memory, or it cannot be mapped here.
        """
        torch.cuda.init()
        torch.cuda.current_stream().synchronize()  # a context is current from here on
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._place = _Location(ON_DEVICE, torch.cuda.current_device())
        properties = _Properties(PINNED, DESCRIPTOR, self._place)
        page = ctypes.c_size_t()
        self._call("cuMemGetAllocationGranularity", ctypes.byref(page), ctypes.byref(properties), 1)
        self._mapped = ctypes.c_size_t(-(-num_bytes // page.value) * page.value)
        handle = ctypes.c_uint64()
        self.descriptor: int | None = None
        if lent is None:
            self._call(
                "cuMemCreate",
                ctypes.byref(handle),
                self._mapped,
                ctypes.byref(properties),
                ctypes.c_uint64(),
            )
        else:
            try:
                self._call(
                    "cuMemImportFromShareableHandle",
                    ctypes.byref(handle),
                    ctypes.c_void_p(lent),
                    DESCRIPTOR,
                )
            finally:
                os.close(lent)
        try:
            if lent is None:
                self.descriptor = self._exported(handle)
            self._base = self._map(handle)
        finally:  # what is mapped, or has a descriptor, stays
            self._call("cuMemRelease", handle)
        self.block = self.bytes(0, num_bytes)

    def _exported(self, handle: ctypes.c_uint64) -> int:
        descriptor = ctypes.c_int()
        self._call(
            "cuMemExportToShareableHandle",
            ctypes.byref(descriptor),
            handle,
            DESCRIPTOR,
            ctypes.c_uint64(),
        )
        return descriptor.value

    def _map(self, handle: ctypes.c_uint64) -> ctypes.c_uint64:
        base, none = ctypes.c_uint64(), ctypes.c_uint64()
        self._call(
            "cuMemAddressReserve", ctypes.byref(base), self._mapped, ctypes.c_size_t(), none, none
        )
        self._call("cuMemMap", base, self._mapped, ctypes.c_size_t(), handle, none)
        access = _Access(self._place, READ_WRITE)
        self._call("cuMemSetAccess", base, self._mapped, ctypes.byref(access), ctypes.c_size_t(1))
        return base

    def bytes(self, offset: int, size: int) -> torch.Tensor:
        """Return `size` bytes from `offset`."""
        return torch.as_tensor(_Interface(self._base.value + offset, size), device="cuda")

    def close(self) -> None:
        """Give the memory back; its tensors must not be used again."""
        torch.cuda.synchronize()
        self._call("cuMemUnmap", self._base, self._mapped)
        self._call("cuMemAddressFree", self._base, self._mapped)
        if self.descriptor is not None:
            os.close(self.descriptor)

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._driver, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'').decode() or code}")


class _Interface:
    """A range of device memory, as torch.as_tensor takes it."""

    def __init__(self, address: int, size: int):
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }
