"""The operators of a reference module, parsed from its text: for imported rows that were never captured.

An approximation of `Graph.signature` for counting and grouping, not a capture: calls in the order of the text of
`forward`, layers by their class, arithmetic by its operator; branches, loops and helper functions count once.
"""

from __future__ import annotations

import ast
import re

_ARITHMETIC = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.Mod: "remainder",
    ast.FloorDiv: "floor_divide",
}
_NOT_OPERATORS = {
    "size",
    "dim",
    "numel",
    "super",
    "len",
    "range",
    "int",
    "float",
    "tuple",
    "list",
    "shape",
    "item",
    "append",
    "print",
}
_CONTAINERS = {"sequential", "module_list", "parameter"}
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def signature(source: str, entry: str = "Model") -> tuple[str, ...]:
    """Operator names in the order of the text; empty if the text has no such class or is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found = next(
        (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == entry), None
    )
    if found is None:
        return ()
    methods = {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}
    if "forward" not in methods:
        return ()
    layers = _layers(methods["__init__"]) if "__init__" in methods else {}
    names: list[str] = []
    for statement in methods["forward"].body:
        _walk(statement, layers, names)
    return tuple(names)


def _layers(init: ast.FunctionDef) -> dict[str, list[str]]:
    """Attribute of self → the layer classes that its value constructs, in order."""
    layers: dict[str, list[str]] = {}
    for node in ast.walk(init):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            made = [call.func for call in ast.walk(node.value) if isinstance(call, ast.Call)]
            names = [
                snake(f.attr if isinstance(f, ast.Attribute) else f.id)
                for f in made
                if isinstance(f, (ast.Attribute, ast.Name))
            ]
            layers[node.targets[0].attr] = [name for name in names if name not in _CONTAINERS]
    return layers


def _walk(node: ast.AST, layers: dict[str, list[str]], names: list[str]) -> None:
    """Append operators operands first, as they are computed."""
    if isinstance(node, ast.Constant):
        return
    for child in ast.iter_child_nodes(node):
        _walk(child, layers, names)
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        names.append(_ARITHMETIC.get(type(node.op), type(node.op).__name__.lower()))
    elif isinstance(node, ast.Call):
        f = node.func
        if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == "self":
            names.extend(layers.get(f.attr, [snake(f.attr)]))
        elif isinstance(f, (ast.Attribute, ast.Name)):
            name = snake(f.attr if isinstance(f, ast.Attribute) else f.id)
            if name not in _NOT_OPERATORS:
                names.append(name)


def snake(name: str) -> str:
    """`LayerNorm` → `layer_norm`, `ReLU` → `relu`, `Conv2d` → `conv2d`: names of the functional form."""
    spelled = (
        "_".join(_CAMEL.split(name)).lower().replace("p_re_lu", "prelu").replace("re_lu", "relu")
    )
    return re.sub(r"(?<=norm)\dd$", "", spelled)
