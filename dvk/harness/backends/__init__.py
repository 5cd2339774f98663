"""Back ends by name: what a candidate's kernels are written in, and what a machine needs to judge them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from dvk import machine, registry
from dvk.errors import MachineError, UsageError

BACKENDS = {
    "triton": "dvk.harness.backends.triton:Triton",
    "cuda": "dvk.harness.backends.cuda:Cuda",
    "cpp": "dvk.harness.backends.cpp:Cpp",
}


@cache
def get(name: str) -> Any:
    """The back end called `name`.

    Raises:
        UsageError: there is none.
    """
    return registry.resolve(name, BACKENDS, "backend")()


def gpu_name() -> str | None:
    """The first CUDA device that torch may use; None where there is none."""
    return next(iter(machine.gpu_names()), None)


def default_device() -> str:
    """`cuda` where there is a GPU that torch can use, else `cpu`."""
    return "cuda" if gpu_name() else "cpu"


def require(name: str, device: str | None = None) -> None:
    """Make sure that an explicitly chosen back end can work here.

    Raises:
        MachineError: it cannot; the hint says what to install.
    """
    reason = get(name).unavailable()
    if reason is not None:
        raise MachineError(*reason)
    if device == "cuda" and not gpu_name():
        raise MachineError("no CUDA device was found", "use --device cpu, or check the driver with nvidia-smi")


def env(name: str, device: str) -> Mapping[str, str]:
    """Environment of a worker that judges candidates of this back end."""
    result: Mapping[str, str] = get(name).env(device)
    return result


def untimed(name: str, device: str) -> str | None:
    """Why candidates of this back end are checked but not timed on this device; None when they are timed."""
    result: str | None = get(name).untimed(device)
    return result


__all__ = ["BACKENDS", "UsageError", "default_device", "env", "get", "gpu_name", "require", "untimed"]
