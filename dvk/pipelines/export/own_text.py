"""Functions of dvk as text that needs torch alone: a definition with all that it names in dvk's files."""

from __future__ import annotations

import ast
from pathlib import Path

import dvk

PACKAGE = Path(dvk.__file__).parent


def definitions(path: Path, wanted: set[str], left_out: frozenset[str]) -> dict[str, str]:
    """Source text by name, what is needed first.

    Args:
        path: a file of dvk.
        wanted: names that it defines or imports from dvk.
        left_out: names that the reader has already.
    """
    text = path.read_text(encoding="utf-8")
    places: dict[str, ast.stmt] = {}
    imported: dict[str, Path] = {}
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            places[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                places[target.id] = node
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dvk."):
            file = PACKAGE.joinpath(*str(node.module).split(".")[1:]).with_suffix(".py")
            imported |= {alias.name: file for alias in node.names}
    found: dict[str, str] = {}

    def add(name: str) -> None:
        if name in found or name in left_out:
            return
        if name in imported:
            found.update(definitions(imported[name], {name}, left_out | set(found)))
        elif name in places:
            node = places[name]
            found[name] = ""  # a function may call itself
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name):
                    add(inner.id)
            del found[name]
            decorators = [one.lineno for one in getattr(node, "decorator_list", ())]
            first = min([node.lineno, *decorators])
            found[name] = "\n".join(text.splitlines()[first - 1 : node.end_lineno])

    for name in sorted(wanted, key=list(places).index):
        add(name)
    return found
