"""The answer: what the composer would run under a plan, as a short text.

Torch calls and kernels in the order in which they run, with symbolic sizes:

    v0 = F.linear(x0, p0)
    k0[cdiv(s0*s1, 1024), 4]:
        x = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        xmask = x < s0*s1
        e0 = tl.load(v0 + x, xmask)
        e1 = gelu(e0)
        tl.store(v1 + x, e1, xmask)
    return v1

Names are the listing's: memory by its value's, `e3` is an element of `v3`, `ex0` one of `x0`, `a0` what the listing does
not name. An operator that is one line in the listing is one line here (`named.py`). `k0[programs, warps]:` is a Triton
kernel and its launch; in C++ it is `k0:` or `k0 wide:` (vectors of 256 bits). Everything that follows from the listing
or is the same in every text is left out: `expand` and the frame add it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dvk.composer import dialect, recipes
from dvk.composer.algorithms import usual
from dvk.composer.capture.export import CapturedGraph
from dvk.composer.codegen import triton
from dvk.composer.compose import Composition, Plan, fuse_graph
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule, expect
from dvk.composer.ir.schedules.cpp import CppLoops
from dvk.composer.ir.schedules.triton import TritonSchedule
from dvk.composer.ir.symint import as_cpp
from dvk.nanolang.listing.symbolic import Names, symbolic
from dvk.nanolang.text.cpp_text import NanoCppWriter
from dvk.nanolang.text.named import named
from dvk.nanolang.text.program import HostTextWriter, listed
from dvk.records import BackendName

DEVICES: dict[str, str] = {"triton": "cuda", "cuda": "cuda", "cpp": "cpu"}
KEPT = 16
"""Cached fusions: those of one graph under the recipe sets of its variants."""


@dataclass(frozen=True)
class NanoContext:
    """A captured graph with named sizes."""

    captured: CapturedGraph
    names: Names
    symbolic: Any


_subjects: dict[int, NanoContext] = {}
_fused: dict[tuple[int, tuple[str, ...], str], Composition] = {}


def nano_context(captured: CapturedGraph) -> NanoContext:
    """The graph with named sizes; cached while variants of it are written."""
    context = _subjects.get(id(captured))
    if context is None or context.captured is not captured:
        names = Names(captured.graph)
        context = NanoContext(captured, names, symbolic(captured.graph, names))
        while len(_subjects) >= KEPT:
            _forget(next(iter(_subjects)))
        _subjects[id(captured)] = context
    return context


def _forget(key: int) -> None:
    del _subjects[key]
    for entry in [e for e in _fused if e[0] == key]:
        del _fused[entry]


def fused(captured: CapturedGraph, names: tuple[str, ...], backend: BackendName) -> Composition:
    """The kernels of a graph under some recipes, with symbolic sizes, in families that the dialect supports."""
    names = tuple(n for n in names if n not in dialect.not_in_dsl(backend))
    whole = nano_context(captured)
    key = (
        id(captured),
        tuple(n for n in names if recipes.RECIPES[n].kind in ("graph", "fusion")),
        backend,
    )
    if key not in _fused:
        _fused[key] = named(fuse_graph(whole.symbolic, names, DEVICES[backend]))
    return _fused[key]


def write(captured: CapturedGraph, plan: Plan, backend: BackendName) -> str:
    """The compact text of a plan."""
    return written(captured, plan, backend)[0]


def written(captured: CapturedGraph, plan: Plan, backend: BackendName) -> tuple[str, bool]:
    """The compact text of a plan, and whether some kernel overwrites the result of a call."""
    composition = fused(captured, plan.recipes, backend)
    chosen = {k.name: plan.schedules.get(k.name) or usual(k, backend) for k in composition.ordered}
    names = listed(composition.graph, composition.prims)
    replay = "cuda_graph" in plan.recipes and backend == "triton"

    def shown(
        kernel: Kernel, inputs: list[str], outputs: list[str], more: Callable[[str, int], str]
    ) -> list[str]:
        show = _cpp if backend == "cpp" else _triton
        return show(kernel, chosen[kernel.name], inputs, outputs, registers(kernel, names), more)

    host = HostTextWriter(
        composition.graph,
        composition.prims,
        composition.part,
        composition.kernels,
        shown,
        "inplace_epilogue" in plan.recipes,
        DEVICES[backend],
        nano_context(captured).symbolic,
        names,
    ).text()
    lines = [*(["graphed"] if replay else []), *host.held, *host.lines]
    return "\n".join(lines) + "\n", any(host.inplace.values())


def registers(kernel: Kernel, listing: Mapping[Any, str]) -> dict[int, str]:
    """Instruction → the name of its value; a slice has the slice's name. The listing names primitives and views."""
    result: dict[int, str] = {}
    taken: set[str] = set()
    unnamed = 0
    for instr in kernel.instrs:
        is_part = instr.view is not None and any(
            step.method in ("slice", "select") for step in instr.view.steps
        )
        value = listing.get(instr.view) or ("" if is_part else listing.get(instr.prim, ""))
        name = f"e{value[1:]}" if value.startswith("v") else f"e{value}"
        if not value or name in taken:
            name, unnamed = f"a{unnamed}", unnamed + 1
        taken.add(name)
        result[instr.id] = name
    return result


def _triton(
    kernel: Kernel,
    schedule: Schedule,
    inputs: list[str],
    outputs: list[str],
    values: Mapping[int, str],
    more: Callable[[str, int], str],
) -> list[str]:
    parts, buffers = triton.functions(kernel, expect(schedule, TritonSchedule), plain=True)
    memory = {
        **_memory(inputs, outputs),
        **{f"part_{kind}": more(kind, count) for kind, count in buffers.items()},
    }
    lines = []
    for part in parts:
        body = part.text.split("\n")[2:]
        lines += [
            f"{part.name}[{part.grid!r}, {part.warps}]:",
            *(_respelled(line, values, memory, "triton") for line in body),
        ]
    return lines


def _cpp(
    kernel: Kernel,
    schedule: Schedule,
    inputs: list[str],
    outputs: list[str],
    values: Mapping[int, str],
    more: Callable[[str, int], str],
) -> list[str]:
    del more
    loops = expect(schedule, CppLoops)
    with as_cpp():
        lines = NanoCppWriter(kernel, loops, {}).function().split("\n")
    wide = " wide" if loops.width == 256 else ""
    return [
        f"{kernel.name}{wide}:",
        *(_respelled(line, values, _memory(inputs, outputs), "cpp") for line in lines[1:-1]),
    ]


def _memory(inputs: list[str], outputs: list[str]) -> dict[str, str]:
    return {
        **{f"a{n}": name for n, name in enumerate(inputs)},
        **{f"o{n}": name for n, name in enumerate(outputs)},
    }


_MEMORY = r"(?P<memory>(?:[ao]\d+|part_[a-z]+\d+)\b)"
_WORDS = {
    "triton": re.compile(
        rf"(?<![\w.])(?:{_MEMORY}|v(?P<value>\d+)\b|"
        r"(?P<kind>acc|gap|top|[kgpqt])(?P<of>\d+)(?:_(?P<second>\d+))?(?P<end>mask|_n\d+)?\b)"
    ),
    "cpp": re.compile(
        rf"(?<![\w.])(?:{_MEMORY}|v(?P<value>\d+)\b|(?P<kind>nan|b)(?P<of>\d+)\b(?P<second>)(?P<end>))"
    ),
}
"""Identifiers that the renderers number: memory, values, and variables of a value."""


def _respelled(
    line: str, values: Mapping[int, str], memory: Mapping[str, str], backend: str
) -> str:
    """Rename a renderer's line to the listing's names."""

    def word(match: re.Match[str]) -> str:
        if match["memory"]:
            return memory[match["memory"]]
        if match["value"]:
            return values[int(match["value"])]
        parts = [
            match["kind"],
            values[int(match["of"])],
            *([values[int(match["second"])]] if match["second"] else []),
        ]
        return "_".join([*parts, *([match["end"].lstrip("_")] if match["end"] else [])])

    return _WORDS[backend].sub(word, line)


__all__ = ["DEVICES", "NanoContext", "fused", "nano_context", "write", "written"]
