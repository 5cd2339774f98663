"""Turn small modules into Triton programs and run them in this process; used by the children of test_triton.py."""

from __future__ import annotations

import importlib.util
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from dvk.composer.capture.export import trace_module
from dvk.composer.codegen import triton as renderer
from dvk.composer.dropin.forward import HostWriter
from dvk.composer.dropin.layouts import layouts
from dvk.composer.fusion import attention_chains
from dvk.composer.fusion.build import build
from dvk.composer.fusion.groups import FusionGroup, output_bases
from dvk.composer.fusion.partition import partition
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.triton import TritonSchedule
from dvk.composer.lowering.whole_graph import lower
from dvk.composer.recipes import rewrite
from dvk.composer.rewrites import own_places

HEADER = "import torch\nimport triton\nimport triton.language as tl\n"
_numbers = itertools.count()
_folder = tempfile.TemporaryDirectory()


class Program:
    """A module's kernels and the text that runs them under a choice of schedules."""

    def __init__(self, module: torch.nn.Module, args: list[Any], device: str = "cpu"):
        self.module, self.args = module.eval(), args
        self.names = [f"x{n}" for n in range(len(args))]
        captured = trace_module(self.module, args, self.names)
        self.graph = own_places.rewrite(rewrite(captured.graph, ("recurrent_cells",), device))
        self.prims = lower(self.graph, device=device)
        self.part = partition(self.prims)
        strides = layouts(self.graph, self.prims)
        groups = [s for s in self.part.schedule if isinstance(s, FusionGroup)]
        made = {id(g): build(g, self.part, f"k{n}", strides) for n, g in enumerate(groups)}
        outputs = output_bases(self.prims)
        self.part, self.kernels = attention_chains.joined(self.part, made, outputs)
        self.device = device

    def options(self) -> int:
        """Number of schedules of the kernel with most of them."""
        return max(len(renderer.schedules(k)) for k in self.kernels.values())

    def distinct(self) -> list[int]:
        """Indices of schedules that differ in more than warps, which change nothing in the interpreter."""
        found: dict[str, int] = {}
        for number in range(self.options()):
            functions = [renderer.functions(k, nth(number)(k))[0] for k in self.kernels.values()]
            found.setdefault("".join(f.text for parts in functions for f in parts), number)
        return list(found.values())

    def text(self, choose: Callable[[Kernel], TritonSchedule]) -> str:
        kernels = self.kernels.values()
        host = HostWriter(
            self.graph,
            self.prims,
            self.part,
            self.kernels,
            lambda k, i, o: renderer.launch(k, choose(k), i, o),
            False,
            self.device,
        ).program()
        body = "\n".join(f"    {line}" for line in [*host.lines, f"return {host.result}"])
        functions = "\n\n".join(renderer.render(k, choose(k)) for k in kernels)
        text = f"{HEADER}\n{renderer.prelude(kernels, functions)}\n\n{functions}\n\ndef run(self, {', '.join(self.names)}):\n{body}\n"
        native = "torch._C._dynamo.guards."
        # A program for a GPU may be interpreted on a CPU.
        held = [*self.args, *self.module.parameters(), *self.module.buffers()]
        where = next((t.device.type for t in held if isinstance(t, torch.Tensor)), "cpu")
        return (
            text.replace("dvk_strided(", "(lambda t, *layout: t)(")
            .replace("dvk_allocate(", f"{native}_empty_strided_{where}(")
            .replace("dvk_view(", f"{native}_reinterpret_tensor(")
        )

    def run(self, choose: Callable[[Kernel], TritonSchedule]) -> Any:
        return load(self.text(choose)).run(self.module, *self.args)


def nth(number: int) -> Callable[[Kernel], TritonSchedule]:
    """Chooses every kernel's schedule of that index, or its last."""

    def choose(kernel: Kernel) -> TritonSchedule:
        options = renderer.schedules(kernel)
        return options[min(number, len(options) - 1)]

    return choose


def load(text: str) -> ModuleType:
    """Import source text from a separate file: Triton reads the source of what it compiles."""
    name = f"triton_program_{next(_numbers)}"
    path = Path(_folder.name) / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
