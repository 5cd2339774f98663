"""Source text for reading: coloured by pygments in six classes, generated code separated from copied code.

C++ and CUDA inside a Python string are coloured as C++. It runs nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from pygments.lexers import CppLexer, PythonLexer  # type: ignore[import-untyped]
from pygments.token import Comment, Keyword, Name, Number, Operator, String  # type: ignore[import-untyped]

from dvk.composer.dropin.namespace import to_the_top
from dvk.pipelines.report.markup import Markup, el, join, plain

CLASSES = (
    (Comment.Preproc, "k"),
    (Comment, "c"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (String, "s"),
    (Number, "n"),
    (Name.Function, "d"),
    (Name.Class, "d"),
    (Name.Decorator, "d"),
)
"""Token types → class names: c comment, k keyword, s string, n number, d definition."""

CPP = re.compile(r'#include\b|extern "C"|__global__')
QUOTED = re.compile(r"([A-Za-z]*(?:\"\"\"|'''))(.*)(\"\"\"|''')", re.DOTALL)


def highlight(source: str) -> Markup:
    """`source` as escaped spans; the text between the tags is `source` exactly, control characters apart."""
    return join(
        el("span", text, class_=kind) if kind else text
        for kind, tokens in groupby(_tokens(plain(source)), key=lambda token: _kind(token[0]))
        for text in ["".join(text for _, text in tokens)]
    )


def without_original(best: str, original: str) -> tuple[str, int]:
    """`best` with its copy of `original` replaced by one comment, and the number of replaced lines; 0 without a copy."""
    body = original.strip()
    for copy in (body, below_others(body), repr(original), repr(body)):
        if body and copy in best:
            num_lines = len(body.splitlines())
            return best.replace(
                copy, f"# … the original source, {num_lines} lines, unchanged …", 1
            ), num_lines
    return best, 0


def below_others(original: str) -> str:
    """The text as a drop-in holds it below its kernels; unchanged if it is no Python."""
    try:
        return to_the_top(original)[1]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return original


def kernels_first(best: str) -> str:
    """A drop-in's text with its kernels first: the code written for the task before its guards. Unchanged if that cannot be
    determined, or if they come first already."""
    if "Written by dvk" in best.partition("\n")[0]:
        return best
    try:
        tree = ast.parse(best)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return best
    lines, kernels = best.splitlines(keepends=True), list[str]()
    for node in reversed(tree.body):
        if not _is_kernel(node):
            continue
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]) - 1
        while (
            first
            and lines[first - 1].startswith("#")
            and not lines[first - 1].startswith(("# …", "# -"))
        ):
            first -= 1
        kernels.insert(0, "".join(lines[first : node.end_lineno]).rstrip() + "\n")
        lines[first : node.end_lineno] = []
    if not kernels:
        return best
    rest = re.sub(r"\n{4,}", "\n\n\n", "".join(lines)).lstrip("\n")
    return (
        "# ---- the kernels, first for reading\n\n"
        + "\n\n".join(kernels)
        + "\n\n# ---- what calls and guards them\n\n"
        + rest
    )


def _is_kernel(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return any("jit" in ast.unparse(one) for one in node.decorator_list)
    value = node.value if isinstance(node, ast.Assign) else None
    return (
        isinstance(value, ast.Constant)
        and isinstance(value.value, str)
        and CPP.search(value.value) is not None
    )


def _tokens(source: str) -> Iterator[tuple[Any, str]]:
    """Python tokens, with the tokens of C++ in place of a string that holds it."""
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    for is_string, run in groupby(lexer.get_tokens(source), key=lambda token: token[0] in String):
        tokens = list(run)
        text = "".join(part for _, part in tokens)
        quoted = QUOTED.fullmatch(text) if is_string and CPP.search(text) else None
        if quoted is None:
            yield from tokens
            continue
        yield String, quoted[1]
        yield from CppLexer(stripnl=False, ensurenl=False).get_tokens(quoted[2])
        yield String, quoted[3]


def _kind(token: Any) -> str:
    return next((name for kind, name in CLASSES if token in kind), "")
