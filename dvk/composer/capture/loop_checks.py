"""What a loop over time steps may do to be traced for two steps: checks of its text, and of the values that it meets while it is traced.

Two steps show all of them only where a step depends on tensors alone: no list, counter or iterator of Python gives another value later.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

import torch

from dvk.composer.capture.time_marks import Unfit

COPYING = ("sum", "matmul", "bmm", "mean")
"""Functions whose result is no view."""
READERS = ("select", "narrow")
PURE = (abs, float, int, len, max, min, pow, slice)
STORES = (
    "STORE_ATTR",
    "STORE_GLOBAL",
    "STORE_SUBSCR",
    "STORE_DEREF",
    "DELETE_ATTR",
    "DELETE_SUBSCR",
)
CHANGING = (
    "next",
    "append",
    "extend",
    "insert",
    "pop",
    "popleft",
    "setattr",
    "iter",
    "out",
    "inplace",
)
"""Names that a function which only computes does not use."""


def tensor(value: Any) -> Any:
    """The value, which must be a tensor.

    Raises:
        Unfit: it is something else, whose parts may differ at later steps.
    """
    if not isinstance(value, torch.Tensor):
        raise Unfit
    return value


def function(called: Any) -> Any:
    """What a step calls, which must be one of PyTorch's functions, or a short one that only computes.

    Raises:
        Unfit: it may remember something from one step to the next, or write its operand.
    """
    owner = getattr(called, "__self__", None)
    if isinstance(called, torch.nn.Module):
        parts = list(called.modules())
        plain = all(type(part).__module__.startswith("torch.nn.modules") for part in parts)
        if plain and not any(getattr(part, "inplace", False) for part in parts):
            return called
    elif isinstance(owner, torch.Tensor) or any(called is f for f in PURE):
        return called
    elif isinstance(called, (BuiltinFunctionType, FunctionType, MethodDescriptorType)):
        module = getattr(called, "__module__", None) or ""
        if module.partition(".")[0] in ("torch", "math"):
            return called
        if isinstance(called, FunctionType) and _only_computes(called):
            return called
    raise Unfit


def _only_computes(called: FunctionType) -> bool:
    """A function of the file without calls of others there, free variables, or writes."""
    code = called.__code__
    if code.co_freevars or any(i.opname in STORES for i in dis.get_instructions(code)):
        return False
    words = {*code.co_names, *(w for c in code.co_consts if isinstance(c, tuple) for w in c)}
    return not any(
        isinstance(w, str)
        and (
            w in CHANGING
            or w.endswith("_")
            or isinstance(called.__globals__.get(w), (FunctionType, list, dict))
        )
        for w in words
    )


class Checked(ast.NodeTransformer):
    """Pass what the step's number indexes, and what is called, through the checks.

    Args:
        helper: name of the object with `tensor` and `function`.
        step: name of the step's number.
    """

    def __init__(self, helper: str, step: str, lists: Iterable[str]):
        self.helper, self.step, self.lists = helper, step, set(lists)

    def _through(self, check: str, value: ast.expr) -> ast.expr:
        of = ast.Attribute(ast.Name(self.helper, ast.Load()), check, ast.Load())
        return ast.Call(of, [value], [])

    def _has_step(self, tree: ast.AST) -> bool:
        return any(isinstance(n, ast.Name) and n.id == self.step for n in ast.walk(tree))

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        indexed = self._has_step(node.slice)
        self.generic_visit(node)
        if indexed:
            node.value = self._through("tensor", node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        reads = isinstance(node.func, ast.Attribute) and node.func.attr in READERS
        indexed = reads and any(self._has_step(a) for a in node.args)
        self.generic_visit(node)
        of = node.func
        if isinstance(of, ast.Attribute) and isinstance(of.value, ast.Name):
            if of.value.id == self.helper or (of.attr == "append" and of.value.id in self.lists):
                return node
        if indexed and isinstance(of, ast.Attribute) and ast.unparse(of.value) != "torch":
            of.value = self._through("tensor", of.value)
        elif indexed and node.args:
            node.args[0] = self._through("tensor", node.args[0])
        node.func = self._through("function", of)
        return node


def check_text(body: list[ast.stmt], step: str) -> None:
    """Refuse what two steps may not show.

    Raises:
        Unfit: a branch on the step's number, an effect inside a branch, a write by a keyword, or two names for what is written in place.
    """
    every = [n for s in body for n in ast.walk(s)]
    written = {
        n.target.id
        for n in every
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }
    for node in every:
        if isinstance(node, (ast.If, ast.IfExp)):
            if _mentions(node.test, {step}) or isinstance(node, ast.If) and _acts(node):
                raise Unfit
        elif isinstance(node, (ast.BoolOp, ast.Compare)):
            if _mentions(node, {step}) or _mentions(node, written):
                raise Unfit
        elif isinstance(node, ast.Call):
            _check_call(node)
        elif isinstance(node, ast.Assign):
            if _mentions(node.value, written) and not _is_new(node.value):
                raise Unfit
            parts = [p for t in node.targets for p in (t.elts if isinstance(t, ast.Tuple) else ())]
            if len(node.targets) != 1 or not all(isinstance(p, ast.Name) for p in parts):
                raise Unfit
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and not isinstance(
            node.target, ast.Name
        ):
            raise Unfit
        elif isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.SetComp)):
            raise Unfit


def _mentions(tree: ast.AST, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(tree))


def _acts(branch: ast.If) -> bool:
    """It calls something for its effect, or writes to a place."""
    return any(
        isinstance(n, (ast.Expr, ast.AugAssign))
        or (isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
        for s in (*branch.body, *branch.orelse)
        for n in ast.walk(s)
    )


def _check_call(node: ast.Call) -> None:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    name = node.func.id if isinstance(node.func, ast.Name) else name
    if name in ("next", "pop", "iter", "setattr") or (
        name.endswith("_") and not name.endswith("__")
    ):
        raise Unfit
    if any(k.arg in (None, "out", "inplace") for k in node.keywords):
        raise Unfit
    # `F.relu(x, True)` writes x.
    function_of = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value).endswith(
        "F"
    )
    if (function_of or isinstance(node.func, ast.Name)) and any(
        isinstance(a, ast.Constant) and a.value is True for a in node.args
    ):
        raise Unfit


def _is_new(value: ast.expr) -> bool:
    """The expression's value shares no memory with its operands."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        products = value.func.attr == "einsum" and len(value.args) > 2
        return value.func.attr in COPYING or products
    return isinstance(value, (ast.BinOp, ast.UnaryOp)) and not isinstance(
        getattr(value, "op", None), ast.UAdd
    )


__all__ = ["COPYING", "READERS", "Checked", "check_text", "function", "tensor"]
