"""C++ kernels as a `Codegen`: one shared library per drop-in, called through ctypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dvk.composer.codegen import cpp
from dvk.composer.codegen.base import Codegen, Inplace, KernelSet, ModuleText
from dvk.composer.codegen.cpp import recurrence, time_scan
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.recurrence import Recurrence
from dvk.composer.ir.schedules.base import Schedule, expect
from dvk.composer.ir.schedules.cpp import CPP, CppLoops, CppSchedule
from dvk.composer.ir.time_scan import TimeScan
from dvk.composer.rewrites import huge_pages
from dvk.target import DEFAULT, Target

CDIV = "static inline long cdiv(long a, long b) { return (a + b - 1) / b; }\n"
"""Divide and round up: `ir.symint` writes it for the number of slices of a size that is known at run time."""


class CppCodegen(Codegen):
    """See the module."""

    schedule_types = CPP
    excluded = frozenset({"grouped_experts", "own_narrow", "own_narrow_matmul", "own_block_matmul"})
    has_families = True
    layer_types = (Recurrence, TimeScan)
    takes_sizes = True
    splits_rows = False

    def schedules(self, kernel: Kernel, target: Target = DEFAULT) -> Sequence[CppSchedule]:
        return cpp.schedules(kernel, target)

    def render(self, kernel: Kernel, schedule: Schedule, inplace: Inplace | None = None) -> str:
        return cpp.render(kernel, expect(schedule, CppSchedule), dict(inplace or {}))

    def launch(
        self, kernel: Kernel, schedule: Schedule, inputs: Sequence[str], outputs: Sequence[str]
    ) -> list[str]:
        """A ctypes call with raw addresses."""
        given = [f"{name}.data_ptr()" for name in (*inputs, *outputs)] + kernel.size_arguments
        return [f"_dvk_{kernel.name}({', '.join(given)})"]

    def launch_layer(self, name: str, tensors: Sequence[str]) -> str:
        return f"_dvk_{name}({', '.join(f'{t}.data_ptr()' for t in tensors)})"

    def module(self, every: KernelSet) -> ModuleText:
        texts = [
            self.render(kernel, every.schedules[kernel.name], every.inplace.get(kernel.name))
            for kernel in every.kernels
        ]
        shared = cpp.prelude(every.kernels)
        if "huge_pages" in every.recipes:
            texts = [
                huge_pages.advised(text, kernel, dict(every.inplace.get(kernel.name, {})))
                for text, kernel in zip(texts, every.kernels, strict=True)
            ]
            shared += huge_pages.PRELUDE
        texts += [
            time_scan.render(layer, name)
            if isinstance(layer, TimeScan)
            else recurrence.render(layer, name)
            for name, layer in every.recurrences.items()
        ]
        addresses = {
            **{k.name: len(k.inputs) + len(k.outputs) for k in every.kernels},
            **{
                name: len(layer.operands) + len(layer.results)
                if isinstance(layer, TimeScan)
                else len(layer.read) + len(layer.written)
                for name, layer in every.recurrences.items()
            },
        }
        if any("cdiv(" in text for text in texts):
            shared += CDIV
        counts = {k.name: len(k.size_arguments) for k in every.kernels if k.size_arguments}
        return _library(addresses, counts, shared, "\n\n".join(texts))

    def recipes_of(self, kernel: Kernel, schedule: Schedule) -> set[str]:
        if kernel.family not in ("row", "column"):
            return {"vectorize"}
        inner = isinstance(schedule, CppLoops) and schedule.parallel == "inner"
        return {"vectorize", "split_reduction" if inner else "looped_row"}


def _library(
    functions: Mapping[str, int], sizes: Mapping[str, int], prelude: str, source: str
) -> ModuleText:
    """Text that holds the C++ source, and the lines that load its functions.

    Args:
        functions: name → number of addresses that it takes.
        sizes: name → number of sizes that follow them, if any.
    """
    if not functions:
        return ModuleText("")
    names = {f"_dvk_{name}": name for name in functions}
    text = f"_DVK_SOURCE = r'''\n{source}\n'''\n" + "\n".join(
        f"{n} = None  # the loaded function" for n in names
    )
    load = [f"global {', '.join(names)}", *cpp.LOAD]
    for variable, name in names.items():
        types = f"[ctypes.c_void_p] * {functions[name]}"
        if name in sizes:
            types += f" + [ctypes.c_long] * {sizes[name]}"
        load += [
            f"{variable} = library.{name}",
            f"{variable}.argtypes, {variable}.restype = {types}, None",
        ]
    return ModuleText(text, cpp.runtime(prelude), load)
