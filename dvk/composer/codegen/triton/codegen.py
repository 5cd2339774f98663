"""Triton kernels as a `Codegen`."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.composer.codegen import triton
from dvk.composer.codegen.analysis.online import online_recipes
from dvk.composer.codegen.base import Codegen, Inplace, KernelSet, ModuleText
from dvk.composer.codegen.triton import time_scan
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule, expect
from dvk.composer.ir.schedules.triton import (
    TRITON,
    TritonAttention,
    TritonLooped,
    TritonPersistent,
    TritonProduct,
    TritonScanSplit,
    TritonSchedule,
    TritonSkinny,
    TritonSplit,
    TritonUnpacked,
)
from dvk.composer.ir.time_scan import TimeScan
from dvk.target import DEFAULT, Target

SPLIT = TritonProduct | TritonSkinny | TritonUnpacked | TritonAttention | TritonScanSplit
"""Schedules that may split sums over programs."""


class TritonCodegen(Codegen):
    """See the module."""

    has_families = True
    excluded = Codegen.excluded - {
        "column_sums",
        "common_loops",
        "grouped_experts",
        "nucleus",
        "own_attention",
        "own_scatters",
    }
    takes_sizes = True
    layer_types = (TimeScan,)
    schedule_types = TRITON

    def schedules(self, kernel: Kernel, target: Target = DEFAULT) -> Sequence[TritonSchedule]:
        return triton.schedules(kernel, target)

    def render(self, kernel: Kernel, schedule: Schedule, inplace: Inplace | None = None) -> str:
        return triton.render(kernel, expect(schedule, TritonSchedule), dict(inplace or {}))

    def launch(
        self, kernel: Kernel, schedule: Schedule, inputs: Sequence[str], outputs: Sequence[str]
    ) -> list[str]:
        of = expect(schedule, TritonSchedule)
        return triton.launch(kernel, of, list(inputs), list(outputs))

    def module(self, every: KernelSet) -> ModuleText:
        texts = [
            self.render(kernel, every.schedules[kernel.name], every.inplace.get(kernel.name))
            for kernel in every.kernels
        ]
        texts += [
            time_scan.render(layer, name)
            for name, layer in every.recurrences.items()
            if isinstance(layer, TimeScan)
        ]
        text, runtime, load = triton.module(every.kernels, texts)
        return ModuleText(
            text, runtime, load, "import torch\nimport triton\nimport triton.language as tl"
        )

    def recipes_of(self, kernel: Kernel, schedule: Schedule) -> set[str]:
        match schedule:
            case TritonPersistent(online=online):
                row = kernel.family in ("row", "column")
                return {"persistent_row" if row else "vectorize", *online_recipes(kernel, online)}
            case TritonLooped(online=online):
                return {"looped_row", *online_recipes(kernel, online)}
            case TritonSplit(online=online):
                return {"split_reduction", *online_recipes(kernel, online)}
            case _ if isinstance(schedule, SPLIT) and schedule.splits > 1:
                return {"vectorize", "split_reduction"}
        return {"vectorize"}
