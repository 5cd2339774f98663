"""The answer: what the composer would run under a plan, as a short text.

Kernels with symbolic sizes, then `def run(x0, p0, …)`. In Triton:

    @jit
    def k0(a0, a1, o0):
        x = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        …
    def run(x0, p0):
        v0 = F.linear(x0, p0).contiguous()
        v1 = torch.empty_like(v0)
        k0[cdiv(s0*s1, 1024), 4](v0, v1)
        return v1

`k0[programs, warps](…)` launches. In C++ the kernels are functions `void k0(const float* __restrict a0, …)` and are
called by that name with tensors. Everything that is the same in every text is the frame's (`frame.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dvk.composer import recipes, triton
from dvk.composer.capture import Captured
from dvk.composer.compact.cpp_text import CppWriter
from dvk.composer.compact.program import CompactHost, Text
from dvk.composer.compact.symbolic import Names, symbolic
from dvk.composer.compact.tidy import tidied
from dvk.composer.compose import Composition, Plan, fuse_graph, renderer
from dvk.composer.kernel import Kernel
from dvk.composer.sizes import as_cpp
from dvk.records import Backend

DEVICES: dict[str, str] = {"triton": "cuda", "cuda": "cuda", "cpp": "cpu"}
KEPT = 16
"""Fusions remembered: those of one graph under the recipe sets that its variants use."""


@dataclass(frozen=True)
class Subject:
    """A captured graph with named sizes."""

    captured: Captured
    names: Names
    symbolic: Any


_subjects: dict[int, Subject] = {}
_fused: dict[tuple[int, tuple[str, ...], str], Composition] = {}


def subject(captured: Captured) -> Subject:
    """The graph with named sizes; made once for as long as variants of it are written."""
    found = _subjects.get(id(captured))
    if found is None or found.captured is not captured:
        names = Names(captured.graph)
        found = Subject(captured, names, symbolic(captured.graph, names))
        while len(_subjects) >= KEPT:
            _forget(next(iter(_subjects)))
        _subjects[id(captured)] = found
    return found


def _forget(key: int) -> None:
    del _subjects[key]
    for entry in [e for e in _fused if e[0] == key]:
        del _fused[entry]


def fused(captured: Captured, names: tuple[str, ...], backend: Backend) -> Composition:
    """The kernels of a graph under some recipes, with symbolic sizes."""
    whole = subject(captured)
    key = (id(captured), tuple(n for n in names if recipes.RECIPES[n].kind in ("graph", "fusion")), backend)
    if key not in _fused:
        _fused[key] = tidied(fuse_graph(whole.symbolic, names, DEVICES[backend]))
    return _fused[key]


def write(captured: Captured, plan: Plan, backend: Backend) -> str:
    """The compact text of a plan."""
    return written(captured, plan, backend)[0]


def written(captured: Captured, plan: Plan, backend: Backend) -> tuple[str, bool]:
    """The compact text of a plan, and whether some kernel writes over what a call returned."""
    composition = fused(captured, plan.recipes, backend)
    render = renderer(backend)
    chosen = {k.name: dict(plan.schedules.get(k.name) or render.default_schedule(k)) for k in composition.ordered}
    if backend == "cpp":
        return _cpp(composition, chosen, plan)
    return _triton(composition, chosen, plan)


def _triton(composition: Composition, chosen: Mapping[str, dict[str, Any]], plan: Plan) -> tuple[str, bool]:
    made = {k.name: triton.functions(k, chosen[k.name]) for k in composition.ordered}
    same = _Same()
    for parts, _ in made.values():
        for part in parts:
            same.add(part.name, "@jit\n" + part.text.partition("\n")[2])

    def launch(kernel: Kernel, inputs: list[str], outputs: list[str]) -> list[str]:
        parts, buffers = made[kernel.name]
        names = {**{f"a{n}": name for n, name in enumerate(inputs)}, **{f"o{n}": name for n, name in enumerate(outputs)}}
        lines = []
        for kind, count in buffers.items():
            names[f"part_{kind}"] = f"{kernel.name}_{kind}"
            lines.append(f"{kernel.name}_{kind} = {[*outputs, *inputs][0]}.new_empty({count!r}, dtype=torch.{kind})")
        return [*lines, *(f"{same.name[f.name]}[{f.grid!r}, {f.warps}]({', '.join(names[p] for p in f.params)})" for f in parts)]

    host = _host(composition, launch, plan, "cuda")
    return "\n".join([*same.texts.values(), *_run(host, plan, "triton")]) + "\n", any(host.inplace.values())


def _cpp(composition: Composition, chosen: Mapping[str, dict[str, Any]], plan: Plan) -> tuple[str, bool]:
    same = _Same()

    def launch(kernel: Kernel, inputs: list[str], outputs: list[str]) -> list[str]:
        pairs = {o: i for o, name in enumerate(outputs) for i, given in enumerate(inputs) if name == given}
        with as_cpp():
            same.add(kernel.name, CppWriter(kernel, chosen[kernel.name], pairs).function())
        return [f"{same.name[kernel.name]}({', '.join((*inputs, *outputs))})"]

    host = _host(composition, launch, plan, "cpu")
    return "\n".join([*same.texts.values(), *_run(host, plan, "cpp")]) + "\n", any(host.inplace.values())


class _Same:
    """Kernels by text: what is written once is called as often as it is needed."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        """Text without the kernel's name → with it."""
        self.name: dict[str, str] = {}
        self._first: dict[str, str] = {}

    def add(self, name: str, text: str) -> None:
        plain = text.replace(f" {name}(", " k(", 1)
        first = self._first.setdefault(plain, name)
        self.name[name] = first
        self.texts.setdefault(plain, text.replace(f" {name}(", f" {first}(", 1))


def _host(composition: Composition, launch: Any, plan: Plan, device: str) -> Text:
    return CompactHost(composition.graph, composition.prims, composition.part, composition.kernels, launch,
                       "inplace_epilogue" in plan.recipes, device).text()


def _run(host: Text, plan: Plan, backend: str) -> list[str]:
    replay = ["@graphed"] if "cuda_graph" in plan.recipes and backend == "triton" else []
    return [*host.held, *replay, f"def run({', '.join(host.params)}):", *(f"    {line}" for line in host.lines)]


__all__ = ["DEVICES", "Subject", "fused", "subject", "write", "written"]
