"""Kernels of CUDA C++ text in a recording: compiled by NVRTC for a GPU that the process does not have."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from dvk.errors import MachineError
from dvk.harness.launch_plans.calls import GpuProperties
from dvk.harness.launch_plans.launches import pointer
from dvk.harness.launch_plans.plan import KernelLaunch, Pointer, Scalar
from dvk.harness.launch_plans.tape import Tape
from dvk.harness.toolchain import nvrtc

ALIGNED, UNALIGNED = "-DDVK_ALIGNED=1", "-DDVK_ALIGNED=0"
"""Attributes; the first tells a kernel that all addresses are multiples of 16 bytes."""
LIBRARY = ctypes.CDLL  # candidates are refused it while they are recorded


class CudaKernels:
    """Result of `dvk_record.cuda_kernel`."""

    def __init__(self, gpu: GpuProperties, tape: Tape):
        self.gpu, self.tape = gpu, tape
        self._compiled: dict[tuple[str, ...], str] = {}

    def kernel(self, source: str, name: str, options: Sequence[str]) -> Callable[..., None]:
        """Return a function that records launches of `name`: an `extern "C"` kernel that takes pointers, then 64-bit sizes."""

        def launch(
            grid: tuple[int, int, int],
            block: tuple[int, int, int],
            shared_bytes: int,
            given: Sequence[Any],
        ) -> None:
            args = tuple(self._argument(one) for one in given)
            aligned = all(one.modulo16 == 0 for one in args if isinstance(one, Pointer))
            flags = [option if aligned or option != ALIGNED else UNALIGNED for option in options]
            self.tape.launch(
                KernelLaunch(
                    cubin=self._code(source, flags),
                    name=name,
                    grid=grid,
                    block=block,
                    shared_bytes=shared_bytes,
                    args=args,
                )
            )

        return launch

    def _argument(self, value: Any) -> Pointer | Scalar:
        if type(value) is not int:
            return pointer(self.tape, value)
        if self.tape.is_address(value):
            raise self.tape.refusals.refuse("it passes an address as a number")
        return Scalar(type="i64", value=value)

    def _code(self, source: str, options: list[str]) -> str:
        key = (source, *options)
        if key not in self._compiled:
            arch = f"sm_{self.gpu.arch}"
            folder = (
                Path(tempfile.gettempdir()) / "dvk-recorded"
            )  # the runner's private folder: it must not write shared caches
            try:
                with mock.patch.object(ctypes, "CDLL", LIBRARY):
                    module = nvrtc.compile_cuda(source, [arch], options=options, folder=folder)[
                        arch
                    ]
            except MachineError as error:
                raise self.tape.refusals.refuse(f"NVRTC is missing: {error.message}") from None
            self._compiled[key] = self.tape.keep(module.image)
        return self._compiled[key]
