"""Find Python names of a text that are read before assignment: in `run`, and in Triton kernels, which parse as Python."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator


def use_before_definition(
    tree: ast.Module, given: Collection[str]
) -> tuple[str, str | None] | None:
    """The reason why a function of the text cannot run or compile, with its kernel if any; None if none is found.

    Args:
        tree: functions and single names.
        given: names defined outside the text.
    """
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            jitted = any(isinstance(d, ast.Name) and d.id == "jit" for d in function.decorator_list)
            try:
                unmade = next(_Reading(function, given, jitted).unmade(), None)
            except RecursionError:  # some thousand nested conditions
                return None
            if unmade is not None:
                if jitted:
                    return (
                        f"kernel {function.name} reads `{unmade}` before it is made",
                        function.name,
                    )
                return f"`{unmade}` is read before it is made", None
    return None


class _Reading:
    def __init__(self, function: ast.FunctionDef, given: Collection[str], jitted: bool):
        self.function, self.jitted = function, jitted
        # Deleted names are local, too.
        self.own = {
            n.id
            for n in ast.walk(function)
            if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
        } - set(given)
        self.own -= {
            n.target.id for n in ast.walk(function) if isinstance(n, ast.NamedExpr)
        }  # the time of their assignment is not tracked
        self.made = {a.arg for a in function.args.args}

    def unmade(self) -> Iterator[str]:
        """Names that are read too early, in text order."""
        return self._block(self.function.body)

    def _block(self, body: Iterable[ast.stmt]) -> Iterator[str]:
        for statement in body:
            if isinstance(statement, ast.For):
                yield from self._read(statement.iter)
                self._make(statement.target)
                written_out = any(
                    isinstance(n, ast.Attribute) and n.attr == "static_range"
                    for n in ast.walk(statement.iter)
                )
                if written_out:  # a step may read what an earlier one assigned, under a condition decided at compile time
                    for inner in statement.body:
                        self._make(inner)
                yield from self._inner(statement.body, kept=written_out or not self.jitted)
                yield from self._block(statement.orelse)
            elif isinstance(statement, (ast.If, ast.While)):
                yield from self._read(statement.test)
                yield from self._block([*statement.body, *statement.orelse])
            elif isinstance(statement, (ast.Assign, ast.AugAssign)):
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                )
                yield from self._read(statement.value)
                for target in targets:
                    if isinstance(statement, ast.AugAssign) and isinstance(target, ast.Name):
                        yield from self._unmade([target.id])
                    yield from self._read(target)
                    self._make(target)
            elif isinstance(statement, (ast.Expr, ast.Return)) and statement.value is not None:
                yield from self._read(statement.value)
            else:  # all its names count as assigned
                self._make(statement)

    def _inner(self, body: Iterable[ast.stmt], kept: bool) -> Iterator[str]:
        """A loop's body. Names first assigned in a loop end with it in Triton, unless the loop is unrolled."""
        before = set(self.made)
        yield from self._block(body)
        if not kept:
            self.made = before

    def _read(self, expression: ast.expr) -> Iterator[str]:
        own = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)
        if not any(isinstance(n, own) for n in ast.walk(expression)):
            yield from self._unmade(
                n.id
                for n in ast.walk(expression)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
            )

    def _unmade(self, names: Iterable[str]) -> Iterator[str]:
        yield from (name for name in names if name in self.own and name not in self.made)

    def _make(self, node: ast.AST) -> None:
        self.made |= {
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }


__all__ = ["use_before_definition"]
