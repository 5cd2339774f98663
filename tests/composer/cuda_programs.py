"""Turn small modules into CUDA programs and run them: emulated on the CPU, or compiled by NVRTC on a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from dvk.composer import cuda as renderer
from dvk.composer import cuda_launch, embedded
from dvk.composer.capture import trace_module
from dvk.composer.cuda_write import Function
from dvk.composer.fuse import Group, partition
from dvk.composer.host import HostWriter, held_name, layouts
from dvk.composer.kernel import Kernel, build
from dvk.composer.lowering import lower
from tests.composer import cuda_emulator
from tests.composer.programs import poisoned


class Program:
    """A module's kernels under each number of schedule, and the texts that run them; `prefix` keeps names apart."""

    def __init__(self, module: torch.nn.Module, args: list[Any], prefix: str, device: str = "cpu", most: int = 99):
        self.module, self.args, self.device = module.eval(), args, device
        self.names = [f"x{n}" for n in range(len(args))]
        self.graph = trace_module(self.module, args, self.names).graph
        self.prims = lower(self.graph)
        self.part = partition(self.prims)
        strides = layouts(self.graph, self.prims)
        groups = [s for s in self.part.schedule if isinstance(s, Group)]
        plain = {id(g): build(g, self.part, f"k{n}", strides) for n, g in enumerate(groups)}
        self.kernels: list[Kernel] = list(plain.values())
        count = min(max(len(renderer.schedules(k)) for k in self.kernels), most)
        self.variants = [Variant(self, {key: replace(k, name=f"{prefix}v{n}{k.name}") for key, k in plain.items()}, n) for n in range(count)]


class Variant:
    """One choice of schedules."""

    def __init__(self, program: Program, kernels: dict[int, Kernel], number: int):
        self.program = program
        self.kernels = list(kernels.values())
        self.schedules = {}
        for kernel in self.kernels:
            options = renderer.schedules(kernel)
            self.schedules[kernel.name] = options[min(number, len(options) - 1)]
        host = HostWriter(program.graph, program.prims, program.part, kernels,
                          lambda k, i, o: renderer.launch(k, self.schedules[k.name], i, o), False, program.device).program()
        self.functions: list[Function] = [f for k in self.kernels for f in renderer.functions(k, self.schedules[k.name])[0]]
        self.texts = [renderer.render(k, self.schedules[k.name]) for k in self.kernels]
        bound = [f"{held_name(node)} = found(self, {node.target!r})" for node in host.weights]
        body = "\n".join(f"    {line}" for line in [*bound, *host.lines, f"return {host.result}"])
        body = re.sub(r"= torch\.(empty\w*)\(", r"= poisoned(torch.\1, ", body)
        body = re.sub(r"= (\S+)\.new_empty\(", r"= poisoned(\1.new_empty, ", body)
        self.text = "\n".join(host.derived) + f"\ndef run(self, {', '.join(program.names)}):\n{body}\n"
        self.namespace: dict[str, Any] = {
            "torch": torch, "poisoned": poisoned, "dvk_derived": embedded.dvk_derived,
            "dvk_strided": lambda t, *layout: t,
            "found": lambda module, path: operator_path(module, path),
        }  # fmt: skip

    def run(self) -> Any:
        if "run" not in self.namespace:
            exec(compile(self.text, "<program>", "exec"), self.namespace)
        with torch.no_grad():
            return self.namespace["run"](self.program.module, *self.program.args)


def operator_path(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def load(variants: Iterable[Variant], device: str, aligned: bool = True, per_library: int = 40) -> None:
    """Make the kernels of all variants callable, compiled in a few pieces side by side."""
    variants = list(variants)
    pieces = [variants[n : n + per_library] for n in range(0, len(variants), per_library)]
    with ThreadPoolExecutor(2) as pool:
        loads = list(pool.map(lambda piece: _launchers(piece, device, aligned), pieces))
    for piece, launchers in zip(pieces, loads):
        for variant in piece:
            for function in variant.functions:
                variant.namespace[f"_dvk_{function.name}"] = launchers[function.name]


def _launchers(piece: Sequence[Variant], device: str, aligned: bool) -> dict[str, Callable[..., None]]:
    functions = [f for v in piece for f in v.functions]
    if device == "cpu":
        library = cuda_emulator.library([t for v in piece for t in v.texts], functions, aligned)
        return {f.name: cuda_emulator.launcher(library, f.name) for f in functions}
    table = [(n, f.name, f.grid, f.threads) for n, v in enumerate(piece) for f in v.functions]
    loaded = cuda_launch.dvk_cuda_load(renderer.PRELUDE, ["\n".join(v.texts) for v in piece], table, renderer.FLAGS)
    return {f.name: launch for f, launch in zip(functions, loaded)}
