"""The composer's interface to a back end: list a kernel's schedules, write its text, write the module that loads all kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Protocol

from dvk import backends, registry
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.recurrence import Recurrence
from dvk.composer.ir.schedules.base import Schedule, parse
from dvk.composer.ir.symint import ARGUMENT
from dvk.composer.ir.time_scan import TimeScan
from dvk.errors import UsageError
from dvk.target import DEFAULT, Target

Inplace = Mapping[int, int]
"""Output index → index of the input that shares its memory, at the same offset in every element."""


@dataclass(frozen=True)
class KernelSet:
    """The kernels of one drop-in, scheduled.

    Attributes:
        kernels: in launch order.
        schedules: by kernel name.
        inplace: by kernel name; missing ones overwrite no input.
        recurrences: function name → recurrent layer or loop over time steps, of the back end's `layer_types`.
        recipes: names of the recipes of the plans.
    """

    kernels: Sequence[Kernel]
    schedules: Mapping[str, Schedule]
    inplace: Mapping[str, Inplace] = field(default_factory=dict)
    recurrences: Mapping[str, Recurrence | TimeScan] = field(default_factory=dict)
    recipes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ModuleText:
    """The part of a drop-in that holds kernels.

    Attributes:
        text: the kernels, which a reader sees first.
        runtime: their launchers; it is placed below the guards.
        load: lines that make the kernels callable, once per process: the body of a function that returns False if that fails.
        header: import lines.
    """

    text: str
    runtime: str = ""
    load: Sequence[str] = ()
    header: str = "import torch"


class DeviceFunction(Protocol):
    """A function of a kernel that runs on a GPU."""

    @property
    def name(self) -> str: ...

    @property
    def grid(self) -> int:
        """Programs or blocks of a launch."""

    @property
    def params(self) -> Sequence[str]:
        """`a0`… for inputs, `o0`… for outputs, `part_float32`… for buffers between functions, `n_…` for sizes."""


def launch_lines(
    kernel: Kernel,
    functions: tuple[Sequence[DeviceFunction], Mapping[str, int]],
    inputs: Sequence[str],
    outputs: Sequence[str],
    prefix: str,
) -> list[str]:
    """Python lines that run a kernel's functions on tensors; outputs exist already, partial results are allocated here.

    Args:
        functions: in launch order, and the buffers between them (type → elements).
        inputs, outputs: names of the tensors.
        prefix: of the launcher's name.
    """
    parts, buffers = functions
    names = {
        **{f"a{n}": name for n, name in enumerate(inputs)},
        **{f"o{n}": name for n, name in enumerate(outputs)},
    }
    lines = []
    for kind, count in buffers.items():
        names[f"part_{kind}"] = part = f"_{kernel.name}_{kind}"
        lines.append(f"{part} = dvk_allocate(({count},), (1,), torch.{kind})")
    for f in parts:
        # A size is passed under its own name, and decides how many programs there are.
        given = [names.get(p, p) for p in f.params]
        programs = [repr(f.grid)] if any(p.startswith(ARGUMENT) for p in f.params) else []
        lines.append(f"{prefix}{f.name}({', '.join([*programs, *given])})")
    return lines


class Codegen(ABC):
    """Writes kernels in one language.

    Attributes:
        excluded: recipes that it cannot carry out.
        schedule_types: classes of its schedules.
        has_families: it also has kernels for pooling, scans, computed indices, matmuls and convolutions.
        layer_types: what it writes as functions beside kernels: recurrent layers, loops over time steps.
        takes_sizes: kernels may have sizes as arguments (`ir.symint.ARGUMENT`).
        splits_rows: several launches, or programs without a common order, may work on one row.
    """

    excluded: ClassVar[frozenset[str]] = frozenset(
        {
            "recurrent_sequences",
            "huge_pages",
            "column_sums",
            "common_loops",
            "grouped_experts",
            "nucleus",
            "own_attention",
            "own_scatters",
        }
    )
    schedule_types: ClassVar[tuple[type[Schedule], ...]]
    has_families: ClassVar[bool] = False
    layer_types: ClassVar[tuple[type[Recurrence] | type[TimeScan], ...]] = ()
    takes_sizes: ClassVar[bool] = False
    splits_rows: ClassVar[bool] = True

    @abstractmethod
    def schedules(self, kernel: Kernel, target: Target = DEFAULT) -> Sequence[Schedule]:
        """Ways to run a kernel that are worth measuring on a device, the default first."""

    @abstractmethod
    def render(self, kernel: Kernel, schedule: Schedule, inplace: Inplace | None = None) -> str:
        """Text of one kernel."""

    @abstractmethod
    def launch(
        self, kernel: Kernel, schedule: Schedule, inputs: Sequence[str], outputs: Sequence[str]
    ) -> list[str]:
        """Python lines that run the kernel on tensors of these names; outputs are allocated."""

    @abstractmethod
    def module(self, every: KernelSet) -> ModuleText:
        """Text that holds and loads all kernels of a drop-in."""

    def launch_layer(self, name: str, tensors: Sequence[str]) -> str:
        """The Python line that runs a loop over time steps: its operands, then its results."""
        return f"run_{name}({', '.join(tensors)})"

    def default_schedule(self, kernel: Kernel, target: Target = DEFAULT) -> Schedule:
        """The default schedule."""
        return self.schedules(kernel, target)[0]

    def parse(self, printed: Mapping[str, Any], kernel: str = "") -> Schedule:
        """The schedule that a record holds.

        Args:
            kernel: its name, for messages.

        Raises:
            UsageError: names the choices for an unknown kind, key or value.
        """
        return parse(self.schedule_types, printed, kernel)

    def recipes_of(self, kernel: Kernel, schedule: Schedule) -> set[str]:
        """Names of the schedule recipes that a schedule implements (`dvk.composer.recipes`)."""
        return set()


@cache
def codegen(name: str) -> Codegen:
    """The writer of a back end's kernels.

    Raises:
        UsageError: there is no such back end, or it writes no kernels.
    """
    backend = backends.get(name)
    if backend.codegen:
        backend = registry.resolve(
            backend.codegen, {backend.codegen: backend.codegen}, "code generator"
        )()
    if not isinstance(backend, Codegen):
        raise UsageError(
            f"the {name} backend writes no kernels",
            "derive its class from dvk.composer.codegen.base.Codegen, too",
        )
    return backend


def takes_time_loops(name: str) -> bool:
    """Whether graphs for a back end may hold loops over time steps: it has kernels for them, or composes nothing."""
    try:
        return TimeScan in codegen(name).layer_types
    except UsageError:
        return True
