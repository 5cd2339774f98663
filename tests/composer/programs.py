"""Turn small live modules into C++ programs and run them in this process, many compiled at once.

A `Program` is a drop-in's program without its guards; `drop_in` writes the whole drop-in from source text.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import linecache
import math
import types
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dvk.composer import applicable, fuse
from dvk.composer.capture.export import CapturedGraph, trace_module
from dvk.composer.codegen import cpp
from dvk.composer.codegen.base import codegen
from dvk.composer.codegen.cpp import recurrence
from dvk.composer.compose import Composition, Plan, compose
from dvk.composer.dropin.forward import HostWriter, held_name
from dvk.composer.ir.affine import Affine
from dvk.composer.ir.loops import Bound, Kernel
from dvk.composer.ir.recurrence import Recurrence
from dvk.composer.ir.schedules.cpp import CppSchedule
from dvk.composer.lowering.convolution import PRODUCTS
from dvk.composer.runtime import cpp_load, guards, memory, strided
from dvk.composer.runtime.finite import dvk_finite
from dvk.composer.runtime.going_back import dvk_before
from dvk.composer.runtime.graph_replay import dvk_put
from dvk.composer.runtime.rebuild import dvk_made, dvk_named
from dvk.records import BackendName, Candidate, Device, Graph, Task

TASK = Task(id="test", name="test", source="", entry="Model", kind="module")
_numbers = itertools.count()
Chooser = Callable[[Kernel], CppSchedule]


class Function(nn.Module):
    """A function as a module without weights."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def capture(model: nn.Module | Callable[..., Any], *args: Any) -> CapturedGraph:
    """The graph of a module or function, arguments named x0, x1, …"""
    module = model if isinstance(model, nn.Module) else Function(model)
    return trace_module(module, list(args), [f"x{n}" for n in range(len(args))])


def usual(graph: Graph, device: Device = "cpu", backend: BackendName = "cpp") -> tuple[str, ...]:
    """All recipes that apply, except that matmuls and convolutions stay calls of the library, and no call is replayed as a graph."""
    return tuple(
        r for r in applicable(graph, device, backend, but=("cuda_graph",)) if r not in PRODUCTS
    )


def fused(
    model: nn.Module | Callable[..., Any], *args: Any, recipes: tuple[str, ...] | None = None
) -> Composition:
    """The kernels of a module under all recipes that apply."""
    captured = capture(model, *args)
    return fuse(TASK, captured, usual(captured.graph) if recipes is None else recipes)


class Program:
    """A module, its arguments, and the C++ program that computes the same."""

    def __init__(
        self,
        model: nn.Module | Callable[..., Any],
        *args: Any,
        recipes: tuple[str, ...] | Callable[[Graph], tuple[str, ...]] = usual,
        choose: Chooser = cpp.default_schedule,
        captured: CapturedGraph | None = None,
    ):
        self.module = model if isinstance(model, nn.Module) else Function(model)
        self.args = args
        self.captured = captured = captured or capture(self.module, *args)
        self.graph = captured.graph
        self.recipes = recipes(self.graph) if callable(recipes) else recipes
        composition = fuse(TASK, captured, self.recipes)
        number = next(_numbers)
        kernels = {
            key: replace(k, name=f"m{number}_{k.name}") for key, k in composition.kernels.items()
        }
        self.composition = replace(composition, kernels=kernels)
        self.kernels = self.composition.ordered
        self.schedules = {k.name: choose(k) for k in self.kernels}
        writer = HostWriter(
            self.composition.graph,
            self.composition.prims,
            self.composition.part,
            kernels,
            lambda kernel, inputs, outputs: codegen("cpp").launch(
                kernel, self.schedules[kernel.name], inputs, outputs
            ),
            "inplace_epilogue" in self.recipes,
            "cpu",
        )
        program = writer.program()
        texts = [
            cpp.render(k, self.schedules[k.name], program.inplace.get(k.name)) for k in self.kernels
        ]
        self.functions = {k.name: (k.name, len(k.inputs) + len(k.outputs)) for k in self.kernels}
        for made, name in writer.recurrences.items():
            assert isinstance(made, Recurrence)
            texts.append(recurrence.render(made, f"m{number}_{name}"))
            self.functions[name] = f"m{number}_{name}", len(made.read) + len(made.written)
        self.cpp = "\n".join(texts)
        bound = [f"{held_name(node)} = found(self, {node.target!r})" for node in program.weights]
        weights = "".join(f"{held_name(node)}, " for node in program.weights)
        # Another program of the same module has derived other tensors from the same weights.
        bound += [f"alone._dvk_weights = ({weights})", "_, _dvk_values = dvk_renew(alone)"]
        body = "\n".join(
            f"    {line}" for line in [*bound, *program.lines, f"return {program.result}"]
        )
        # Results start as poison, so that an element that no kernel writes shows.
        body = body.replace("dvk_allocate(", "poisoned(dvk_allocate, ")
        self.text = (
            "\n".join(program.derived)
            + f"\ndef run(self, {', '.join(captured.arguments)}):\n{body}\n"
        )
        self.namespace: dict[str, Any] = {
            "torch": torch,
            "dvk_strided": strided.dvk_strided,
            "dvk_allocate": memory.dvk_allocator("cpu"),
            "dvk_view": memory.dvk_viewer(),
            "dvk_derived": guards.dvk_derived,
            "dvk_finite": dvk_finite,
            "dvk_else": object(),
            "dvk_before": dvk_before,
            "dvk_put": dvk_put,
            "dvk_named": dvk_named,
            "dvk_made": dvk_made,
            "dvk_renew": guards.dvk_renew,
            "alone": types.SimpleNamespace(),
            "poisoned": poisoned,
            "found": lambda module, path: functools.reduce(getattr, path.split("."), module),
        }

    def under(
        self, choose: Chooser = cpp.default_schedule, recipes: tuple[str, ...] | None = None
    ) -> Program:
        """The same module and arguments under other schedules or recipes; captured once for all."""
        return Program(
            self.module,
            *self.args,
            recipes=self.recipes if recipes is None else recipes,
            choose=choose,
            captured=self.captured,
        )

    @property
    def externs(self) -> list[str]:
        """ATen operators that stayed PyTorch calls."""
        return [
            p.op
            for p in self.composition.part.users
            if p.kind == "extern" and p.op.startswith("aten.")
        ]

    def run(self, *args: Any) -> Any:
        """The program's result; compiled alone if it was not compiled with others."""
        if "run" not in self.namespace:
            compiled([self])
        with torch.no_grad():
            result = self.namespace["run"](self.module, *(args or self.args))
        return self.eager(*args) if result is self.namespace["dvk_else"] else result

    def eager(self, *args: Any) -> Any:
        """The result of PyTorch."""
        with torch.no_grad():
            return self.module(*(args or self.args))


def compiled(programs: Iterable[Program]) -> list[Program]:
    """The programs, ready to run, from two parallel runs of the compiler."""
    programs = list(programs)
    with ThreadPoolExecutor(2) as pool:
        libraries = list(pool.map(_library, (programs[0::2], programs[1::2])))
    for number, program in enumerate(programs):
        for name, (compiled_as, count) in program.functions.items():
            function = getattr(libraries[number % 2], compiled_as)
            function.argtypes, function.restype = [ctypes.c_void_p] * count, None
            program.namespace[f"_dvk_{name}"] = function
        exec(compile(program.text, f"<program {id(program)}>", "exec"), program.namespace)
    return programs


def _library(programs: list[Program]) -> Any:
    if not any(p.functions for p in programs):
        return None
    kernels = [k for p in programs for k in p.kernels]
    library = cpp_load.dvk_compile(
        cpp.prelude(kernels) + "\n".join(p.cpp for p in programs), cpp.FLAGS
    )
    assert library is not None, "these tests need a C++ compiler"
    return library


def poisoned(make: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    """A new tensor full of what no test expects."""
    tensor = make(*args, **kwargs)
    return tensor.fill_(
        float("nan") if tensor.dtype.is_floating_point else 1 if tensor.dtype is torch.bool else 77
    )


def span_within(offset: Affine, bounds: Sequence[Bound]) -> tuple[int, int]:
    """Smallest and largest offset of an access that is made only within its bounds, by trying every index."""
    if not bounds:
        return offset.span()
    variables = list(offset.vars.union(*(part.vars for part, _ in bounds)))
    if not variables:
        return offset.span() if all(0 <= part.const < count for part, count in bounds) else (0, 0)
    if math.prod(v.size for v in variables) > 1 << 22:
        return offset.span()
    at = dict(
        zip(variables, torch.meshgrid(*(torch.arange(v.size) for v in variables), indexing="ij"))
    )
    values = [
        sum((c * at[v] for v, c in part.terms), torch.tensor(part.const))
        for part in (offset, *(part for part, _ in bounds))
    ]
    kept = functools.reduce(
        torch.logical_and, ((v >= 0) & (v < n) for v, (_, n) in zip(values[1:], bounds))
    )
    offsets, kept = torch.broadcast_tensors(values[0], kept)
    made = offsets[kept]
    return (int(made.min()), int(made.max())) if made.numel() else (0, 0)


def out_of_bounds(kernel: Kernel) -> list[str]:
    """Loads and stores that can leave their buffer."""
    accesses = [
        (i.offset, i.bounds, kernel.inputs[i.buffer]) for i in kernel.instrs if i.op == "load"
    ]
    accesses += [(s.offset, (), kernel.outputs[s.buffer]) for s in kernel.stores]
    found = []
    for offset, bounds, buffer in accesses:
        last = sum((size - 1) * stride for size, stride in zip(buffer.shape, buffer.strides))
        lo, hi = span_within(offset, bounds)
        if lo < 0 or hi > last:
            found.append(
                f"{kernel.name}: {lo}…{hi} outside 0…{last} of {buffer.dtype}{list(buffer.shape)}"
            )
    return found


def leaves(value: Any) -> list[Any]:
    """Tensors and numbers of an output, in order."""
    return torch.utils._pytree.tree_leaves(value)


EPSILON = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest difference relative to a value plus the output's rms: a few roundings of the dtype."""


def differences(
    got: Any,
    want: Any,
    *,
    layout: bool = True,
    scale: float = 1.0,
    precision: torch.dtype | None = None,
    floor: float = 0.0,
) -> list[str]:
    """How two results differ, in words; empty when they agree.

    Args:
        precision: the least precise dtype behind the results; each result's own where absent.
        floor: magnitude below which differences are seen relative to it.
    """
    a, b = leaves(got), leaves(want)
    if len(a) != len(b) or torch.utils._pytree.tree_structure(
        got
    ) != torch.utils._pytree.tree_structure(want):
        return [
            f"structure {torch.utils._pytree.tree_structure(got)} != {torch.utils._pytree.tree_structure(want)}"
        ]
    found = []
    for n, (x, y) in enumerate(zip(a, b)):
        if not isinstance(y, torch.Tensor):
            found += [] if x == y and type(x) is type(y) else [f"#{n}: {x!r} != {y!r}"]
        elif (x.shape, x.dtype) != (y.shape, y.dtype):
            found.append(f"#{n}: {x.dtype}{list(x.shape)} != {y.dtype}{list(y.shape)}")
        elif layout and any(
            a != b for a, b, size in zip(x.stride(), y.stride(), y.shape) if size > 1
        ):
            found.append(f"#{n}: strides {x.stride()} != {y.stride()} of {list(y.shape)}")
        elif y.dtype in EPSILON:
            epsilon = max(EPSILON[y.dtype], EPSILON[precision or y.dtype])
            found += [
                f"#{n}: {text}" for text in _apart(x.double(), y.double(), epsilon * scale, floor)
            ]
        elif not torch.equal(x, y):
            found.append(f"#{n}: {int((x != y).sum())} of {y.numel()} differ")
    return found


def check(made: Sequence[tuple[str, Program]], *, scale: float = 1.0, strict: bool = False) -> None:
    """Every program, by its name, agrees with eager, reads only its own memory, and leaves no call to torch.

    Args:
        strict: hold each result to its own dtype, and not to the first argument's if that is less precise.
    """
    compiled(program for _, program in made)
    wrong = {}
    for name, program in made:
        found = differences(
            program.run(),
            program.eager(),
            scale=scale,
            precision=None if strict else program.args[0].dtype,
        )
        found += [f"stayed a call: {op}" for op in program.externs]
        found += [text for kernel in program.kernels for text in out_of_bounds(kernel)]
        if found:
            wrong[name] = found
    assert wrong == {}


def _apart(x: torch.Tensor, y: torch.Tensor, epsilon: float, floor: float) -> list[str]:
    finite = torch.isfinite(y)
    odd = ~finite & ~((x == y) | (torch.isnan(x) & torch.isnan(y))) | (finite & ~torch.isfinite(x))
    if odd.any():
        at = tuple(odd.nonzero()[0].tolist())
        return [f"{x[at].item()} instead of {y[at].item()} at {at}"]
    if not finite.any():
        return []
    x, y = x[finite], y[finite]
    error = (x - y).abs() / (y.abs() + y.pow(2).mean().sqrt().clamp(max=1e3) + floor + 1e-30)
    worst = int(error.argmax())
    return (
        [f"{x[worst].item()} instead of {y[worst].item()}, error {error[worst].item():.1e}"]
        if not error[worst] <= epsilon
        else []
    )


def run_source(source: str, name: str = "candidate") -> types.ModuleType:
    """Execute a file's text as a module."""
    module, file = types.ModuleType(name), f"<{name} {next(_numbers)}>"
    if "@triton.jit" in source:  # Triton reads the text of its kernels
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    exec(compile(source, file, "exec"), module.__dict__)
    return module


def drop_in(
    source: str,
    *args: Any,
    entry: str = "Model",
    init: Sequence[Any] = (),
    training: bool | None = False,
    recipes: tuple[str, ...] | None = None,
    names: Sequence[str] | None = None,
    backend: str = "cpp",
    device: str = "cpu",
) -> tuple[types.ModuleType, nn.Module, Candidate]:
    """The executed drop-in of a file's text, the reference module, and the candidate; mode None is the file's own."""
    import inspect

    original = run_source(source, "reference")
    found = getattr(original, entry)
    function = not isinstance(found, type)
    model = Function(found) if function else found(*init)
    if training is not None:
        model.train(training)
    task = Task(
        id="test",
        name="test",
        source=source,
        entry=entry,
        kind="function" if function else "module",
        device=device,  # type: ignore[arg-type]
    )
    names = (
        names
        or list(inspect.signature(found if function else model.forward).parameters)[: len(args)]
    )
    captured = trace_module(model, list(args), list(names))
    chosen = usual(captured.graph) if recipes is None else recipes
    candidate = compose(task, captured, Plan(chosen), backend)
    return run_source(candidate.source), model, candidate
