"""The functions and classes that travel inside drop-ins, as text by name.

The text comes from their files, not from the imported functions: those need torch, whose import takes seconds, and writing a drop-in does
not need it. Parts that serve only developers of dvk are omitted: annotations, all of a docstring except its first line, blank lines, and
line breaks before a single short statement.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from dvk.composer.runtime.words import words

FILES = (
    "facts.py",
    "guards.py",
    "reasons.py",
    "prepared.py",
    "strided.py",
    "memory.py",
    "operators.py",
    "guarded.py",
    "cpp_load.py",
    "convolution.py",
    "packed_weights.py",
    "rebuild.py",
    "finite.py",
    "going_back.py",
    "cuda_launch.py",
    "convert.py",
    "nano.py",
    "graph_replay.py",
    "lines.py",
    "training.py",
    "chunked_loss.py",
)
PREFIX = "dvk_"
NAMED = re.compile(r"\bdvk_\w+")
BLOCKS = (ast.FunctionDef, ast.ClassDef, ast.If, ast.For, ast.While, ast.With, ast.Try)
WIDTH = 120
FOR_CHECKERS = re.compile(r"  # (noqa|type: ignore)\b[^#\n]*?( - .*)?(?=  #|$)", re.MULTILINE)


@cache
def texts() -> dict[str, str]:
    """Name → source text, ending in a newline, of every function and class that drop-ins may hold."""
    found: dict[str, str] = {}
    for name in FILES:
        text = (Path(__file__).parent / name).read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        found |= {
            node.name: _short(node, lines)
            for node in ast.parse(text).body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name.startswith(PREFIX)
        }
    return found


def text(names: Iterable[str]) -> str:
    """The source of these, one below the other."""
    return "\n".join(texts()[name] for name in names)


def named(text: str) -> list[str]:
    """The functions and classes that a text names."""
    used = words(NAMED, text)
    return [name for name in texts() if name in used]


def needed(text: str) -> list[str]:
    """The functions and classes that a text names, and their dependencies."""
    found: set[str] = set()
    while more := set(named(text)) - found:
        found |= more
        text = "\n".join(texts()[name] for name in more)
    return [name for name in texts() if name in found]


def _short(node: ast.FunctionDef | ast.ClassDef, lines: list[str]) -> str:
    """The source of a function or class of a file, without the parts for developers."""
    kept = [line.encode() for line in lines]
    for (row, column), (end_row, end_column), instead in sorted(_left_out(node), reverse=True):
        tail = kept[end_row - 1][end_column:]
        kept[row - 1 : end_row] = [
            kept[row - 1][:column] + instead.encode() + tail,
            *[b""] * (end_row - row),
        ]
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    whole = FOR_CHECKERS.sub("", b"".join(kept[first - 1 : node.end_lineno]).decode())
    return _joined("".join(line for line in whole.splitlines(keepends=True) if line.strip()))


def _joined(text: str) -> str:
    """Join blocks of one short statement with the line of their head."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        for block in (getattr(node, name, ()) for name in ("body", "orelse", "finalbody")):
            if (
                not isinstance(block, list)
                or len(block) != 1
                or isinstance(block[0], BLOCKS)
                or block[0].lineno != block[0].end_lineno
            ):
                continue
            head, statement = (
                lines[block[0].lineno - 2].rstrip(),
                lines[block[0].lineno - 1].strip(),
            )
            if (
                head.endswith(":")
                and "#" not in head + statement
                and len(head) + len(statement) < WIDTH
            ):
                lines[block[0].lineno - 2 : block[0].lineno] = ["", f"{head} {statement}\n"]
    return "".join(lines)


Place = tuple[int, int]


def _left_out(node: ast.AST) -> Iterator[tuple[Place, Place, str]]:
    """The start and end of each omitted part, in lines and bytes, and its replacement."""
    for inner in ast.walk(node):
        if (
            isinstance(inner, (ast.FunctionDef, ast.ClassDef))
            and (told := ast.get_docstring(inner)) is not None
        ):
            yield (*_ends(inner.body[0]), f'"""{told.splitlines()[0]}"""')
        if isinstance(inner, ast.FunctionDef) and inner.returns is not None:
            (row, column), end = _ends(inner.returns)
            yield (row, column - len(" -> ")), end, ""
        if isinstance(inner, ast.FunctionDef):
            every = [
                *inner.args.posonlyargs,
                *inner.args.args,
                inner.args.vararg,
                *inner.args.kwonlyargs,
                inner.args.kwarg,
            ]
            given = [
                *(
                    [None]
                    * (len(every) - 2 - len(inner.args.kwonlyargs) - len(inner.args.defaults))
                ),
                *inner.args.defaults,
                None,
                *inner.args.kw_defaults,
                None,
            ]
            for arg, default in zip(every, given, strict=True):
                if arg is not None and arg.annotation is not None:
                    end = _ends(arg.annotation)[1] if default is None else _ends(default)[0]
                    yield (
                        (arg.lineno, arg.col_offset + len(arg.arg.encode())),
                        end,
                        "" if default is None else "=",
                    )
        if isinstance(inner, ast.AnnAssign) and inner.value is not None:
            yield _ends(inner.target)[1], _ends(inner.annotation)[1], ""


def _ends(node: ast.AST) -> tuple[Place, Place]:
    place = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    return place[:2], place[2:]
