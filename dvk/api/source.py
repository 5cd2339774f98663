"""Python source text of live classes and functions, for another process to define the same ones.

What can be imported is imported. What cannot (defined in a script, a notebook cell, a session or inside a function) is written
out: its own source, and whatever that reads of its globals and its closure, with the values that these have now. A script's other
statements are not repeated, so its text can be run without running the script.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import math
import os
import symtable
import sys
import textwrap
from collections.abc import Iterator
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from dvk.api.importing import import_path, importable, root_of

MAX_LITERAL = 400
"""Longest constant in the text, in characters; longer ones travel with the weights."""
ATOMS = (bool, int, str, bytes, type(None))


class NoSource(Exception):
    """No source text exists, or it differs from the object; the message says why."""


class Text:
    """The text so far: imports, definitions in an executable order, and values that text cannot hold.

    Attributes:
        imports: statements.
        definitions: statements that follow them.
        values: global name → value, for what has no text.
        roots: folders outside Python's own that are imported from.
    """

    def __init__(self) -> None:
        self.imports: list[str] = []
        self.definitions: list[str] = []
        self.values: dict[str, Any] = {}
        self.roots: list[str] = []
        self.bound: dict[str, Any] = {"os": os, "sys": sys, "torch": torch}
        self._defined: dict[int, str] = {}
        self._held: list[Any] = []

    def bind(self, name: str, value: Any) -> None:
        """Bind the global `name` to `value`.

        Raises:
            NoSource: the name stands for something else already, or the value has no source.
        """
        if name in self.bound:
            if self.bound[name] is not value and not (
                type(value) in ATOMS and self.bound[name] == value
            ):
                raise NoSource(f"two different things in it are called `{name}`")
            return
        self.bound[name] = value
        if isinstance(value, ModuleType):
            self._import_module(name, value)
        elif value is None:
            self.definitions.append(f"{name} = None")
        elif (path := import_path(value)) is not None:
            self.needs(path[0])
            first, _, rest = path[1].partition(".")
            self.imports.append(
                f"from {path[0]} import {first}"
                + (f" as {name}" if name != first and not rest else "")
            )
            if rest:
                self.definitions.append(f"{name} = {path[1]}")
        elif isinstance(value, (type, FunctionType)):
            if (own := self.define(value)) != name:
                self.definitions.append(f"{name} = {own}")
        elif (text := literal(value)) is not None:
            self.definitions.append(f"{name} = {text}")
        else:
            self.values[name] = value

    def define(self, value: Any) -> str:
        """Return the global name under which the text defines a class or function that cannot be imported.

        Raises:
            NoSource: see `bind`.
        """
        if id(value) in self._defined:
            return self._defined[id(value)]
        source = Source.of(value)
        name = source.name or f"lambda_{len(self._defined)}"
        if self.bound.setdefault(name, value) is not value:
            raise NoSource(f"two different things in it are called `{name}`")
        self._defined[id(value)] = name
        self._held.append(value)
        for used in sorted(source.reads()):
            if used != name and used in source.namespace:
                self.bind(used, source.namespace[used])
        self.definitions.append(source.text if source.name else f"{name} = {source.text}")
        self.definitions += source.changes()
        if getattr(value, "__qualname__", name) != (
            source.name or "<lambda>"
        ):  # drop-ins know what a module holds by these names
            self.definitions.append(f"{name}.__qualname__ = {value.__qualname__!r}")
        return name

    def needs(self, module: str) -> None:
        """Whether the text, or what travels with it, imports from this module."""
        root = root_of(module)
        if root is not None and root not in self.roots:
            self.roots.append(root)

    def _import_module(self, name: str, module: ModuleType) -> None:
        if not importable(module.__name__):
            raise NoSource(f"`{name}` is a module that cannot be imported")
        self.needs(module.__name__)
        plain = name == module.__name__
        self.imports.append(f"import {module.__name__}" + ("" if plain else f" as {name}"))


class Source:
    """Source location of a class or function.

    Attributes:
        name: what it is called there; empty for a lambda.
        text: its statement, or the expression of a lambda.
        namespace: the globals it reads, and what its closure holds.
    """

    def __init__(
        self, value: Any, name: str, node: ast.AST, file_text: str, namespace: dict[str, Any]
    ):
        self.value, self.name, self.node, self.namespace = value, name, node, namespace
        self.text = (
            ast.get_source_segment(file_text, node) or "" if not name else segment(file_text, node)
        )

    @staticmethod
    def of(value: Any) -> Source:
        """Raise NoSource if it has no source, or has been changed since it was read."""
        return _of_class(value) if isinstance(value, type) else _of_function(value)

    def reads(self) -> set[str]:
        """Return global names that the text reads."""
        names: set[str] = set()
        tables = [symtable.symtable(self.text, "<text>", "exec")]
        while tables:
            table = tables.pop()
            top = table.get_type() == "module"
            names |= {
                s.get_name()
                for s in table.get_symbols()
                if s.is_referenced() and (top or s.is_global())
            }
            tables += table.get_children()
        return {name for name in names if not hasattr(builtins, name) or name in self.namespace}

    def changes(self) -> Iterator[str]:
        """Return statements that set class attributes whose values differ from those in the text.

        Raises:
            NoSource: such a value has no text.
        """
        if not isinstance(self.value, type) or not isinstance(self.node, ast.ClassDef):
            return
        written = _assigned(self.node)
        for key, value in vars(self.value).items():
            if (
                key.startswith("__")
                or callable(value)
                or hasattr(value, "__get__")
                or key == "_abc_impl"
            ):
                continue
            if key in written and (written[key] is None or _literally(written[key], value)):
                continue
            if (text := literal(value)) is None:
                raise NoSource(f"`{self.name}.{key}` was set after the class was defined")
            yield f"{self.name}.{key} = {text}"


class _File:
    """Return the text of the file, or cell, that a function was compiled from."""

    def __init__(self, name: str, namespace: dict[str, Any]):
        self.text = "".join(linecache.getlines(name, namespace))
        if not self.text:
            raise NoSource(
                "its source is not known to Python, as of what is typed into a plain session"
            )
        try:
            self.tree = ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError):
            raise NoSource("its source is not known to Python") from None

    @cached_property
    def codes(self) -> list[CodeType]:
        """Return all code objects of the file."""
        result, pending = [], [compile(self.text, "<text>", "exec", dont_inherit=True)]
        while pending:
            result.append(pending.pop())
            pending += [held for held in result[-1].co_consts if isinstance(held, CodeType)]
        return result

    def check(self, code: CodeType) -> None:
        """Raise NoSource if the text at the code's place is not what the code was compiled from."""
        if not any(_same(code, one) for one in self.codes):
            raise NoSource("its source was edited since it was imported")


def _of_function(function: FunctionType) -> Source:
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    if code is None:
        raise NoSource(f"`{getattr(function, '__name__', function)}` is not a Python function")
    file = _File(code.co_filename, inner.__globals__)
    file.check(code)
    namespace = {**inner.__globals__, **_closure(inner)}
    if code.co_name == "<lambda>":
        for node in ast.walk(file.tree):
            if (
                isinstance(node, ast.Lambda)
                and node.lineno >= code.co_firstlineno
                and _written_as(node, file, code)
            ):
                return Source(function, "", node, file.text, namespace)
        raise NoSource("the place where the lambda is written was not found")
    for node in ast.walk(file.tree):
        if (
            isinstance(node, ast.FunctionDef)
            and node.name == code.co_name
            and _first(node) == code.co_firstlineno
        ):
            return Source(function, node.name, node, file.text, namespace)
    raise NoSource(f"the place where `{code.co_name}` is defined was not found")


def _of_class(kind: type) -> Source:
    methods = [inspect.unwrap(one) for one in _functions(kind)]
    own = [one for one in methods if not one.__code__.co_filename.startswith("<string>")]
    named = [
        one
        for one in own
        if one.__qualname__ == f"{kind.__qualname__}.{one.__code__.co_name}"
        and one.__code__.co_name != "<lambda>"
    ]
    if not named:
        return _without_methods(kind, own)
    first = named[0].__code__
    file = _File(first.co_filename, named[0].__globals__)
    lines = first.co_firstlineno
    nodes = [
        node
        for node in ast.walk(file.tree)
        if isinstance(node, ast.ClassDef)
        and node.name == kind.__name__
        and node.lineno <= lines <= (node.end_lineno or 0)
    ]
    if not nodes:
        raise NoSource(f"the place where class `{kind.__name__}` is defined was not found")
    node = max(nodes, key=lambda one: one.lineno)
    for method in own:
        if (
            method.__code__.co_filename != first.co_filename
            or not node.lineno <= method.__code__.co_firstlineno <= (node.end_lineno or 0)
        ):
            raise NoSource(
                f"`{kind.__name__}.{method.__name__}` was set after the class was defined"
            )
        file.check(method.__code__)
    namespace = {**{base.__name__: base for base in kind.__bases__}, **named[0].__globals__}
    for method in own:
        namespace |= _closure(method)
    return Source(kind, kind.__name__, node, file.text, namespace)


def _without_methods(kind: type, own: list[FunctionType]) -> Source:
    """Find a class by its name alone: the only one of that name at the top of its module, or of a notebook's cells."""
    module = sys.modules.get(kind.__module__)
    names = [
        getattr(module, "__file__", None) or "",
        *(name for name in linecache.cache if not os.path.isfile(name)),
    ]
    namespace = {**{base.__name__: base for base in kind.__bases__}, **vars(module)}
    lines = []
    for name in names:
        try:
            file = _File(name, {})
        except NoSource:
            continue
        lines += [
            (node, file)
            for node in file.tree.body
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__
        ]
    if own or len({ast.dump(node) for node, _ in lines}) != 1 or kind.__qualname__ != kind.__name__:
        raise NoSource(f"class `{kind.__name__}` has no method by which its source could be found")
    return Source(kind, kind.__name__, lines[-1][0], lines[-1][1].text, namespace)


def _functions(kind: type) -> Iterator[FunctionType]:
    for value in vars(kind).values():
        held = (
            [value.fget, value.fset, value.fdel]
            if isinstance(value, property)
            else [getattr(value, "__func__", value)]
        )
        yield from (one for one in held if isinstance(one, FunctionType))


def _closure(function: FunctionType) -> dict[str, Any]:
    result = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            result[name] = cell.cell_contents
        except ValueError:  # it is empty
            continue
    result.pop("__class__", None)
    return result


def _same(one: CodeType, other: CodeType) -> bool:
    return (
        one.co_name,
        one.co_firstlineno,
        one.co_code,
        one.co_names,
        one.co_varnames,
        one.co_freevars,
    ) == (
        other.co_name,
        other.co_firstlineno,
        other.co_code,
        other.co_names,
        other.co_varnames,
        other.co_freevars,
    ) and all(
        a == b
        for a, b in zip(one.co_consts, other.co_consts)
        if not isinstance(a, (CodeType, frozenset))
    )


def _written_as(node: ast.Lambda, file: _File, code: CodeType) -> bool:
    """Whether the lambda's code matches the node, as far as it can be decided without its context."""
    text = ast.get_source_segment(file.text, node) or ""
    made = compile(f"({text})", "<text>", "eval", dont_inherit=True).co_consts
    inner = next((one for one in made if isinstance(one, CodeType)), None)
    free = set(code.co_freevars)
    return (
        inner is not None
        and inner.co_varnames == code.co_varnames
        and set(inner.co_names) == set(code.co_names) | free
        and [c for c in inner.co_consts if not isinstance(c, CodeType)]
        == [c for c in code.co_consts if not isinstance(c, CodeType)]
    )


def _first(node: ast.FunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def segment(text: str, node: ast.AST) -> str:
    """Return the whole lines of a statement, with decorators, dedented."""
    assert isinstance(node, (ast.FunctionDef, ast.ClassDef))
    return textwrap.dedent(
        "".join(text.splitlines(keepends=True)[_first(node) - 1 : node.end_lineno])
    ).rstrip()


def _assigned(node: ast.ClassDef) -> dict[str, ast.expr | None]:
    """Return names that a class body assigns, with the expression if it is a plain assignment."""
    result: dict[str, ast.expr | None] = {}
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        result |= {
            one.id: None
            for one in ast.walk(statement)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        }
        if isinstance(statement, ast.Assign):
            result |= {
                target.id: statement.value
                for target in statement.targets
                if isinstance(target, ast.Name)
            }
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            result[statement.target.id] = statement.value
    return result


def _literally(node: ast.expr | None, value: Any) -> bool:
    """Whether the expression is no constant, or has the value."""
    try:
        return bool(ast.literal_eval(node) == value) if node is not None else True
    except (ValueError, TypeError, SyntaxError):
        return True


def literal(value: Any) -> str | None:
    """Return an expression for a constant; None if there is none, or it is long."""
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    text = repr(value) if _constant(value) else None
    return text if text is not None and len(text) <= MAX_LITERAL else None


def _constant(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(_constant(one) for one in value)
    if type(value) is dict:
        return all(_constant(key) and _constant(one) for key, one in value.items())
    return type(value) in ATOMS or (type(value) is float and math.isfinite(value))


# ---------------------------------------------------------------- what can be imported
