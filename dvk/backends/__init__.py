"""Back ends: the languages that kernels are written in. One class each, in one file, with one line in `BACKENDS`.

A back end says where its kernels run, what their processes need and whether this machine has it. `codegen` names the class
that writes its kernels (`dvk.composer.codegen.base.Codegen`); a class that derives from both is a whole back end in one file.
Options that name a back end also take `path/to/file.py:Name`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import ClassVar

from dvk import machine, registry
from dvk.errors import MachineError, UsageError
from dvk.records import Device

BACKENDS = {
    "triton": "dvk.backends.triton:Triton",
    "cuda": "dvk.backends.cuda:Cuda",
    "cpp": "dvk.backends.cpp:Cpp",
}
"""In the order in which a candidate's text is tried (`detect`). The first whose first device is the task's is the default there."""


class Backend(ABC):
    """What the judge asks of a back end.

    Attributes:
        title: name in prompts and messages.
        devices: where kernels can run, best first; elsewhere they are checked at most (`untimed`).
        install: one sentence: what to install if it does not work.
        has_launch_plan: the judge can record its launches and replay them (`--contract plan`).
        codegen: import path of the class that writes its kernels; empty if this class does, or if it writes none.
    """

    title: ClassVar[str]
    devices: ClassVar[tuple[Device, ...]]
    install: ClassVar[str]
    has_launch_plan: ClassVar[bool] = False
    codegen: ClassVar[str] = ""

    @abstractmethod
    def available(self) -> str | None:
        """None, or why candidates cannot run on this machine, with what to install."""

    def detect(self, source: str) -> bool:
        """A candidate's text is for this back end. Reads words; executes and parses nothing."""
        return False

    def env(self, device: Device) -> dict[str, str]:
        """Environment of the process that runs a candidate on `device`; read before anything is imported."""
        return {}

    def untimed(self, device: Device) -> str | None:
        """None, or why a candidate's time on `device` means nothing."""
        return None


_added: set[str] = set()


def add(name: str) -> Backend:
    """The back end that a user named: of the table, or the class `Name` of `path/to/file.py:Name`.

    Raises:
        UsageError: there is none, or the class is no `Backend`.
    """
    if name not in BACKENDS and not isinstance(
        registry.resolve(name, BACKENDS, "backend")(), Backend
    ):
        raise UsageError(f"`{name}` is no back end", "derive the class from dvk.backends.Backend")
    _added.add(name)
    return get(name)


@cache
def get(name: str) -> Backend:
    """The back end of this name: of the table, or one that was added. A name in a data file never makes code run.

    Raises:
        UsageError: there is none.
    """
    if name not in BACKENDS and name not in _added:
        raise UsageError(
            f"unknown backend: `{name}`",
            f"choose {', '.join(BACKENDS)}, or give --backend path/to/file.py:Name",
        )
    backend: Backend = registry.resolve(name, BACKENDS, "backend")()
    return backend


def require(name: str) -> None:
    """Refuse an explicitly chosen back end that cannot run here.

    Raises:
        UsageError: there is none of that name.
        MachineError: says what to install.
    """
    backend = add(name)
    if (why := backend.available()) is not None:
        raise MachineError(f"the {name} backend cannot run here: {why}", backend.install)


def default_device() -> Device:
    """`cuda` if there is a GPU, else `cpu`; found without opening a CUDA context."""
    return "cuda" if machine.gpu_names() else "cpu"


def default(device: Device) -> str:
    """The back end whose best device is `device`."""
    return next(name for name in BACKENDS if get(name).devices[0] == device)


def check_device(name: str, device: Device) -> None:
    """Refuse a device on which the back end's kernels do not run.

    Raises:
        UsageError: says which devices they run on.
    """
    devices = get(name).devices
    if device not in devices:
        hint = f"leave --device out, or give --device {' or '.join(devices)}"
        raise UsageError(f"{get(name).title} kernels do not run on {device}", hint)


def pick(asked: str, device: Device) -> str:
    """The back end to write for: `asked` if this machine has it; `auto` is the device's default.

    Raises:
        UsageError: there is none of that name, or it does not write for that device.
        MachineError: it cannot run here.
    """
    name = default(device) if asked == "auto" else asked
    require(name)
    check_device(name, device)
    return name


def timed(asked: str, device: Device | None) -> tuple[Device, str]:
    """The device and the back end to make something faster with: `asked` and `device`, or this machine's best.

    Raises:
        UsageError: there is no such back end, or its kernels cannot be timed on that device.
        MachineError: this machine lacks one of them.
    """
    device = device or default_device()
    if device == "cuda" and default_device() != "cuda":
        raise MachineError(
            "no CUDA device was found", "use --device cpu, or check the driver with nvidia-smi"
        )
    name = pick(asked, device)
    if get(name).untimed(device) is not None:
        problem = f"on the CPU {name} kernels are checked and not timed, so none can be found to be faster"
        raise UsageError(problem, f"leave out --backend {name}; `dvk verify` checks such kernels")
    return device, name


def detect(source: str) -> str:
    """The back end of a candidate's text; `cpp` for plain PyTorch, which needs no compiler."""
    return next((name for name in BACKENDS if get(name).detect(source)), "cpp")
