"""Compact texts as programs that run in this process, many compiled at once; used by the tests of the dialect."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
import re
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from dvk.composer.capture.export import CapturedGraph, trace_module
from dvk.composer.codegen import cpp
from dvk.composer.runtime import cpp_load, nano, strided
from dvk.nanolang import frame
from dvk.nanolang.listing.symbolic import Names
from dvk.nanolang.text.assemble import assemble, tree_names
from dvk.nanolang.text.expand import expand
from dvk.records import BackendName, Task
from tests.composer.programs import Function, poisoned, run_source

_numbers = itertools.count()
_folder = tempfile.TemporaryDirectory()


def captured(model: nn.Module, args: list[Any], names: list[str] | None = None) -> CapturedGraph:
    """The graph of a live module."""
    if isinstance(model, Function):
        names = [f"x{n}" for n in range(len(args))]
    names = names or list(inspect.signature(model.forward).parameters)[: len(args)]
    return trace_module(model, args, names)


class CppText:
    """A compact C++ text about a live module."""

    def __init__(self, model: nn.Module, graph: CapturedGraph, text: str):
        self.model, self.graph = model, graph
        self.prefix = f"m{next(_numbers)}_"
        whole = expand(graph, text, "cpp")
        native, self.python, self.kernels = whole.native, whole.python, whole.kernels
        self.sizes = Names(graph.graph).values
        numbers = "".join(f"constexpr long {n} = {v};\n" for n, v in self.sizes.items())
        for name in self.kernels:
            native = re.sub(rf"\b{name}\(", f"{self.prefix}{name}(", native)
        self.native = f'namespace {self.prefix} {{\n{numbers}extern "C" {{\n{native}\n}} }}\n'
        self.library: Any = None

    def run(self, *args: Any) -> Any:
        """What `run` returns."""
        import ast

        space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, **self.sizes}
        space.update(
            {
                "strided": strided.dvk_strided,
                "nhwc": nano.dvk_nhwc,
                "held": nano.dvk_held,
                "poisoned": poisoned,
            }
        )
        for name, count in self.kernels.items():
            space[name] = nano.dvk_function(getattr(self.library, self.prefix + name), count)
        # New memory starts as poison, so that an element that no kernel writes shows.
        text = re.sub(r"= (torch|\w+)\.((?:new_)?empty\w*)\(", r"= poisoned(\1.\2, ", self.python)
        assert "run" in tree_names(ast.parse(text))
        exec(compile(text, "<text>", "exec"), space)
        nodes = {n.name: n for n in self.graph.graph.nodes}
        given = iter(args)
        inputs = {n.name: next(given) for n in self.graph.graph.nodes if n.op == "input"}
        values = []
        for name in inspect.signature(space["run"]).parameters:
            node = nodes[name]
            if node.op == "input":
                values.append(inputs[name])
            elif node.target is not None:
                values.append(functools.reduce(getattr, node.target.split("."), self.model))
            else:
                values.append(
                    torch.tensor(node.kwargs["data"], dtype=getattr(torch, str(node.dtype)))
                )
        with torch.no_grad():
            return space["run"](*values)


def compiled(texts: Iterable[CppText]) -> list[CppText]:
    """The texts, ready to run, from a few runs of the compiler."""
    texts = list(texts)
    prelude = frame.cpp_prelude({})

    def library(part: list[CppText]) -> Any:
        return (
            cpp_load.dvk_compile(prelude + "\n".join(t.native for t in part), cpp.FLAGS)
            if part
            else None
        )

    parts = [texts[n::2] for n in range(2)]
    with ThreadPoolExecutor(2) as pool:
        for part, made in zip(parts, pool.map(library, parts), strict=True):
            for text in part:
                text.library = made
    return texts


def candidate(
    source: str,
    graph: CapturedGraph,
    text: str,
    backend: BackendName,
    entry: str = "Model",
    device: str = "cpu",
) -> ModuleType:
    """The assembled drop-in, imported from a file: Triton reads the source of what it compiles."""
    kind = "module" if isinstance(getattr(run_source(source), entry), type) else "function"
    task = Task(id="test", name="test", source=source, entry=entry, kind=kind, device=device)  # type: ignore[arg-type]
    made = assemble(task, graph, text, backend)
    path = Path(_folder.name) / f"compact_{next(_numbers)}.py"
    path.write_text(made.source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


__all__ = ["CppText", "Function", "candidate", "captured", "compiled"]
