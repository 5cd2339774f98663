"""CUDA C++ kernels as a `Codegen`: compiled by NVRTC when the drop-in first runs."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.composer.codegen import cuda
from dvk.composer.codegen.analysis.online import online_recipes
from dvk.composer.codegen.base import Codegen, Inplace, KernelSet, ModuleText
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule, expect
from dvk.composer.ir.schedules.cuda import CUDA, CudaLooped, CudaPersistent, CudaSchedule, CudaSplit
from dvk.target import DEFAULT, Target


class CudaCodegen(Codegen):
    """See the module."""

    schedule_types = CUDA
    takes_sizes = True

    def schedules(self, kernel: Kernel, target: Target = DEFAULT) -> Sequence[CudaSchedule]:
        return cuda.schedules(kernel, target)

    def render(self, kernel: Kernel, schedule: Schedule, inplace: Inplace | None = None) -> str:
        return cuda.render(kernel, expect(schedule, CudaSchedule), dict(inplace or {}))

    def launch(
        self, kernel: Kernel, schedule: Schedule, inputs: Sequence[str], outputs: Sequence[str]
    ) -> list[str]:
        of = expect(schedule, CudaSchedule)
        return cuda.launch(kernel, of, list(inputs), list(outputs))

    def module(self, every: KernelSet) -> ModuleText:
        texts = [
            self.render(kernel, every.schedules[kernel.name], every.inplace.get(kernel.name))
            for kernel in every.kernels
        ]
        chosen = {name: expect(of, CudaSchedule) for name, of in every.schedules.items()}
        return ModuleText(*cuda.module(list(every.kernels), chosen, texts))

    def recipes_of(self, kernel: Kernel, schedule: Schedule) -> set[str]:
        match schedule:
            case CudaPersistent():
                return {"persistent_row"}
            case CudaLooped(online=online):
                return {"looped_row", *online_recipes(kernel, online)}
            case CudaSplit(online=online):
                return {"split_reduction", *online_recipes(kernel, online)}
        return {"vectorize"}
