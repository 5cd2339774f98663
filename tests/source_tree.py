"""The package's modules as trees: their names, imports, functions and circles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PACKAGE = TOP / "dvk"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)
TEST_FILES = sorted((TOP / "tests").rglob("*.py"))
NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def name_of(path: Path) -> str:
    """`dvk/backends/cpp.py` → `backends.cpp`; a package is its folder; `dvk/__init__.py` is ``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path, top_level_only: bool = False) -> list[tuple[str, int]]:
    """dvk modules that `path` imports, without the leading `dvk.`, with their lines.

    Type-checking imports count: a layer must not know the one above even by name.
    """
    found = []
    nodes = list(module_level(tree(path).body)) if top_level_only else list(ast.walk(tree(path)))
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("dvk.")]
            found += [(name.removeprefix("dvk."), node.lineno) for name in names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write it from dvk"
            if node.module == "dvk":
                found += [
                    (alias.name, node.lineno) for alias in node.names if alias.name in MODULES
                ]
            elif node.module and node.module.startswith("dvk."):
                base = node.module.removeprefix("dvk.")
                inner = [f"{base}.{alias.name}" for alias in node.names]
                found += [(name if name in MODULES else base, node.lineno) for name in inner]
    return found


def module_level(body: list[ast.stmt]) -> list[ast.AST]:
    """Every node that runs when the module is imported: not in functions, not under `if TYPE_CHECKING`."""
    found: list[ast.AST] = []
    queue: list[ast.AST] = list(body)
    while queue:
        node = queue.pop()
        found.append(node)
        checked = isinstance(node, ast.If) and ast.unparse(node.test) in (
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        )
        if not checked and not isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        ):
            queue += ast.iter_child_nodes(node)
    return found


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of two modules or more (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(one: str) -> None:
        order[one] = low[one] = len(order)
        stack.append(one)
        for other in sorted(edges.get(one, ())):
            if other not in order:
                visit(other)
            if other in stack:
                low[one] = min(low[one], low[other])
        if low[one] == order[one]:
            at = stack.index(one)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for one in sorted(edges):
        if one not in order:
            visit(one)
    return found


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        node
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the last, without the docstring; of a command without its signature, which lists its options."""
    assert function.end_lineno is not None
    first = function.body[0]
    if function.name == "command":
        return function.end_lineno - (first.end_lineno or first.lineno)
    said = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    return (
        function.end_lineno
        - function.lineno
        + 1
        - (first.end_lineno - first.lineno + 1 if said else 0)
    )


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Deepest block inside a function: one `if` is 1, `elif` no deeper than its `if`; inner functions count apart."""
    deepest = depth
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(
                child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            ):
                continue
            chained = (
                isinstance(node, ast.If)
                and name == "orelse"
                and len(node.orelse) == 1
                and isinstance(child, ast.If)
            )
            deepest = max(
                deepest, nesting(child, depth + (isinstance(child, NESTING) and not chained))
            )
    return deepest
