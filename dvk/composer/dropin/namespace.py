"""Generated text above and below a user's file, in one module without name clashes.

Names that the generated text imports or defines are renamed if the file uses them otherwise; builtins that the file redefines are qualified
by their module; and the original is renamed if the generated text uses its name.
"""

from __future__ import annotations

import ast
import builtins
import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from functools import lru_cache

from dvk.composer.runtime.words import words

OWNER = "dvk_original"
"""Name of the original module or function in generated text."""
NEW = "ModelNew"
KEPT = {NEW, "replace", "dvk_replace"}
"""Public names of a drop-in."""

FIELD, WORD = re.compile(r"\{[^{}]*\}"), re.compile(r"(?<![\w.!'\"])[A-Za-z_]\w*")
"""A replacement field of an f-string on one line, and the names in it."""
BINDABLE = re.compile(r"(?<![\w.'\"`])[^\W\d]\w*")
"""A word that may bind a name: neither an attribute nor the start of a quotation."""


HERE = "# dvk: here stands the original\n"
"""Separator line of generated text: the part before it goes above the user's file, the part after it below."""


def to_the_top(source: str) -> tuple[str, str]:
    """Split a file into its imports from `__future__`, which must begin a file, and the rest, which may stand below other text."""
    if "__future__" not in source and "__doc__" not in source:
        return "", source
    tree, lines, imports = ast.parse(source), io.StringIO(source).readlines(), list[str]()
    for node in reversed(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            assert node.end_lineno is not None and node.end_col_offset is not None
            first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
            rest = last[node.end_col_offset :].decode()
            left = (
                "pass"
                if rest.strip().startswith(";")
                else "# at the top of this file:"
                if not rest.strip()
                else "#"
            )
            imports.insert(0, ast.unparse(node))
            left = f"{left} {imports[0]}" if left.endswith(":") else left
            lines[node.lineno - 1 : node.end_lineno] = [
                first[: node.col_offset].decode() + left + rest
            ]
    if "__doc__" in source and ast.get_docstring(tree) is not None:
        lines[tree.body[0].lineno - 1] = "__doc__ = " + lines[tree.body[0].lineno - 1]
    return "".join(f"{one}\n" for one in imports), "".join(lines)


def with_room(source: str, entry: str) -> str:
    """Rename a `ModelNew` in a file's text other than its entry, so that the generated class does not replace it."""
    if entry == NEW or NEW not in _origins_in(source):
        return source
    return _renamed(source, ast.parse(source), {NEW})


def surrounding_text(source: str, entry: str, generated: str) -> tuple[str, str]:
    """The generated text above and below the file, whose `entry` it calls `OWNER`."""
    theirs, used = (_origins_in(source), {entry} & set(dir(builtins)) | words(BINDABLE, generated))
    if (
        entry not in used
        and all(theirs[name] == {"torch"} == {name} for name in used & theirs.keys())
        and "*" not in theirs
    ):
        # nearly all: thousands of training programs are assembled
        return _halves(_with_own_builtins(source, generated).replace(OWNER, entry))
    tree = ast.parse(generated)
    mine = _origins(tree)
    clashing = {name for name in mine.keys() & theirs.keys() if mine[name] != theirs[name]} - KEPT
    if "*" in theirs:  # its imports follow the text above
        clashing |= {name for name in mine if not name.startswith(("_", "dvk_"))} - KEPT - {"torch"}
    if clashing:
        generated = _renamed(generated, tree, clashing)
    generated = _with_own_builtins(source, generated)
    taken = {
        *_bound(tree),
        *(node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)),
        *dir(builtins),
    }
    if entry not in taken:
        return _halves(generated.replace(OWNER, entry))
    above, below = _halves(generated)
    return above, f"{OWNER} = {entry}\n\n{below}"


def _halves(generated: str) -> tuple[str, str]:
    above, _, below = generated.rpartition(HERE)
    return above, below


@lru_cache(maxsize=64)
def names_bound_by(source: str) -> frozenset[str]:
    """Names that a file's text binds, except arguments; `*` for a star import. Empty if the text does not parse."""
    try:
        return frozenset(_bound(ast.parse(source)))
    except (SyntaxError, ValueError):
        return frozenset()


@lru_cache(maxsize=64)
def _origins_in(source: str) -> dict[str, set[str]]:
    return _origins(ast.parse(source))


def _bound(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) for name, _ in _binds(node)}


def _binds(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that a statement or target binds, with the path of an import or else the position."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name, f"line {node.lineno}"
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, f"line {node.lineno}"
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            top = alias.name.split(".")[0]
            path = (
                f"{node.module}.{alias.name}"
                if isinstance(node, ast.ImportFrom)
                else alias.name
                if alias.asname
                else top
            )
            yield alias.asname or top, path


def _origins(tree: ast.Module) -> dict[str, set[str]]:
    """Module-level names of a text with their bindings."""
    result: dict[str, set[str]] = {}
    for statement in tree.body:
        inner = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        for node in [statement] if inner else ast.walk(statement):
            for name, origin in _binds(node):
                result.setdefault(name, set()).add(origin)
    return result


def _renamed(text: str, tree: ast.Module, names: set[str]) -> str:
    """Prefix these names of the text with `dvk_`, except keywords of calls."""
    lines = io.StringIO(text).readlines()
    imports = {
        node.lineno for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    for token, before, after, inside in reversed(list(_names("".join(lines)))):
        keyword_of_call = inside and after == "=" and before in ("(", ",")
        if (
            token.string in names
            and before != "."
            and not keyword_of_call
            and token.start[0] not in imports
        ):
            _put(lines, token, f"dvk_{token.string}")
    for node in reversed(tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any(
            (alias.asname or alias.name) in names for alias in node.names
        ):
            for alias in node.names:
                bound = alias.asname or alias.name
                alias.asname = f"dvk_{bound}" if bound in names else alias.asname
            lines[node.lineno - 1 : node.end_lineno] = [f"{ast.unparse(node)}\n"]
    return "".join(lines)


def _with_own_builtins(source: str, generated: str) -> str:
    """Protect the generated text from a file that redefines builtin names (`from torch import *`)."""
    bound = names_bound_by(source)
    shadowed = {
        n for n in dir(builtins) if ("*" in bound or n in bound) and not keyword.iskeyword(n)
    } - {"super"}
    if not shadowed:
        return generated
    lines = generated.splitlines(keepends=True)
    for token, before, after, _ in reversed(list(_names(generated))):
        if token.string in shadowed and before not in (".", "import", "def") and after != "=":
            _put(lines, token, f"_dvk_builtins.{token.string}")
    return "import builtins as _dvk_builtins\n\n" + "".join(lines)


def _names(text: str) -> Iterator[tuple[tokenize.TokenInfo, str, str, bool]]:
    """Every name of a text, with the adjacent tokens, and whether it is inside brackets."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    depth = 0
    for before, token, after in zip([tokens[0], *tokens], tokens, tokens[1:], strict=False):
        depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
        if token.type == tokenize.NAME:
            yield token, before.string, after.string, depth > 0
        elif token.type == tokenize.STRING and token.string[0] in "fF":
            # Until Python 3.12 such a string is one token.
            for field in FIELD.finditer(token.string):
                for name in WORD.finditer(token.string, *field.span()):
                    yield (
                        token._replace(
                            string=name[0], start=(token.start[0], token.start[1] + name.start())
                        ),
                        "",
                        "",
                        True,
                    )


def _put(lines: list[str], token: tokenize.TokenInfo, text: str) -> None:
    row, column = token.start
    line = lines[row - 1]
    lines[row - 1] = line[:column] + text + line[column + len(token.string) :]
