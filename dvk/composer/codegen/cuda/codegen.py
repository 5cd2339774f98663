"""CUDA C++ kernels as a `Codegen`: compiled by NVRTC when the drop-in first runs."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.composer.codegen import cuda
from dvk.composer.codegen.analysis.online import row_recipes
from dvk.composer.codegen.base import Codegen, Inplace, KernelSet, ModuleText, Schedule
from dvk.composer.ir.loops import Kernel


class Cuda(Codegen):
    """See the module."""

    def schedules(self, kernel: Kernel) -> list[Schedule]:
        return cuda.schedules(kernel)

    def default_schedule(self, kernel: Kernel) -> Schedule:
        return cuda.default_schedule(kernel)

    def render(self, kernel: Kernel, schedule: Schedule, inplace: Inplace | None = None) -> str:
        return cuda.render(kernel, schedule, dict(inplace or {}))

    def launch(
        self, kernel: Kernel, schedule: Schedule, inputs: Sequence[str], outputs: Sequence[str]
    ) -> list[str]:
        return cuda.launch(kernel, schedule, list(inputs), list(outputs))

    def module(self, every: KernelSet) -> ModuleText:
        texts = [
            self.render(kernel, every.schedules[kernel.name], every.inplace.get(kernel.name))
            for kernel in every.kernels
        ]
        return ModuleText(*cuda.module(list(every.kernels), dict(every.schedules), texts))

    def recipes_of(self, kernel: Kernel, schedule: Schedule) -> set[str]:
        return row_recipes(kernel, schedule)
