"""Load compiled kernels and launch them through the CUDA driver, on torch's stream and context.

ctypes on libcuda: no compiler, nothing generated. Loading asks the driver for the kernel's parameters, so a launch whose arguments do not
fit them is rejected before it is made.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from dvk.harness.launch_plans.plan import SCALARS, KernelLaunch, LaunchPlanError, Pointer, Scalar

STATIC_SHARED_BYTES = 48 << 10
"""Shared memory that a block may use by default."""
MAX_THREADS, SHARED, LOCAL, REGISTERS = 0, 1, 3, 4
"""CUfunction_attribute: most threads per block, static shared bytes, local bytes per thread, registers per thread."""
DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
MAX_GRID, MAX_BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64)
INVALID_VALUE = 1
PACKED = {"fp16": "<e", "fp32": "<f", "fp64": "<d"}


class LaunchError(LaunchPlanError):
    """The driver refused a kernel or a launch; the message is the driver's."""


@cache
def driver() -> ctypes.CDLL:
    """Return libcuda. Raises OSError if there is none."""
    library = ctypes.CDLL("libcuda.so.1")
    library.cuLaunchKernel.argtypes = [
        ctypes.c_void_p,
        *[ctypes.c_uint] * 7,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    return library


def check(result: int, what: str) -> None:
    """Raise the driver's error.

    Raises:
        LaunchError: `result` is an error.
    """
    if result:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        driver().cuGetErrorName(result, ctypes.byref(name))
        driver().cuGetErrorString(result, ctypes.byref(text))
        raise LaunchError(
            f"{what}: {(name.value or b'?').decode()}: {(text.value or b'').decode()}"
        )


class CubinModule:
    """Loaded code; torch must have made its context current before."""

    def __init__(self, code: bytes):
        self.handle = ctypes.c_void_p()
        check(driver().cuModuleLoadData(ctypes.byref(self.handle), code), "loading a cubin")

    def close(self) -> None:
        """Unload; no launch of its kernels may be pending or captured any more."""
        if self.handle:
            driver().cuModuleUnload(self.handle)
            self.handle = ctypes.c_void_p()


class CubinKernel:
    """One function of a module, ready to launch."""

    def __init__(self, module: CubinModule, node: KernelLaunch):
        self.module, self.node = module, node
        self.function = ctypes.c_void_p()
        check(
            driver().cuModuleGetFunction(
                ctypes.byref(self.function), module.handle, node.name.encode()
            ),
            f"finding {node.name}",
        )
        self.sizes = self._parameters()
        self._check(node)
        static = self._attribute(SHARED)
        if static + node.shared_bytes > STATIC_SHARED_BYTES:
            check(
                driver().cuFuncSetAttribute(self.function, DYNAMIC_SHARED, node.shared_bytes),
                f"shared memory of {node.name}",
            )
        self.facts = {
            "registers": self._attribute(REGISTERS),
            "spill_bytes": self._attribute(LOCAL),
            "shared_bytes": static + node.shared_bytes,
        }

    def bind(self, address: Callable[[int], int]) -> Callable[[int], None]:
        """Return a function that launches on a stream, with the current addresses of tensors.

        Args:
            address: value → address of its first element.
        """
        node, launch = self.node, driver().cuLaunchKernel
        cells: list[Any] = []
        for argument in node.args:
            data = (
                struct.pack("<Q", address(argument.ref))
                if isinstance(argument, Pointer)
                else packed(argument)
            )
            cells.append((ctypes.c_char * len(data)).from_buffer_copy(data))
        cells += [
            (ctypes.c_char * 8)() for _ in self.sizes[len(node.args) :]
        ]  # scratch pointers: null
        pointers = (ctypes.c_void_p * max(1, len(cells)))(
            *(ctypes.addressof(cell) for cell in cells)
        )
        name = node.name

        def run(stream: int, _held: list[Any] = cells) -> None:
            code = launch(
                self.function, *node.grid, *node.block, node.shared_bytes, stream, pointers, None
            )
            if code:
                check(code, f"launching {name}")

        return run

    def _parameters(self) -> list[int]:
        """Return sizes in bytes of the kernel's parameters."""
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        try:
            ask = driver().cuFuncGetParamInfo  # since CUDA 12.4
        except AttributeError:
            raise LaunchError(
                "this driver cannot tell a kernel's parameters: plans need CUDA 12.4 or newer"
            ) from None
        while len(sizes) < 4096:
            code = ask(
                self.function, ctypes.c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)
            )
            if code == INVALID_VALUE:
                return sizes
            check(code, f"parameters of {self.node.name}")
            sizes.append(size.value)
        raise LaunchError(f"{self.node.name} has too many parameters")

    def _check(self, node: KernelLaunch) -> None:
        given = [8 if isinstance(a, Pointer) else SCALARS[a.type] for a in node.args]
        scratch = self.sizes[len(given) :]
        if (
            self.sizes[: len(given)] != given
            or len(scratch) > 2
            or any(size != 8 for size in scratch)
        ):
            raise LaunchPlanError(
                f"{node.name} takes parameters of {self.sizes} bytes, the plan gives {given}"
            )
        if any(
            not 1 <= size <= most
            for size, most in zip((*node.grid, *node.block), (*MAX_GRID, *MAX_BLOCK), strict=True)
        ):
            raise LaunchPlanError(f"{node.name} has grid {node.grid} of blocks {node.block}")
        threads = math.prod(node.block)
        if threads > self._attribute(MAX_THREADS):
            raise LaunchError(f"{node.name} cannot run with {threads} threads")

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        check(
            driver().cuFuncGetAttribute(ctypes.byref(value), which, self.function),
            f"attributes of {self.node.name}",
        )
        return value.value


def packed(scalar: Scalar) -> bytes:
    """Return a scalar's bytes as a kernel takes them.

    Raises:
        LaunchPlanError: its value is not one of its type.
    """
    size = SCALARS[scalar.type]
    try:
        value = float(scalar.value) if isinstance(scalar.value, str) else scalar.value
        if scalar.type == "bf16":
            (bits,) = struct.unpack("<I", struct.pack("<f", value))
            even = bits + 0x7FFF + ((bits >> 16) & 1) if math.isfinite(value) else bits
            return struct.pack("<H", (even >> 16) & 0xFFFF)
        if scalar.type in PACKED:
            return struct.pack(PACKED[scalar.type], value)
        if not isinstance(value, int):
            raise LaunchPlanError(f"{value} is no {scalar.type}")
        return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    except (OverflowError, ValueError, struct.error) as error:
        raise LaunchPlanError(f"{scalar.value} is no {scalar.type}: {error}") from None
