"""What kernels can be written in: one small file a back end, one line in the table.

A back end says whether this machine can run it and what its child processes need. It compiles
nothing: a candidate is a Python file that compiles its own kernels when imported or first called.
"""

from __future__ import annotations

from typing import Literal, Protocol

from dvk import machine, registry
from dvk.errors import MachineError, UsageError
from dvk.records import Backend

BACKENDS = {
    "triton": "dvk.harness.backends.triton:Triton",
    "cuda": "dvk.harness.backends.cuda:Cuda",
    "cpp": "dvk.harness.backends.cpp:Cpp",
}


class BackendProtocol(Protocol):
    """What the judge asks of a back end."""

    install: str
    """One sentence: what to install where it does not work."""

    def available(self) -> str | None:
        """None, or why candidates cannot run on this machine, with what to install."""

    def env(self, device: str) -> dict[str, str]:
        """Environment of the child that judges a candidate on `device`; read before anything is imported."""

    def untimed(self, device: str) -> str | None:
        """None, or why a candidate's time on `device` would mean nothing."""


def get(name: str) -> BackendProtocol:
    """The back end `name`, or the class `Name` of `path/to/file.py:Name`.

    Raises:
        UsageError: there is none.
    """
    backend: BackendProtocol = registry.resolve(name, BACKENDS, "backend")()
    return backend


def require(name: str) -> None:
    """Refuse an explicitly chosen back end that cannot run here.

    Raises:
        MachineError: says what to install.
    """
    backend = get(name)
    if (why := backend.available()) is not None:
        raise MachineError(f"the {name} backend cannot run here: {why}", backend.install)


def default_device() -> Literal["cpu", "cuda"]:
    """`cuda` where there is a GPU, else `cpu`; found without opening a CUDA context."""
    return "cuda" if machine.gpu_names() else "cpu"


def pick(asked: str, device: str) -> Backend:
    """The back end to write for: what was asked if this machine has it, else the device's own.

    Raises:
        UsageError, MachineError: there is none of that name, or it cannot run here or on that device.
    """
    if asked not in ("auto", "triton", "cuda", "cpp"):
        raise UsageError(f"unknown backend: `{asked}`", "choose auto, triton, cuda or cpp")
    backend: Backend = asked if asked != "auto" else "triton" if device == "cuda" else "cpp"  # type: ignore[assignment]  # checked above
    require(backend)
    if backend == "cuda" and device != "cuda":
        raise UsageError("CUDA kernels run on the GPU", "leave --device cpu out, or use --backend cpp")
    if backend == "cpp" and device == "cuda":
        raise UsageError("C++ kernels run on the CPU", "add --device cpu, or use --backend triton")
    return backend
