"""A fake GPU: queries of candidates and Triton are answered from its description.

For a process that only records. `torch.cuda` describes the referee's GPU; calls that would need a real one (streams, events, graphs) are
refused. Triton gets a fake driver: it names the target, so kernels are compiled for it, and records launches instead of making them.
Nothing is patched inside Triton; the driver protocol is the same from 3.2 to 3.9.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch._subclasses import fake_tensor

from dvk.harness.launch_plans.calls import GpuProperties
from dvk.harness.launch_plans.cuda_text import CudaKernels
from dvk.harness.launch_plans.guard import idle_guard
from dvk.harness.launch_plans.launches import AutotuneConfigs, RecordingLauncher
from dvk.harness.launch_plans.tape import Tape

HOOK = "dvk_record"
"""A module of this name in `sys.modules` means that launches are recorded. Its TENSORS are the types of fake tensors; its
`cuda_kernel(source, name, options)` stands for a kernel of CUDA C++: `kernel(grid, block, shared_bytes, tensors)` launches it."""
NEEDS_A_GPU = (
    "Stream",
    "Event",
    "ExternalStream",
    "CUDAGraph",
    "graph",
    "stream",
    "set_stream",
    "make_graphed_callables",
    "current_stream",
    "default_stream",
)
QUIET = (
    "synchronize",
    "empty_cache",
    "init",
    "_lazy_init",
    "set_device",
    "reset_peak_memory_stats",
)


@contextmanager
def absent_gpu(gpu: GpuProperties, tape: Tape) -> Iterator[None]:
    """Pretend inside the body that the process has `gpu`; launches go to `tape`."""
    refuse = tape.refusals.refuse
    properties = SimpleNamespace(**gpu.properties)

    def refused(what: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            raise refuse(f"it uses {what}")

        return call

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: gpu.capability,
        "get_device_name": lambda device=None: str(gpu.properties.get("name", "")),
        "is_bf16_supported": lambda *a, **k: gpu.capability >= (8, 0),
        "_exchange_device": lambda index: 0,
        "_maybe_exchange_device": lambda index: 0,
        "is_current_stream_capturing": lambda: False,
        **{name: lambda *a, **k: None for name in QUIET},
        **{name: refused(f"torch.cuda.{name}") for name in NEEDS_A_GPU},
    }
    hook = ModuleType(HOOK)
    hook.TENSORS = (fake_tensor.FakeTensor,)  # type: ignore[attr-defined]
    hook.cuda_kernel = CudaKernels(gpu, tape).kernel  # type: ignore[attr-defined]
    with ExitStack() as stack:
        stack.enter_context(idle_guard())
        patch = lambda target, name, value: stack.enter_context(  # noqa: E731
            mock.patch.object(target, name, value, create=True)
        )
        for name, answer in answers.items():
            patch(torch.cuda, name, answer)
        patch(torch, "compile", refused("torch.compile"))
        patch(torch.utils, "swap_tensors", _swap)
        patch(torch.accelerator, "current_accelerator", lambda *a, **k: torch.device("cuda"))
        # The fake mode itself must still know that there is no GPU.
        patch(fake_tensor, "init_gpu_context", lambda *a, **k: None)
        patch(fake_tensor.FakeTensorMode, "avoid_device_init", True)
        patch(fake_tensor.FakeTensor, "data_ptr", lambda tensor: tape.address(tensor))
        sys.modules[HOOK] = hook
        stack.callback(sys.modules.pop, HOOK, None)
        patch(ctypes, "CDLL", refused("a foreign library"))
        patch(threading.Thread, "start", refused("threads"))
        # Without line numbers equal kernels have equal code. Candidates must not write a cache that others read.
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="dvk-triton-", ignore_cleanup_errors=True)
        )
        stack.enter_context(
            mock.patch.dict(
                os.environ, {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_CACHE_DIR": folder}
            )
        )
        if importlib.util.find_spec("triton") is not None:
            stack.enter_context(_driver(Driver(gpu, tape)))
        yield


def _swap(first: torch.Tensor, second: torch.Tensor) -> None:
    """Do torch.utils.swap_tensors without its refusal of weak references, which fake modes hold to their tensors."""
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    torch._C._swap_tensor_impl(first, second)


@contextmanager
def _driver(driver: Driver) -> Iterator[None]:
    from triton.runtime import driver as active

    active.set_active(driver)
    try:
        yield
    finally:
        active._active = None


class Driver:
    """Triton's driver for a fake GPU."""

    def __init__(self, gpu: GpuProperties, tape: Tape):
        self.gpu, self.tape = gpu, tape
        self.utils = self
        self.trials = AutotuneConfigs(tape)
        self.launcher_cls = lambda source, metadata: RecordingLauncher(
            source, metadata, tape, self.trials
        )

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.gpu.arch, 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return self.gpu.capability

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def map_python_to_cpp_type(self, kind: str) -> str:
        raise self.tape.refusals.refuse("it builds a custom launcher")

    def get_benchmarker(self) -> Callable[..., Any]:
        """An autotuner's benchmark: the configuration is recorded, and the first one wins until a replay can measure."""

        def measure(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> Any:
            time = self.trials.attempt(call)
            return time if quantiles is None else [time] * len(quantiles)

        return measure

    def get_device_properties(self, device: int) -> dict[str, int]:
        known = self.gpu.properties
        number = lambda name, default: int(known.get(name) or default)  # noqa: E731
        return {
            "max_shared_mem": self.gpu.max_shared_bytes,
            "max_num_regs": number("regs_per_multiprocessor", 65536),
            "multiprocessor_count": number("multi_processor_count", 1),
            "warpSize": 32,
            "sm_clock_rate": number("clock_rate", 0),
            "mem_clock_rate": number("memory_clock_rate", 0),
            "mem_bus_width": number("memory_bus_width", 0),
        }

    def load_binary(
        self, name: str, code: bytes, shared: int, device: int
    ) -> tuple[None, str, int, int, int]:
        """Keep the code instead of loading it; its key goes to the launcher in place of a handle."""
        return None, self.tape.keep(bytes(code)), 0, 0, 1024

    def unload_module(self, module: None) -> None:
        pass
