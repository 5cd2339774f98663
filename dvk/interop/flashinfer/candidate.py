"""A solution as a candidate's text, `ModelNew`; and a candidate that won as a solution."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from dvk.interop.flashinfer.axes import is_number, names_in
from dvk.interop.flashinfer.definition import RUN, Definition, TensorEntry
from dvk.interop.flashinfer.solution import PYTHON, Solution
from dvk.interop.flashinfer.task_text import RETURNED

AUTHOR = "dvk"
ENTRY = "dvk_run"
"""The function of a winner's file: drop-ins hold the reference code, whose `run` they may call."""
_OWN = re.compile(r"^(?:class|def)\s+ModelNew\b|^ModelNew\s*=", re.MULTILINE)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)".*$', re.MULTILINE)
_CUDA, _CPP = (".cu",), (".cpp", ".cc", ".cxx", ".c")

_PACKAGE = '''
def _dvk_imported(files, entry):
    """Import the entry file of a package made of these files."""
    import importlib
    import os
    import sys
    import tempfile

    root = tempfile.mkdtemp(prefix="dvk_solution_")
    package = os.path.basename(root)
    for path, text in files.items():
        place = os.path.join(root, package, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)
    sys.path[:0] = [root, os.path.join(root, package)]
    return importlib.import_module(f"{package}.{entry}")
'''


def candidate_text(solution: Solution, definition: Definition) -> str:
    """The candidate: the solution's code, and a `ModelNew` that calls its entry point and allocates outputs that it writes."""
    if solution.language not in PYTHON:
        code = _extension(solution)
    elif len(solution.sources) == 1 and not _OWN.search(next(iter(solution.sources.values()))):
        code = (
            f"{next(iter(solution.sources.values())).rstrip()}\n\n\n_dvk_run = {solution.symbol}\n"
        )
    else:
        code = _package(solution)
    names = ", ".join(entry.name for entry in definition.inputs)
    if solution.writes_outputs:
        body = [
            *_allocated(definition),
            f"_dvk_run({names}, {', '.join(entry.name for entry in definition.outputs)})",
            f"return _dvk_outputs(({', '.join(map(_result, definition.outputs))},))",
        ]
    else:
        body = [f"return _dvk_outputs(_dvk_run({names}))"]
    lines = [
        code,
        "import torch as _dvk_torch",
        "",
        RETURNED.format(names=[entry.name for entry in definition.outputs]),
        "",
        "class ModelNew(_dvk_torch.nn.Module):",
        f"    def forward(self, {names}):",
        *(f"        {line}" for line in body),
        "",
    ]
    return "\n".join(lines)


def _allocated(definition: Definition) -> list[str]:
    """Statements that make the outputs, with sizes read from the inputs."""
    first = next(entry.name for entry in definition.inputs if entry.shape is not None)
    lines = []
    for entry in definition.outputs:
        dims = "".join(f"{_size(definition, axis)}, " for axis in entry.shape or ())
        lines.append(
            f"{entry.name} = _dvk_torch.empty(({dims}), dtype=_dvk_torch.{entry.dtype}, device={first}.device)"
        )
    return lines


def _size(definition: Definition, name: str) -> str:
    """Python text of an axis's size."""
    if is_number(name):
        return str(int(name))
    axis = definition.axes[name]
    if axis.kind == "const":
        return str(axis.value)
    if axis.kind == "var":
        entry, dimension = definition.bindings[name]
        return f"{entry}.shape[{dimension}]"
    tree = ast.parse(axis.expression, mode="eval")
    parts = {
        one: ast.parse(_size(definition, one), mode="eval").body
        for one in names_in(axis.expression)
    }
    return f"int({ast.unparse(_Named(parts).visit(tree))})"


class _Named(ast.NodeTransformer):
    """Replaces names by expressions."""

    def __init__(self, parts: Mapping[str, ast.expr]):
        self._parts = parts

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """See `ast.NodeTransformer`."""
        return self._parts.get(node.id, node)


def _result(entry: TensorEntry) -> str:
    return entry.name if entry.shape is not None else f"{entry.name}.item()"


def _package(solution: Solution) -> str:
    entry = ".".join(PurePosixPath(solution.file).with_suffix("").parts)
    files = "".join(f"    {path!r}: {_quoted(text)},\n" for path, text in solution.sources.items())
    return (
        f"_dvk_files = {{\n{files}}}\n{_PACKAGE}\n\n"
        f"_dvk_run = getattr(_dvk_imported(_dvk_files, {entry!r}), {solution.symbol!r})\n"
    )


def _quoted(text: str) -> str:
    """A literal that keeps lines apart where it can, so that the judge can read what it imports."""
    plain = "'''" not in text and not text.endswith(("'", "\\"))
    return f"r'''{text}'''" if plain else repr(text)


def _extension(solution: Solution) -> str:
    """A PyTorch extension of all its sources; headers that it brings are put in place of their includes."""
    cpp = [_included(solution, path, set()) for path in solution.sources if path.endswith(_CPP)]
    cuda = [_included(solution, path, set()) for path in solution.sources if path.endswith(_CUDA)]
    name = re.sub(r"\W+", "_", solution.name)
    flags = solution.flags
    on_gpu = (
        f"""
        cuda_sources=[{", ".join(map(_quoted, cuda))}],
        extra_cuda_cflags={list(flags["cuda_cflags"])!r},"""
        if solution.language == "cuda"
        else ""
    )
    return f"""from torch.utils.cpp_extension import load_inline

_dvk_run = getattr(
    load_inline(
        {f"dvk_{name}"!r},
        cpp_sources=[{", ".join(map(_quoted, cpp)) or "''"}],{on_gpu}
        extra_cflags={list(flags["cflags"]) or ["-O3"]!r},
        extra_ldflags={list(flags["ld_flags"])!r},
    ),
    {solution.symbol!r},
)
"""


def _included(solution: Solution, path: str, seen: set[str]) -> str:
    seen.add(path)

    def put(match: re.Match[str]) -> str:
        beside = str(PurePosixPath(path).parent / match[1])
        found = next((one for one in (beside, match[1]) if one in solution.sources), None)
        if found is None:
            return match[0]
        return "" if found in seen else _included(solution, found, seen)

    text = solution.sources[path]
    return _INCLUDE.sub(put, text).replace("#pragma once", "")


# ------------------------------------------------------------------ winners as solutions


def run_text(source: str, definition: Definition) -> str:
    """A candidate's text as a source file with the function ENTRY."""
    names = ", ".join(entry.name for entry in definition.inputs)
    return f"""{re.sub(r"ModelNew", "DvkKernels", source).rstrip()}


_dvk_kernels = None


def {ENTRY}({names}):
    global _dvk_kernels
    if _dvk_kernels is None:
        _dvk_kernels = DvkKernels()
    return _dvk_kernels({names})
"""


def solution_json(
    name: str,
    definition: Definition,
    winners: Mapping[tuple[int, ...], tuple[str, str]],
    hardware: str,
    description: str,
) -> dict[str, Any]:
    """The solution of a definition's winners; other sizes go to the reference code.

    Args:
        winners: sizes of the variable axes, in the order of `Definition.bindings` → a candidate's text and its back end.
    """
    names = ", ".join(entry.name for entry in definition.inputs)
    texts = [run_text(source, definition) for source, _ in winners.values()]
    key = "".join(f"{entry}.shape[{d}], " for entry, d in definition.bindings.values())
    files = {f"at_{number}.py": text for number, text in enumerate(texts, start=1)}
    table = "".join(f"    {sizes!r}: at_{n}.{ENTRY},\n" for n, sizes in enumerate(winners, start=1))
    main = f"""from . import {", ".join(f"at_{n}" for n in range(1, len(texts) + 1))}, reference

AT = {{
{table}}}


def run({names}):
    return AT.get(({key}), reference.run)({names})
"""
    if not definition.bindings:
        files, main = {}, texts[0]
    sources = {
        "main.py": main,
        **files,
        **({"reference.py": definition.reference} if files else {}),
    }
    triton = any(backend == "triton" for _, backend in winners.values())
    return {
        "name": name,
        "definition": definition.name,
        "author": AUTHOR,
        "spec": {
            "language": "triton" if triton else "python",
            "target_hardware": [hardware],
            "entry_point": f"main.py::{RUN if files else ENTRY}",
            "dependencies": ["torch", *(["triton"] if triton else [])],
            "destination_passing_style": False,
        },
        "sources": [{"path": path, "content": text} for path, text in sources.items()],
        "description": description,
    }
