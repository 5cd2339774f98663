"""A function's statements taken apart, with the variables that each reads, sets and passes on to later statements.

`normalised` makes every operation a statement whose operands are names or constants (A-normal form), in Python's evaluation order: code
left to PyTorch can then be as small as one call in an expression.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOOPS = (ast.For, ast.While)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
PREFIX = "dvk_t"
"""Name prefix of the variables that hold parts of expressions."""


def normalised(function: ast.FunctionDef) -> None:
    """Take the statements of a function apart, in place."""
    splitter = _Splitter(locals_of(function))
    function.body = splitter.block(function.body)
    ast.fix_missing_locations(function)


class _Splitter:
    def __init__(self, local: set[str]):
        self.local, self.count = local, 0
        self.before: list[ast.stmt] = []

    def block(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in statements:
            outer, self.before = self.before, []
            made = self._statement(statement)
            result += [*self.before, made]
            self.before = outer
        return result

    def _statement(self, s: ast.stmt) -> ast.stmt:
        if any(
            isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom))
            for node in own(s)
        ):
            return s
        if isinstance(s, (ast.If, ast.For)):
            if isinstance(s, ast.If):
                s.test = self._atom(s.test)
            else:
                s.iter = self._atom(s.iter)
        elif isinstance(s, (ast.Expr, ast.Return, ast.AnnAssign)) and s.value is not None:
            if not isinstance(s, ast.AnnAssign) or isinstance(s.target, ast.Name):
                s.value = self._taken(s.value)
        elif isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            s.value = self._atom(s.value)
        elif isinstance(s, ast.Assign):
            # A target is evaluated after the value.
            simple = all(isinstance(target, ast.Name) for target in s.targets)
            s.value = self._taken(s.value) if simple else self._atom(s.value)
            s.targets = [self._target(target) for target in s.targets]
        if not isinstance(s, (*SCOPES, ast.Try)):
            for name in ("body", "orelse"):
                if isinstance(held := getattr(s, name, None), list):
                    setattr(s, name, self.block(held))
        return s

    def _target(self, target: ast.expr) -> ast.expr:
        if isinstance(target, ast.Subscript):
            self._subscript(target)
        return target

    def _subscript(self, e: ast.Subscript) -> None:
        if not self._is_plain(e.slice):
            e.value = self._atom(e.value)
        e.value = e.value if self._is_plain(e.value) else self._atom(e.value)
        parts = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
        for number, part in enumerate(parts):
            if isinstance(part, ast.Slice):
                part.lower, part.upper, part.step = (
                    p and self._atom(p) for p in (part.lower, part.upper, part.step)
                )
            elif not isinstance(part, ast.Starred):
                parts[number] = self._atom(part)
        if not isinstance(e.slice, ast.Tuple):
            e.slice = parts[0]

    def _atom(self, e: ast.expr) -> ast.expr:
        """A name or constant of the same value; the statements that compute it are placed before."""
        made = self._taken(e)
        if (
            isinstance(made, (ast.Constant, ast.Name))
            or isinstance(made, ast.UnaryOp)
            and isinstance(made.operand, ast.Constant)
        ):
            return made
        name = f"{PREFIX}{self.count}"
        self.count += 1
        self.local.add(name)
        assign = ast.Assign([ast.Name(name, ast.Store())], made)
        for node in (assign, assign.targets[0]):
            ast.copy_location(node, e)
        self.before.append(assign)
        return ast.copy_location(ast.Name(name, ast.Load()), e)

    def _operands(self, parts: Sequence[ast.expr]) -> list[ast.expr]:
        """Operands that are evaluated one after another."""
        last = max((n for n, part in enumerate(parts) if not self._is_plain(part)), default=-1)
        result: list[ast.expr] = []
        for number, part in enumerate(parts):
            if isinstance(part, ast.Starred):
                part.value = self._operands([part.value])[0]
                result.append(part)
            else:
                result.append(part if number > last and self._is_plain(part) else self._atom(part))
        return result

    def _is_plain(self, e: ast.expr) -> bool:
        """A constant, or a name with attributes."""
        while isinstance(e, ast.Attribute):
            e = e.value
        return isinstance(e, (ast.Constant, ast.Name))

    def _taken(self, e: ast.expr) -> ast.expr:
        """The expression with names and constants for operands."""
        if isinstance(e, ast.Call):
            given = [e.func, *e.args, *(keyword.value for keyword in e.keywords)]
            if isinstance(e.func, ast.Attribute) and not self._is_plain(e.func):
                e.func.value = self._atom(e.func.value)
            elif not self._is_plain(e.func):
                e.func = self._atom(e.func)
            made = self._operands(given[1:])
            e.args = made[: len(e.args)]
            for keyword, value in zip(e.keywords, made[len(e.args) :], strict=True):
                keyword.value = value
        elif isinstance(e, ast.BinOp):
            e.left, e.right = self._operands([e.left, e.right])
        elif isinstance(e, ast.UnaryOp):
            e.operand = self._operands([e.operand])[0]
        elif isinstance(e, ast.Compare) and len(e.comparators) == 1:
            e.left, e.comparators[0] = self._operands([e.left, e.comparators[0]])
        elif isinstance(e, ast.Subscript):
            self._subscript(e)
        elif isinstance(e, ast.Attribute) and not self._is_plain(e):
            e.value = self._atom(e.value)
        elif isinstance(e, (ast.Tuple, ast.List, ast.Set)):
            e.elts = self._operands(e.elts)
        elif isinstance(e, ast.Dict) and None not in e.keys:
            made = self._operands(
                [part for pair in zip(e.keys, e.values, strict=True) for part in pair]  # type: ignore[misc]
            )
            e.keys, e.values = list(made[0::2]), made[1::2]
        elif isinstance(e, ast.IfExp):
            e.test = self._atom(e.test)
        elif isinstance(e, ast.BoolOp):
            e.values[0] = self._atom(e.values[0])
        elif isinstance(e, COMPREHENSIONS):
            e.generators[0].iter = self._atom(e.generators[0].iter)
        return e


def own(s: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a statement, without those of statements in it."""
    pending: list[ast.AST] = [s]
    while pending:
        node = pending.pop()
        yield node
        pending += [
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, (ast.stmt, ast.ExceptHandler))
        ]


# ---------------------------------------------------------------- variables


def reads(node: ast.AST | None) -> set[str]:
    """Names that evaluating a node may look up, except those that a scope inside binds."""
    if node is None:
        return set()
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Store) else {node.id}
    inner = {name for child in ast.iter_child_nodes(node) for name in reads(child)}
    if isinstance(node, COMPREHENSIONS):
        return inner - stores(node.generators) | reads(node.generators[0].iter)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        body = node.body if isinstance(node.body, list) else [node.body]
        outside = {
            name
            for part in (node.args, *getattr(node, "decorator_list", ()))
            for name in reads(part)
        }
        return (
            inner - {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)} - stores(body)
            | outside
        )
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return inner | {node.target.id}
    return inner


def stores(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that nodes may bind in their scope."""
    result: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            result |= set() if isinstance(node.ctx, ast.Load) else {node.id}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            result.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            result |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif not isinstance(node, (ast.Lambda, *COMPREHENSIONS)):
            result |= stores(ast.iter_child_nodes(node))
            result |= {node.name} if isinstance(node, ast.ExceptHandler) and node.name else set()
    return result


def locals_of(function: ast.FunctionDef) -> set[str]:
    """The variables of a function, except those declared global."""
    named = {
        name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names
    }
    return (
        {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)} | stores(function.body)
    ) - named


def exposed(statements: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    """Names that statements may read before they bind them, and those that they bind on every path."""
    wanted: set[str] = set()
    bound: set[str] = set()
    for s in statements:
        e, b = _exposed(s)
        wanted |= e - bound
        bound |= b
    return wanted, bound


def _exposed(s: ast.stmt) -> tuple[set[str], set[str]]:
    if isinstance(s, ast.If):
        (e, b), (other, c) = exposed(s.body), exposed(s.orelse)
        return reads(s.test) | e | other, b & c
    if isinstance(s, (ast.For, ast.While)):
        head, targets = (
            (reads(s.iter), stores([s.target]))
            if isinstance(s, ast.For)
            else (reads(s.test), set())
        )
        return head | reads(getattr(s, "target", None)) | (exposed(s.body)[0] - targets) | exposed(
            s.orelse
        )[0], set()
    if isinstance(s, ast.With):
        targets = stores(s.items)
        e, b = exposed(s.body)
        return {name for item in s.items for name in reads(item)} | (e - targets), b | targets
    if isinstance(s, ast.Try):
        return _exposed_by_try(s)
    if hasattr(s, "cases"):
        return reads(s), set()
    return reads(s), set() if isinstance(s, ast.Delete) else stores([s])


def _exposed_by_try(s: ast.Try) -> tuple[set[str], set[str]]:
    wanted, bound = exposed([*s.body, *s.orelse])
    for handler in s.handlers:
        e, b = exposed(handler.body)
        wanted |= reads(handler.type) | (e - {handler.name or ""})
        if not isinstance(handler.body[-1], (ast.Raise, ast.Return)):
            bound = bound & b
    last, more = exposed(s.finalbody)
    return wanted | last, bound | more


def live_after(function: ast.FunctionDef) -> dict[int, set[str]]:
    """Map the identity of each statement to the names that may be read after it has run."""
    after: dict[int, set[str]] = {}

    def block(
        statements: Sequence[ast.stmt], out: set[str], leaving: set[str], again: set[str]
    ) -> set[str]:
        for s in reversed(statements):
            after.setdefault(id(s), set()).update(out)
            out = before(s, out, leaving, again)
        return out

    def before(s: ast.stmt, out: set[str], leaving: set[str], again: set[str]) -> set[str]:
        if isinstance(s, (ast.Return, ast.Raise)):
            return reads(s)
        if isinstance(s, ast.Break):
            return leaving
        if isinstance(s, ast.Continue):
            return again
        if isinstance(s, ast.If):
            return (
                reads(s.test)
                | block(s.body, out, leaving, again)
                | block(s.orelse, out, leaving, again)
            )
        if isinstance(s, (ast.For, ast.While)):
            ended = block(s.orelse, out, leaving, again)
            head = ended | (reads(s.test) if isinstance(s, ast.While) else set())
            targets = stores([s.target]) if isinstance(s, ast.For) else set()
            for _ in range(2):
                head |= block(s.body, head, out, head) - targets | reads(getattr(s, "target", None))
            return head | (reads(s.iter) if isinstance(s, ast.For) else set())
        if isinstance(s, ast.With):
            return {n for item in s.items for n in reads(item)} | (
                block(s.body, out, leaving, again) - stores(s.items)
            )
        if isinstance(s, ast.Try) or hasattr(s, "cases"):
            return out | leaving | again | reads(s)
        return out - (stores([s]) - reads(s)) | reads(s)

    block(function.body, set(), set(), set())
    return after


def blocks_in(s: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements directly inside a statement."""
    for _, value in ast.iter_fields(s):
        if isinstance(value, list) and value:
            if isinstance(value[0], ast.stmt):
                yield value
            elif isinstance(
                value[0], (ast.ExceptHandler, getattr(ast, "match_case", ast.ExceptHandler))
            ):
                for inner in value:
                    yield from blocks_in(inner)


def returns_in(s: ast.AST) -> Iterator[ast.Return]:
    """Return statements of the function that contains a statement."""
    if isinstance(s, ast.Return):
        yield s
    elif not isinstance(s, SCOPES):
        for inner in ast.iter_child_nodes(s):
            yield from returns_in(inner)


def escapes(s: ast.AST) -> bool:
    """A `break` or `continue` of a loop around the statement."""
    if isinstance(s, (ast.Break, ast.Continue)):
        return True
    if isinstance(s, (*SCOPES, *LOOPS)):
        return any(map(escapes, s.orelse)) if isinstance(s, LOOPS) else False
    return any(map(escapes, ast.iter_child_nodes(s)))
