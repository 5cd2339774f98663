"""Solution: source files, an entry point, and how it is built and called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from dvk.errors import UsageError
from dvk.interop.flashinfer.fields import Fields

LANGUAGES = {
    "python": "python",
    "pytorch": "python",
    "triton": "triton",
    "cpp": "cpp",
    "cuda": "cuda",
    "cuda_cpp": "cuda",
}
"""Languages of both projects that dvk judges → FlashInfer-Bench's name."""
PYTHON = ("python", "triton")


class UnsupportedSolution(UsageError):
    """A solution that follows the schema, in a language or binding that dvk does not judge."""


@dataclass(frozen=True)
class Solution:
    """An implementation of a definition."""

    name: str
    definition: str
    author: str
    language: str
    """One of the values of LANGUAGES."""
    file: str
    symbol: str
    """The entry point: a file among the sources, and a function of it."""
    writes_outputs: bool
    """Destination passing: outputs are the last arguments, and are written."""
    sources: dict[str, str]
    flags: dict[str, tuple[str, ...]]
    """Compiler options: cflags, cuda_cflags, ld_flags."""
    raw: dict[str, Any]


def read_solution(value: Any, where: str) -> Solution:
    """A solution from its JSON.

    Raises:
        UnsupportedSolution: it is in a language or binding that dvk does not judge.
        UsageError: it does not follow the schema.
    """
    fields = Fields(value, where)
    name = fields.text("name")
    fields.where = f"solution `{name}`"
    spec = Fields(fields.mapping("spec"), f"the spec of {fields.where}")
    language = _language(spec)
    entry = spec.text("entry_point")
    if entry.count("::") != 1 or not all(entry.split("::")):
        raise spec.error(
            f"has the entry point `{entry}`", "write file::function, as in main.py::run"
        )
    file, _, symbol = entry.partition("::")
    sources = _sources(fields)
    if file not in sources:
        raise fields.error(f"has no source `{file}`, where its entry point is")
    if (language in PYTHON) != file.endswith(".py"):
        raise spec.error(f"is {language}, and its entry point is in `{file}`")
    if not symbol.isidentifier():
        raise spec.error(f"has the entry point `{symbol}`, which is no function's name")
    writes = spec.value.get("destination_passing_style", True)
    if not isinstance(writes, bool):
        raise spec.error("has a destination_passing_style that is neither true nor false")
    flags = Fields(spec.value.get("compile_options") or {}, f"compile_options of {fields.where}")
    return Solution(
        name=name,
        definition=fields.text("definition"),
        author=fields.text("author"),
        language=language,
        file=file,
        symbol=symbol,
        writes_outputs=writes,
        sources=sources,
        flags={kind: flags.texts(kind) for kind in ("cflags", "cuda_cflags", "ld_flags")},
        raw=fields.value,
    )


def _language(spec: Fields) -> str:
    """FlashInfer-Bench's `language`, or the only one of SOL-ExecBench's `languages`."""
    many = spec.texts("languages")
    names = many or (spec.text("language"),)
    known = {LANGUAGES[name] for name in names if name in LANGUAGES}
    if unknown := [name for name in names if name not in LANGUAGES]:
        raise UnsupportedSolution(
            f"{spec.where} is in {unknown[0]}, which dvk does not judge",
            f"dvk judges {', '.join(sorted(set(LANGUAGES)))}",
        )
    language = "triton" if known == {"python", "triton"} else known.pop()
    binding = spec.value.get("binding") or ("torch" if many else None)
    if language not in PYTHON and binding != "torch":
        raise UnsupportedSolution(
            f"{spec.where} has the binding {binding or 'tvm-ffi (the default of its language)'}, which dvk does not build",
            'dvk builds C++ and CUDA as PyTorch extensions: "binding": "torch"',
        )
    return language


def _sources(fields: Fields) -> dict[str, str]:
    listed = fields.value.get("sources")
    if not isinstance(listed, list) or not listed:
        raise fields.error("has no list `sources`")
    found: dict[str, str] = {}
    for value in listed:
        one = Fields(value, f"a source of {fields.where}")
        path = one.text("path")
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts:
            raise one.error(f"has the path `{path}`", "paths are relative, without ..")
        if path in found:
            raise fields.error(f"has two sources `{path}`")
        found[path] = one.text("content")
    return found
