"""What kernels can be written in: one small file a back end, one line in the table.

A back end says whether this machine can run it and what its child processes need. It compiles
nothing: a candidate is a Python file that compiles its own kernels when imported or first called.
"""

from __future__ import annotations

from typing import Literal, Protocol

from dvk import machine, registry
from dvk.errors import MachineError

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
