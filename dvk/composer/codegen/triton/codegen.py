"""Triton kernels as a `Codegen`."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.composer.codegen import triton
from dvk.composer.codegen.analysis.online import row_recipes
from dvk.composer.codegen.base import Codegen, Inplace, KernelSet, ModuleText, Schedule
from dvk.composer.ir.loops import Kernel


class Triton(Codegen):
    """See the module."""

    has_families = True

    def schedules(self, kernel: Kernel) -> list[Schedule]:
        return triton.schedules(kernel)

    def default_schedule(self, kernel: Kernel) -> Schedule:
        return triton.default_schedule(kernel)

    def render(self, kernel: Kernel, schedule: Schedule, inplace: Inplace | None = None) -> str:
        return triton.render(kernel, schedule, dict(inplace or {}))

    def launch(
        self, kernel: Kernel, schedule: Schedule, inputs: Sequence[str], outputs: Sequence[str]
    ) -> list[str]:
        return triton.launch(kernel, schedule, list(inputs), list(outputs))

    def module(self, every: KernelSet) -> ModuleText:
        texts = [
            self.render(kernel, every.schedules[kernel.name], every.inplace.get(kernel.name))
            for kernel in every.kernels
        ]
        text, runtime, load = triton.module(every.kernels, texts)
        return ModuleText(
            text, runtime, load, "import torch\nimport triton\nimport triton.language as tl"
        )

    def recipes_of(self, kernel: Kernel, schedule: Schedule) -> set[str]:
        return row_recipes(kernel, schedule)
