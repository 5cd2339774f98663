"""Loops over time steps, traced for two steps instead of all.

    for t in range(x.shape[1]):
        h = a[:, t] * h + x[:, t]
        ys.append(h)

A loop of 2,048 steps would become tens of thousands of operators, minutes of tracing and as many kernels. While a module is exported, the
code of such a loop is replaced: its body runs twice, and marks (the operator `dvk::mark`) tell which values a step passes to the next one
and which it collects. `rolled` makes one operator of what was traced (`dvk.composer.ir.time_scan`).

It covers straight code (and `if` on what is not the step) that uses the step's number in subscripts alone, passes tensors by name, and
collects results by `list.append` or by writing all of `out[:, t]`.
"""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import torch

from dvk.composer.capture import loop_checks
from dvk.composer.capture.loop_checks import COPYING, READERS, Checked, check_text
from dvk.composer.capture.statement_runs import definition
from dvk.composer.capture.time_marks import CARRY, LAST, OUT, Unfit
from dvk.composer.ir.errors import CannotCompose

HELPER = "_dvk_time_loop"
"""Global name of `Shortened` while the changed code runs."""
LEAST = 16
"""Steps from which a loop is shortened."""
FRESH = ("zeros", "empty", "zeros_like", "empty_like", "new_zeros", "new_empty")

_libraries: list[torch.library.Library] = []


class Shortened:
    """One loop while its two steps are traced."""

    def __init__(self, found: list[range], steps: Any):
        self.steps, self.number = steps, len(found)
        self.is_long = isinstance(steps, range) and len(steps) >= LEAST
        if self.is_long:
            found.append(steps)
        self.rows: dict[int, list[torch.Tensor]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self.steps[:2])

    def _mark(self, value: Any, role: int, number: int) -> Any:
        if not isinstance(value, torch.Tensor):
            raise Unfit
        return torch.ops.dvk.mark(value, self.number, role, number)

    tensor = staticmethod(loop_checks.tensor)
    function = staticmethod(loop_checks.function)

    def carry(self, number: int, value: Any) -> Any:
        return self._mark(value, CARRY, number)

    def out(self, number: int, value: Any) -> Any:
        return self._mark(value, OUT, number)

    def last(self, number: int, value: Any) -> Any:
        return self._mark(value, LAST, number)

    def row(self, number: int, value: Any) -> None:
        """Collect what the loop writes to a place of a tensor."""
        self.rows.setdefault(number, []).append(self._mark(value, OUT, number))

    def extend(self, values: list[Any]) -> None:
        """Stand-ins for what the other steps append."""
        if not isinstance(values, list) or len(values) != 2:
            raise Unfit
        values.extend([values[-1]] * (len(self.steps) - 2))

    def filled(self, number: int, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """The tensor that all steps have written."""
        rows = self.rows[number]
        if len(rows) != 2 or self.steps != range(tensor.shape[dim]):
            raise Unfit
        made = torch.stack([*rows, *([rows[-1]] * (len(self.steps) - 2))], dim)
        if made.shape != tensor.shape:
            raise Unfit
        return made.to(tensor.dtype) if made.dtype != tensor.dtype else made


def _register() -> None:
    if _libraries:
        return
    library = torch.library.Library("dvk", "FRAGMENT")
    library.define("mark(Tensor x, int loop, int role, int number) -> Tensor")
    library.impl("mark", lambda x, loop, role, number: x.clone(), "CompositeExplicitAutograd")
    library.impl("mark", lambda x, loop, role, number: x.clone(), "Meta")
    _libraries.append(library)


@contextmanager
def shortened(model: torch.nn.Module, found: list[range], wanted: bool = True) -> Iterator[None]:
    """Shorten the loops in the methods of the model's own classes during the block.

    Args:
        found: receives the steps of the loops that are traced.

    Raises:
        Unfit: a capture with a shortened loop failed.
    """
    codes = {f: code for f in _functions(model) if (code := _changed(f))} if wanted else {}
    before = {function: function.__code__ for function in codes}
    try:
        for function, code in codes.items():
            _register()
            function.__code__ = code
            function.__globals__[HELPER] = lambda steps: Shortened(found, steps)
        yield
    except CannotCompose as error:
        if found and wanted:
            raise Unfit from error
        raise
    finally:
        for function, code in before.items():
            function.__code__ = code
            function.__globals__.pop(HELPER, None)


def _functions(model: torch.nn.Module) -> list[FunctionType]:
    """Methods of the classes that are not torch's, and functions next to them, with a loop over a range."""
    kinds = {kind for part in model.modules() for kind in type(part).__mro__}
    methods = {
        method
        for kind in kinds
        if kind.__module__.partition(".")[0] not in ("torch", "builtins")
        for method in vars(kind).values()
        if isinstance(method, FunctionType)
    }
    near = {
        f.__globals__.get(name)
        for f in methods
        for name in f.__code__.co_names
        if _is_function(f, name)
    }
    every = methods | {f for f in near if isinstance(f, FunctionType)}
    return [f for f in every if not f.__code__.co_freevars and "range" in f.__code__.co_names]


def _is_function(of: FunctionType, name: str) -> bool:
    """A function of the same file has this name."""
    found = of.__globals__.get(name)
    return isinstance(found, FunctionType) and found.__globals__ is of.__globals__


def _changed(function: FunctionType) -> CodeType | None:
    """The function's code with its loops shortened; None if it has none."""
    found = definition(function.__code__)
    if found is None:
        return None
    whole, _ = found
    whole.decorator_list = []
    private = any(
        isinstance(n, ast.Attribute) and n.attr.startswith("__") and not n.attr.endswith("__")
        for n in ast.walk(whole)
    )
    if private or not _shorten(whole.body, whole):
        return None
    tree = ast.fix_missing_locations(ast.Module([whole], []))
    made = compile(tree, function.__code__.co_filename, "exec", dont_inherit=True)
    code = next(c for c in made.co_consts if isinstance(c, CodeType) and c.co_name == whole.name)
    return code if code.co_freevars == () else None


def _shorten(block: list[ast.stmt], whole: ast.FunctionDef) -> bool:
    """Replace the loops of a block in place; true if there was one."""
    done = False
    for at, statement in enumerate(list(block)):
        if isinstance(statement, ast.For):
            made = _Loop(statement, whole).made(f"_dvk_loop{statement.lineno}")
            if made is not None:
                where = block.index(statement)
                block[where : where + 1] = made
                done = True
        elif isinstance(statement, (ast.If, ast.With)):
            done |= _shorten(statement.body, whole)
            done |= _shorten(getattr(statement, "orelse", []), whole)
        del at
    return done


class _Loop:
    """One loop's text, and what it passes on."""

    def __init__(self, loop: ast.For, whole: ast.FunctionDef):
        self.loop, self.whole = loop, whole
        self.step = loop.target.id if isinstance(loop.target, ast.Name) else ""
        self.body = copy.deepcopy(loop.body)
        self.carried: list[str] = []
        self.set: list[str] = []
        self.lists: list[str] = []
        self.written: list[tuple[str, int]] = []
        self.count = 0

    def made(self, name: str) -> list[ast.stmt] | None:
        """The statements that replace the loop; None if it is not covered."""
        call = self.loop.iter
        if (
            not self.step
            or self.loop.orelse
            or not (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id == "range"
            )
        ):
            return None
        try:
            check_text(self.body, self.step)
            self._uses_of_step()
            self._walk(self.body, set())
            self._collect(self.body, name)
            checked = Checked(name, self.step, self.lists)
            self.body = [checked.visit(s) for s in self.body]
        except Unfit:
            return None
        outside = [n.id for n in _names(self.whole) if isinstance(n.ctx, ast.Load)]
        inside = [n.id for s in self.loop.body for n in _names(s) if isinstance(n.ctx, ast.Load)]
        after = [v for v in self.set if outside.count(v) > inside.count(v)]
        if not self.carried or self.step in after:
            return None
        short = (
            f"for {self.step} in {name}:\n"
            + "".join(f"    {v} = {name}.carry({n}, {v})\n" for n, v in enumerate(self.carried))
            + textwrap.indent("\n".join(map(ast.unparse, self.body)), "    ")
            + "\n"
            + "".join(f"{name}.extend({v})\n" for v in dict.fromkeys(self.lists))
            + "".join(f"{v} = {name}.filled({n}, {v}, {dim})\n" for n, (v, dim) in self._places())
            + "".join(f"{v} = {name}.last({self._number(v)}, {v})\n" for v in after)
        )
        text = f"{name} = {HELPER}({ast.unparse(call)})\nif {name}.is_long:\n"
        text += (
            textwrap.indent(short, "    ") + f"else:\n    for {self.step} in {name}.steps: pass\n"
        )
        made = ast.parse(text).body
        for node in (n for s in made for n in ast.walk(s)):
            if hasattr(node, "lineno"):
                ast.copy_location(node, self.loop)
        branch = made[1]
        assert isinstance(branch, ast.If) and isinstance(branch.orelse[0], ast.For)
        branch.orelse[0].body = copy.deepcopy(self.loop.body)
        return made

    def _number(self, name: str) -> int:
        return self.carried.index(name) if name in self.carried else -1

    def _places(self) -> Iterator[tuple[int, tuple[str, int]]]:
        return iter([(n, (v, dim)) for n, v, dim in self._rows])

    _rows: list[tuple[int, str, int]]

    def _uses_of_step(self) -> None:
        """The step's number is an index, or an index and a constant."""
        allowed: set[int] = set()

        def index(e: ast.AST | None) -> None:
            if isinstance(e, ast.Name):
                allowed.add(id(e))
            elif isinstance(e, ast.BinOp) and isinstance(e.op, (ast.Add, ast.Sub)):
                index(e.left)
                index(e.right)

        for node in (n for s in self.body for n in ast.walk(s)):
            if isinstance(node, ast.Subscript):
                for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                    for e in (part.lower, part.upper) if isinstance(part, ast.Slice) else (part,):
                        index(e)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in READERS
            ):
                for e in node.args:
                    index(e)
        for name in (n for s in self.body for n in _names(s)):
            if name.id == self.step and (
                id(name) not in allowed or not isinstance(name.ctx, ast.Load)
            ):
                raise Unfit

    def _walk(self, block: list[ast.stmt], known: set[str]) -> set[str]:
        """Find carried names: read before they are set; `known` are set already."""
        for s in block:
            if isinstance(s, ast.If):
                self._read(s.test, known)
                known = self._walk(s.body, set(known)) & self._walk(s.orelse, set(known))
            elif isinstance(s, (ast.Assign, ast.AnnAssign)) and s.value is not None:
                self._read(s.value, known)
                for target in s.targets if isinstance(s, ast.Assign) else [s.target]:
                    self._target(target, known)
            elif isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
                self._read(s.value, known)
                self._in_place(s.target.id)
                self._read(ast.Name(s.target.id, ast.Load()), known)
                self._target(s.target, known)
            elif isinstance(s, ast.Expr):
                self._read(s.value, known)
            else:
                raise Unfit
        assigned = set(self.set)
        self.carried = [v for v in self.carried if v in assigned or v in self._assigned()]
        return known

    def _assigned(self) -> set[str]:
        return {n.id for s in self.loop.body for n in _names(s) if isinstance(n.ctx, ast.Store)}

    def _read(self, e: ast.AST, known: set[str]) -> None:
        for node in ast.walk(e):
            if isinstance(
                node, (ast.Lambda, ast.ListComp, ast.NamedExpr, ast.GeneratorExp, ast.DictComp)
            ):
                raise Unfit
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr.endswith("_") and not node.func.attr.endswith("__"):
                    raise Unfit  # it may write what lies outside of the loop
            if isinstance(node, ast.Name) and node.id not in known and node.id not in self.carried:
                if node.id in self._assigned():
                    self.carried.append(node.id)

    def _in_place(self, name: str) -> None:
        """Nothing else sees that `name` is written in place: the function makes it, and collects no views."""
        self._made_here(name)
        for call in (n for s in self.loop.body for n in ast.walk(s)):
            if isinstance(call, ast.Call) and _appended(call):
                value = call.args[0]
                if not isinstance(value, ast.BinOp) and _method(value) not in COPYING:
                    raise Unfit

    def _made_here(self, held: str) -> None:
        """The function makes a tensor for the loop, which nothing else holds."""
        first = self.loop.lineno
        before = [n for n in _names(self.whole) if n.id == held and n.lineno < first]
        makers = [
            a.value
            for a in ast.walk(self.whole)
            if isinstance(a, ast.Assign)
            and a.lineno < first
            and len(a.targets) == 1
            and any(isinstance(t, ast.Name) and t.id == held for t in a.targets)
        ]
        stores = [n for n in before if isinstance(n.ctx, ast.Store)]
        if len(stores) != len(makers):
            raise Unfit
        if any(isinstance(n.ctx, ast.Load) for n in before) or not makers:
            raise Unfit
        if any(_method(made) not in FRESH for made in makers):
            raise Unfit

    def _target(self, target: ast.expr, known: set[str]) -> None:
        if isinstance(target, ast.Name):
            known.add(target.id)
            if target.id not in self.set:
                self.set.append(target.id)
        elif isinstance(target, ast.Tuple):
            for part in target.elts:
                self._target(part, known)
        elif not isinstance(target, ast.Subscript):
            raise Unfit

    def _collect(self, block: list[ast.stmt], name: str) -> None:
        """Put marks where results are collected."""
        self._rows = getattr(self, "_rows", [])
        for at, s in enumerate(block):
            if isinstance(s, ast.If):
                continue
            if isinstance(s, ast.Expr) and (held := _appended(s.value)):
                assert isinstance(s.value, ast.Call)
                self.lists.append(held)
                text = f"{held}.append({name}.out({self.count}, {ast.unparse(s.value.args[0])}))"
                block[at] = ast.parse(text).body[0]
                self.count += 1
            elif isinstance(s, ast.Expr):
                raise Unfit
            elif isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Subscript):
                self._write(s, name)
                block[at] = ast.parse(f"{name}.row({self.count}, {ast.unparse(s.value)})").body[0]
                self.count += 1
        if len(set(self.lists)) != len(self.lists):
            raise Unfit
        read = [n.id for s in self.loop.body for n in _names(s)]
        if any(read.count(v) != 1 for v in (*self.lists, *(v for _, v, _ in self._rows))):
            raise Unfit

    def _write(self, s: ast.Assign, name: str) -> None:
        """Note `out[:, t] = value` of a tensor that the function makes for it."""
        target = s.targets[0]
        if (
            len(s.targets) != 1
            or not isinstance(target, ast.Subscript)
            or not isinstance(target.value, ast.Name)
        ):
            raise Unfit
        parts = list(target.slice.elts) if isinstance(target.slice, ast.Tuple) else [target.slice]
        places = [n for n, p in enumerate(parts) if isinstance(p, ast.Name) and p.id == self.step]
        rest = [p for n, p in enumerate(parts) if n not in places]
        if len(places) != 1 or not all(
            isinstance(p, ast.Slice) and not (p.lower or p.upper or p.step) for p in rest
        ):
            raise Unfit
        held = target.value.id
        self._made_here(held)
        self._rows.append((self.count, held, places[0]))


def _names(tree: ast.AST) -> list[ast.Name]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.Name)]


def _method(value: ast.AST) -> str:
    """Name of the method or function of a module that is called."""
    called = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    return value.func.attr if called else ""  # type: ignore[attr-defined]


def _appended(value: ast.AST) -> str:
    """The list that a call appends to."""
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "append"
        and isinstance(value.func.value, ast.Name)
        and len(value.args) == 1
    ):
        return value.func.value.id
    return ""
