"""Turn small modules into CUDA programs and run them: emulated on the CPU, or compiled by NVRTC on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from dvk.composer import codegen
from dvk.composer.capture.export import trace_module
from dvk.composer.codegen import cuda as renderer
from dvk.composer.codegen.cuda.writer import CudaFunction
from dvk.composer.dropin.forward import HostWriter, held_name
from dvk.composer.dropin.layouts import layouts
from dvk.composer.fusion.build import build
from dvk.composer.fusion.groups import FusionGroup
from dvk.composer.fusion.partition import partition
from dvk.composer.ir.loops import Kernel
from dvk.composer.lowering.whole_graph import lower
from dvk.composer.runtime import cuda_launch, guards, memory
from tests.composer import cuda_emulator
from tests.composer.programs import poisoned

FEW = ("bias_gelu", "softmax_loop", "residual_rms", "split_columns", "mean_square", "half", "mask")
"""Cases of every family that run without the slow mark, under two schedules."""


class Program:
    """A module's kernels under each schedule index, and the texts that run them; `prefix` keeps names apart."""

    def __init__(
        self,
        module: torch.nn.Module,
        args: list[Any],
        prefix: str,
        device: str = "cpu",
        most: int = 99,
    ):
        self.module, self.args, self.device = module.eval(), args, device
        self.names = [f"x{n}" for n in range(len(args))]
        self.graph = trace_module(self.module, args, self.names).graph
        self.prims = lower(
            self.graph, may_own=lambda recipe: codegen("cuda").has_families, device=device
        )
        self.part = partition(self.prims)
        strides = layouts(self.graph, self.prims)
        groups = [s for s in self.part.schedule if isinstance(s, FusionGroup)]
        plain = {id(g): build(g, self.part, f"k{n}", strides) for n, g in enumerate(groups)}
        self.kernels: list[Kernel] = list(plain.values())
        count = min(max(len(renderer.schedules(k)) for k in self.kernels), most)
        self.variants = []
        for n in range(count):
            named = {key: replace(k, name=f"{prefix}v{n}{k.name}") for key, k in plain.items()}
            self.variants.append(Variant(self, named, n))


class Variant:
    """One choice of schedules."""

    def __init__(self, program: Program, kernels: dict[int, Kernel], number: int):
        self.program = program
        self.kernels = list(kernels.values())
        self.schedules = {}
        for kernel in self.kernels:
            options = renderer.schedules(kernel)
            self.schedules[kernel.name] = options[min(number, len(options) - 1)]
        host = HostWriter(
            program.graph,
            program.prims,
            program.part,
            kernels,
            lambda k, i, o: renderer.launch(k, self.schedules[k.name], i, o),
            False,
            program.device,
        ).program()
        self.functions: list[CudaFunction] = [
            f for k in self.kernels for f in renderer.functions(k, self.schedules[k.name])[0]
        ]
        self.texts = [renderer.render(k, self.schedules[k.name]) for k in self.kernels]
        bound = [f"{held_name(node)} = found(self, {node.target!r})" for node in host.weights]
        body = "\n".join(
            f"    {line}"
            for line in [*bound, "_dvk_values = {}", *host.lines, f"return {host.result}"]
        )
        body = body.replace("dvk_allocate(", "poisoned(dvk_allocate, ")
        self.text = (
            "\n".join(host.derived) + f"\ndef run(self, {', '.join(program.names)}):\n{body}\n"
        )
        self.namespace: dict[str, Any] = {
            "torch": torch,
            "poisoned": poisoned,
            "dvk_derived": guards.dvk_derived,
            "dvk_allocate": memory.dvk_allocator("cpu"),
            "dvk_view": memory.dvk_viewer(),
            "dvk_strided": lambda t, *layout: t,
            "found": lambda module, path: operator_path(module, path),
        }

    def run(self) -> Any:
        if "run" not in self.namespace:
            exec(compile(self.text, "<program>", "exec"), self.namespace)
        with torch.no_grad():
            return self.namespace["run"](self.program.module, *self.program.args)


def operator_path(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def load(
    variants: Iterable[Variant], device: str, aligned: bool = True, per_library: int = 40
) -> None:
    """Make the kernels of all variants callable, compiled in a few parts in parallel."""
    variants = list(variants)
    pieces = [variants[n : n + per_library] for n in range(0, len(variants), per_library)]
    with ThreadPoolExecutor(2) as pool:
        loads = list(pool.map(lambda piece: _launchers(piece, device, aligned), pieces))
    for piece, launchers in zip(pieces, loads):
        for variant in piece:
            for function in variant.functions:
                variant.namespace[f"_dvk_{function.name}"] = launchers[function.name]


def _launchers(
    piece: Sequence[Variant], device: str, aligned: bool
) -> dict[str, Callable[..., None]]:
    functions = [f for v in piece for f in v.functions]
    if device == "cpu":
        library = cuda_emulator.library([t for v in piece for t in v.texts], functions, aligned)
        return {f.name: cuda_emulator.launcher(library, f.name) for f in functions}
    table = [(n, f.name, f.grid, f.threads) for n, v in enumerate(piece) for f in v.functions]
    loaded = cuda_launch.dvk_cuda_load(
        renderer.PRELUDE, ["\n".join(v.texts) for v in piece], table, renderer.FLAGS
    )
    return {f.name: launch for f, launch in zip(functions, loaded)}


def as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def widen(value: Any) -> Any:
    return (
        value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
    )


def wrong_in_case(program: Program, function: Callable[..., Any], bound: float) -> list[str]:
    """Errors of each variant: relative to |reference| + its rms, types, layouts."""
    same, wide = as_tuple(function(*program.args)), as_tuple(function(*map(widen, program.args)))
    wrong = []
    for variant in program.variants:
        found = as_tuple(variant.run())
        for f, s, w in zip(found, same, wide, strict=True):
            problem = difference(f, s, w, bound)
            wrong += [f"{list(variant.schedules.values())}: {problem}"] if problem else []
    return wrong


def difference(
    found: torch.Tensor, same: torch.Tensor, wide: torch.Tensor, bound: float
) -> str | None:
    """Errors of a result, given PyTorch's in the same precision (its type and shape) and in double."""
    if found.dtype != same.dtype or found.shape != same.shape or found.stride() != same.stride():
        return f"{found.dtype} {found.shape} {found.stride()}, not {same.dtype} {same.shape} {same.stride()}"
    if not same.is_floating_point():
        return None if torch.equal(found, same) else "values differ"
    error = (found.double() - wide).abs() / (wide.abs() + wide.pow(2).mean().sqrt() + 1e-30)
    worst = float(error.max())
    return None if worst <= bound else f"error {worst:.1e} of scale, allowed {bound:.0e}"


def wrong_in_scalar(program: Program, function: Callable[..., Any]) -> list[str]:
    """Errors of one scalar function, element by element, beyond those of PyTorch's own formula."""
    (x,) = program.args
    found, same = program.variants[0].run(), function(x)
    if not same.is_floating_point():
        return [] if torch.equal(found, same) else [f"differs at {x[found != same].tolist()[:5]}"]
    wide = widen(function(widen(x.cpu()))).to(x.device)
    error, floor = (
        (found.double() - wide).abs(),
        2 * (same.double() - wide).abs() + torch.finfo(x.dtype).tiny,
    )
    bound = 1e-6 if x.dtype is torch.float32 else 1e-13
    bad = (
        ~(error <= bound * wide.abs() + floor)
        & ~(found.double() == wide)
        & ~(found.isnan() & wide.isnan())
    )
    return [
        f"f({x[i].item()!r}) = {found[i].item()!r}, not {wide[i].item()!r}"
        for i in bad.nonzero()[:3].flatten().tolist()
    ]


def wrong_in_special(program: Program, function: Callable[..., Any]) -> list[str]:
    """NaN and infinities in other elements than PyTorch's."""
    expected, wrong = function(*program.args), []
    for variant in program.variants:
        found = variant.run()
        bad = ~torch.isclose(found, expected, rtol=1e-5, atol=1e-4, equal_nan=True)
        if bad.any():
            wrong.append(
                f"{list(variant.schedules.values())}: {found[bad][:3].tolist()} not {expected[bad][:3].tolist()}"
            )
    return wrong
