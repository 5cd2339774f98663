"""Torch calls of a text, tried on tensors without data: what raises there, or gives another shape than the listing's, does so anywhere.

Only calls that take and give tensors are made, of functions that PyTorch itself lists as such; nothing of the text is executed. What is
not known, such as what a text's own functions return, is not judged.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from dvk.records import Node

_OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv}
_OF_NO_DATA = ("meta", "fake", "data-dependent", "not implemented")
"""In messages that say no more than that there is no data."""


class _Unknown(Exception):
    """Nothing is known of a value."""


def refused(run: ast.FunctionDef, nodes: Mapping[str, Node], sizes: Mapping[str, int]) -> tuple[str, str] | None:
    """Why a call of a program raises, or what it gives instead of what the listing says, and the name it was to have; None: none does.

    Args:
        run: the program, whose parameters are values of the listing.
        nodes: the listing's, with numbers for sizes.
        sizes: the graph's, by name.
    """
    import torch

    with torch.no_grad():
        return _Shadow(nodes, sizes, [a.arg for a in run.args.args]).of(run)


class _Shadow:
    def __init__(self, nodes: Mapping[str, Node], sizes: Mapping[str, int], params: list[str]):
        self.nodes = nodes
        self.values: dict[str, Any] = {**sizes, **{name: _shade(nodes[name]) for name in params}}

    def of(self, run: ast.FunctionDef) -> tuple[str, str] | None:
        """See `refused`."""
        for step in run.body:
            if not isinstance(step, ast.Assign) or not isinstance(step.targets[0], ast.Name):
                continue
            name = step.targets[0].id
            self.values.pop(name, None)
            try:
                made = self.value(step.value)
            except _Unknown:
                self._as_listed(name)
                continue
            except (TypeError, ValueError, IndexError, RuntimeError) as error:
                said = (str(error) or type(error).__name__).splitlines()[0]
                if isinstance(error, NotImplementedError) or any(word in said.lower() for word in _OF_NO_DATA):
                    self._as_listed(name)
                    continue
                return f"`{name} = {ast.unparse(step.value)[:80]}` raises {type(error).__name__}: {said[:160]}", name
            node = self.nodes.get(name)
            if node is not None and node.shape is not None and _is_tensor(made) and tuple(made.shape) != tuple(map(int, node.shape)):
                return f"`{name} = {ast.unparse(step.value)[:80]}` has the shape {tuple(made.shape)}, not {tuple(node.shape)}", name
            self.values[name] = made
        return None

    def _as_listed(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None and node.shape is not None and node.dtype is not None:
            self.values[name] = _shade(node)

    def value(self, node: ast.expr) -> Any:
        """What an expression is.

        Raises:
            _Unknown: that cannot be said.
        """
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id not in self.values:
                raise _Unknown
            return self.values[node.id]
        if isinstance(node, (ast.Tuple, ast.List)):
            parts = [self.value(part) for part in node.elts]
            return tuple(parts) if isinstance(node, ast.Tuple) else parts
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            return _OPERATIONS[type(node.op)](self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Subscript):
            return self.value(node.value)[self._index(node.slice)]
        if isinstance(node, ast.Attribute):
            return _typed(ast.unparse(node))
        if isinstance(node, ast.Call):
            return self._call(node)
        raise _Unknown

    def _index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self._index(part) for part in node.elts)
        if isinstance(node, ast.Slice):
            return slice(*(part and self.value(part) for part in (node.lower, node.upper, node.step)))
        return self.value(node)

    def _call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        function = _function(name)
        args: list[Any] = []
        if function is None and isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            function = _method(node.func.attr) if _is_tensor(owner) else None
            args.append(owner)
        if function is None or any(keyword.arg is None for keyword in node.keywords):
            raise _Unknown
        args += [self.value(arg) for arg in node.args]
        keywords = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        flat = [part for arg in args for part in (arg if isinstance(arg, (list, tuple)) else (arg,))]
        if "device" in keywords or not any(map(_is_tensor, flat)):
            raise _Unknown
        return function(*args, **keywords)


def _shade(node: Node) -> Any:
    import torch

    if node.shape is None or node.dtype is None:
        return None
    sizes, dtype = tuple(map(int, node.shape)), getattr(torch, node.dtype)
    if node.strides is None:
        return torch.empty(sizes, dtype=dtype, device="meta")
    return torch.empty_strided(sizes, tuple(map(int, node.strides)), dtype=dtype, device="meta")


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _typed(name: str) -> Any:
    """`torch.float32` and its like."""
    import torch

    found = getattr(torch, name.removeprefix("torch."), None) if name.startswith("torch.") and name.count(".") == 1 else None
    if not isinstance(found, (torch.dtype, torch.memory_format)):
        raise _Unknown
    return found


@cache
def _tensors_functions() -> frozenset[Any]:
    import torch

    return frozenset(torch.overrides.get_testing_overrides())


@cache
def _function(name: str) -> Callable[..., Any] | None:
    """A function of tensors by its name in texts; None where that is none."""
    import torch

    parts = name.split(".")
    if any(part.startswith("_") or not part.isidentifier() for part in parts):
        return None
    if parts[:3] == ["torch", "ops", "aten"]:
        found: Any = torch.ops.aten
        for part in parts[3:]:
            found = getattr(found, part, None)
        return found if isinstance(found, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) else None
    owners = {("torch",): torch, ("F",): torch.nn.functional, ("torch", "nn", "functional"): torch.nn.functional,
              ("torch", "linalg"): torch.linalg, ("torch", "special"): torch.special, ("torch", "fft"): torch.fft}
    owner = owners.get(tuple(parts[:-1]))
    made: Callable[..., Any] | None = getattr(owner, parts[-1], None) if owner is not None else None
    return made if made in _tensors_functions() else None


@cache
def _method(name: str) -> Callable[..., Any] | None:
    import torch

    found: Callable[..., Any] | None = None if name.startswith("_") else getattr(torch.Tensor, name, None)
    return found if found in _tensors_functions() else None


__all__ = ["refused"]
