"""One function of the user's file taken apart: its parts become functions, and calls replace them in its code."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType

from dvk.composer.capture import statements
from dvk.composer.capture.statements import LOOPS, blocks_in, escapes, returns_in

MARK = "_dvk_number"
MODES = ("no_grad", "record_function")
"""`with` blocks that may surround a part: called outside them, it computes the same."""


@dataclass
class FunctionPart:
    """A run of statements of one block."""

    name: str
    block: list[ast.stmt]
    first: int
    last: int
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    returns: bool = False
    """It ends the function, and its result is the function's."""

    @property
    def body(self) -> list[ast.stmt]:
        return self.block[self.first : self.last + 1]


class Split:
    """One function of the user's file, and its parts.

    Attributes:
        text: source of each part's function, by name.
    """

    def __init__(
        self, function: FunctionType, tree: ast.FunctionDef, owner: str, prefix: str, base: int
    ):
        self.function, self.whole, self.prefix, self.base = (
            function,
            function.__code__,
            prefix,
            base,
        )
        self.tree = tree
        self.tree.decorator_list = []
        statements.normalised(self.tree)
        _Mangler(owner).visit(self.tree)
        self.local = statements.locals_of(self.tree)
        self.after = statements.live_after(self.tree)
        self.globals = sorted(
            {n for node in ast.walk(self.tree) if isinstance(node, ast.Global) for n in node.names}
        )
        self.where: dict[int, tuple[list[ast.stmt], int]] = {}
        self.above: dict[int, ast.stmt | None] = {}
        self._index(self.tree.body, None)
        self.parts: list[FunctionPart] = []
        self.count = 0
        self.is_closed = False
        """No part of it can be left to PyTorch any more."""
        self.code = self._compiled()

    def _index(self, block: list[ast.stmt], owner: ast.stmt | None) -> None:
        self.above[id(block)] = owner
        for number, s in enumerate(block):
            self.where[id(s)] = block, number
            for inner in blocks_in(s):
                self._index(inner, s)

    # ------------------------------------------------------------ code

    def _compiled(self) -> CodeType:
        """The function's code with calls in place of its parts; every statement has a separate line number."""
        self.numbered: list[ast.stmt | FunctionPart] = []
        tree = self._rewritten()
        for node in ast.walk(tree):
            number = getattr(node, MARK, None)
            if number is not None:
                for inner in statements.own(node):
                    if hasattr(inner, "lineno"):
                        inner.lineno = inner.end_lineno = self.base + number  # type: ignore[attr-defined]
                        inner.col_offset = inner.end_col_offset = 0  # type: ignore[attr-defined]
        return self._code_of(tree)

    def _rewritten(self) -> ast.FunctionDef:
        def block(found: list[ast.stmt]) -> list[ast.stmt]:
            made: list[ast.stmt] = []
            number = 0
            while number < len(found):
                part = next((p for p in self.parts if p.block is found and p.first == number), None)
                made.append(
                    self._marked(self._call(part), part) if part else statement(found[number])
                )
                number = part.last + 1 if part else number + 1
            return made

        def statement(s: ast.stmt) -> ast.stmt:
            new = copy.copy(s)
            for name, value in ast.iter_fields(s):
                held = (
                    isinstance(value, list)
                    and value
                    and isinstance(value[0], (ast.stmt, ast.ExceptHandler))
                )
                if not held:
                    setattr(new, name, copy.deepcopy(value))
                elif isinstance(value[0], ast.stmt):
                    setattr(new, name, block(value))
                else:
                    setattr(new, name, [statement(handler) for handler in value])
            return self._marked(new, s)

        tree = copy.copy(self.tree)
        tree.body = [*self._unset(), *block(self.tree.body)]
        return tree

    def _unset(self) -> Iterator[ast.stmt]:
        """Arguments of parts may still be unset if the parts do not read them either."""
        given = {a.arg for a in ast.walk(self.tree.args) if isinstance(a, ast.arg)}
        for name in sorted({name for part in self.parts for name in part.inputs} - given):
            made = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None))
            yield ast.fix_missing_locations(ast.copy_location(made, self.tree.body[0]))

    def _marked(self, made: ast.stmt, origin: ast.stmt | FunctionPart) -> ast.stmt:
        setattr(made, MARK, len(self.numbered))
        self.numbered.append(origin)
        return made

    def _call(self, part: FunctionPart) -> ast.stmt:
        call = ast.Call(
            ast.Name(part.name, ast.Load()), [ast.Name(n, ast.Load()) for n in part.inputs], []
        )
        made: ast.stmt
        if part.returns:
            made = ast.Return(call)
        elif part.outputs:
            made = ast.Assign(
                [ast.Tuple([ast.Name(n, ast.Store()) for n in part.outputs], ast.Store())], call
            )
        else:
            made = ast.Expr(call)
        for node in ast.walk(made):
            ast.copy_location(node, part.body[0])
        return made

    def _code_of(self, tree: ast.FunctionDef) -> CodeType:
        outer = ast.parse("def dvk_outer():\n    __class__ = None").body[0]
        assert isinstance(outer, ast.FunctionDef)
        outer.body.append(tree)
        module = ast.fix_missing_locations(ast.Module([outer], []))
        made = compile(module, self.whole.co_filename, "exec", dont_inherit=True)
        code = _inside(_inside(made, "dvk_outer"), tree.name)
        free = self.whole.co_freevars
        return (
            code.replace(co_freevars=free)
            if set(code.co_freevars) <= set(free) and len(code.co_freevars) == len(free)
            else code
        )

    def text_of(self, part: FunctionPart) -> str:
        """The function that runs a part."""
        lines = [f"def {part.name}({', '.join(part.inputs)}):"]
        if self.globals:
            lines.append(f"    global {', '.join(self.globals)}")
        lines += [f"    {line}" for s in part.body for line in ast.unparse(s).splitlines()]
        if not part.returns:
            lines.append(f"    return ({''.join(f'{name}, ' for name in part.outputs)})")
        return "\n".join(lines)

    # ------------------------------------------------------------ places

    def on(self, line: int) -> tuple[list[ast.stmt], int, int] | None:
        """The statement of a line of `code`."""
        if not self.has(line) or not isinstance(at := self.numbered[line - self.base], ast.stmt):
            return None
        block, number = self.where[id(at)]
        return block, number, number

    def has(self, line: int) -> bool:
        """The line belongs to `code`."""
        return self.base <= line < self.base + len(self.numbered)

    def leave(self, block: list[ast.stmt], first: int, last: int) -> bool:
        """Make a part of statements and of those that must accompany them; False if that is impossible or changes nothing."""
        while True:
            if (needed := self._needed(block, first, last)) is None:
                return False
            if needed == (id(block), first, last):
                break
            _, first, last = needed
            block = self._found
        if any(p.block is block and p.first <= first and last <= p.last for p in self.parts):
            return False
        kept = []
        for part in self.parts:
            if part.block is block and part.first <= last and first <= part.last:
                first, last = min(first, part.first), max(last, part.last)
            elif not self._is_inside(part.block, block, first, last):
                kept.append(part)
        self.parts = kept
        return self._put(block, first, last)

    def _needed(self, block: list[ast.stmt], first: int, last: int) -> tuple[int, int, int] | None:
        """The same run, or a larger one if the code could not stand in a function; None if no run could."""
        self._found = block
        body = block[first : last + 1]
        nodes = [node for s in body for node in ast.walk(s)]
        if any(
            isinstance(n, (ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal))
            or isinstance(n, ast.Name)
            and n.id in ("super", "__class__", "locals", "vars", "eval", "exec")
            for n in nodes
        ):
            return None
        above = self.above[id(block)]
        leaves = any(escapes(s) for s in body)
        for owner in self._around(block):
            plain = (
                isinstance(owner, (*LOOPS, ast.If))
                or isinstance(owner, ast.With)
                and all(map(_is_mode, owner.items))
            )
            if not plain:
                return self._of(owner)
        returns = [n for s in body for n in returns_in(s)]
        if leaves and above is not None:
            return self._of(above)
        if not returns or returns == [body[-1]]:
            return id(block), first, last
        return self._of(above) if above is not None else (id(block), first, len(block) - 1)

    def _around(self, block: list[ast.stmt]) -> Iterator[ast.stmt]:
        while (owner := self.above[id(block)]) is not None:
            yield owner
            block = self.where[id(owner)][0]

    def _of(self, s: ast.stmt) -> tuple[int, int, int]:
        self._found, number = self.where[id(s)]
        return id(self._found), number, number

    def _is_inside(
        self, inner: list[ast.stmt], block: list[ast.stmt], first: int, last: int
    ) -> bool:
        return any(
            self.where[id(s)][0] is block and first <= self.where[id(s)][1] <= last
            for s in self._around(inner)
        )

    def _put(self, block: list[ast.stmt], first: int, last: int) -> bool:
        part = FunctionPart(f"{self.prefix}{block[first].lineno}_{self.count}", block, first, last)
        self.count += 1
        live = self.after[id(block[last])]
        wanted, bound = statements.exposed(part.body)
        outputs = statements.stores(part.body) & live & self.local
        part.returns = any(True for s in part.body for _ in returns_in(s))
        part.outputs = [] if part.returns else sorted(outputs)
        part.inputs = sorted((wanted | (set(part.outputs) - bound)) & self.local)
        self.parts.append(part)
        self.code = self._compiled()
        return True

    def grow(self, part: FunctionPart, inputs: Iterable[int], outputs: Iterable[int]) -> bool:
        """Enlarge a part so that it computes these of its arguments itself and these of its results are not needed after it."""
        block, first, last = part.block, part.first, part.last
        early = {part.inputs[n] for n in inputs}
        late = {part.outputs[n] for n in outputs if n < len(part.outputs)}
        if early:
            first = next(
                (n for n in range(first - 1, -1, -1) if early & statements.stores([block[n]])), -1
            )
        if late:
            last = next(
                (n for n in range(last, len(block)) if not late & self.after[id(block[n])]), -1
            )
        self.parts.remove(part)
        if first < 0 or last < 0 or not (early or late):
            if (owner := self.above[id(block)]) is None:
                return self._close()
            block, first = self.where[id(owner)]
            last = first
        return self.leave(block, first, last) or self._close()

    def _close(self) -> bool:
        self.parts, self.is_closed = [], True
        self.code = self._compiled()
        return False


def _inside(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def _is_mode(item: ast.withitem) -> bool:
    called = (
        item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
    )
    return isinstance(called, ast.Attribute) and called.attr in MODES


class _Mangler(ast.NodeTransformer):
    """Private names as they are called outside of their class."""

    def __init__(self, owner: str):
        self.owner = owner.lstrip("_")

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if self.owner and node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{self.owner}{node.attr}"
        return node
