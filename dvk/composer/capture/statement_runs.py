"""Runs of statements that are left to PyTorch: each becomes a function, which a graph calls as one step (`eager_calls`).

During a capture, functions of the user's file run with other code: their statements are taken apart (`statements`), and calls replace the
runs that are left. A run's arguments are the variables it reads, and its results are those it sets for later statements. The functions
travel inside drop-ins, below the user's file.
"""

from __future__ import annotations

import ast
import copy
import gc
import inspect
import linecache
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FunctionType, TracebackType
from typing import Any

from dvk.composer.capture import statements
from dvk.composer.capture.blame import is_ours
from dvk.composer.capture.eager_calls import StepRefused

PREFIX = "dvk_part_"
"""Name prefix of the generated functions."""
MARK = "_dvk_number"
LINES = 1_000_000
"""Line numbers of functions that are taken apart start at a multiple of this, one for each statement."""
LOOPS = (ast.For, ast.While)
MODES = ("no_grad", "record_function")
"""`with` blocks that may surround a part: called outside them, it computes the same."""


@dataclass
class Part:
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
        self.parts: list[Part] = []
        self.count = 0
        self.is_closed = False
        """The call that replaces the run."""
        self.code = self._compiled()

    def _index(self, block: list[ast.stmt], owner: ast.stmt | None) -> None:
        self.above[id(block)] = owner
        for number, s in enumerate(block):
            self.where[id(s)] = block, number
            for inner in _blocks(s):
                self._index(inner, s)

    # ------------------------------------------------------------ code

    def _compiled(self) -> CodeType:
        """The function's code with calls in place of its parts; every statement has a separate line number."""
        self.numbered: list[ast.stmt | Part] = []
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

    def _marked(self, made: ast.stmt, origin: ast.stmt | Part) -> ast.stmt:
        setattr(made, MARK, len(self.numbered))
        self.numbered.append(origin)
        return made

    def _call(self, part: Part) -> ast.stmt:
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

    def text_of(self, part: Part) -> str:
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
        leaves = any(_escapes(s) for s in body)
        for owner in self._around(block):
            plain = (
                isinstance(owner, (*LOOPS, ast.If))
                or isinstance(owner, ast.With)
                and all(map(_is_mode, owner.items))
            )
            if not plain:
                return self._of(owner)
        returns = [n for s in body for n in _returns(s)]
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
        part = Part(f"{self.prefix}{block[first].lineno}_{self.count}", block, first, last)
        self.count += 1
        live = self.after[id(block[last])]
        wanted, bound = statements.exposed(part.body)
        outputs = statements.stores(part.body) & live & self.local
        part.returns = any(True for s in part.body for _ in _returns(s))
        part.outputs = [] if part.returns else sorted(outputs)
        part.inputs = sorted((wanted | (set(part.outputs) - bound)) & self.local)
        self.parts.append(part)
        self.code = self._compiled()
        return True

    def grow(self, part: Part, inputs: Iterable[int], outputs: Iterable[int]) -> bool:
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


class Parts:
    """All functions of the user's file that are taken apart."""

    def __init__(self, home: dict[str, Any]):
        self.home = home
        self.splits: list[Split] = []
        self.given_up: set[CodeType] = set()

    def split_of(self, code: CodeType) -> Split | None:
        """Take apart the function that runs a code; None if that is not possible."""
        for split in self.splits:
            if code in (split.code, split.whole):
                return split
        return None

    def take_apart(self, code: CodeType) -> Split | None:
        """Like `split_of`, for code that still runs as it is written."""
        if code in self.given_up or is_ours(code.co_filename):
            return None  # the search below reads every object of the process
        self.given_up.add(code)
        functions = [
            f for f in gc.get_referrers(code) if isinstance(f, FunctionType) and f.__code__ is code
        ]
        if (
            len(functions) != 1
            or functions[0].__globals__ is not self.home
            or set(code.co_freevars) - {"__class__"}
        ):
            return None
        found = _definition(code)
        if found is None or code.co_flags & 0x2A0:  # generators and coroutines
            return None
        tree, owner = found
        try:
            split = Split(
                functions[0],
                tree,
                owner,
                f"{PREFIX}{code.co_name}_".replace("__", "_"),
                LINES * (len(self.splits) + 1),
            )
        except (SyntaxError, ValueError, TypeError):
            return None
        if split.code.co_freevars != code.co_freevars:
            return None
        self.splits.append(split)
        return split

    def leave(self, error: BaseException) -> bool:
        """Take apart the innermost possible function on the way to an error, or else leave the statement of it that led there."""
        cause = (
            error
            if isinstance(error, StepRefused)
            else error.__cause__ or error.__context__ or error
        )
        steps = [(code, line) for code, line in _steps(cause.__traceback__)]
        if lines := getattr(error, "lines", ()):
            steps = [
                (code, line)
                for path, line in reversed(lines)
                if (code := self._code(path, line)) is not None
            ]
        for code, line in reversed(steps):
            split = self.split_of(code)
            if split is None:
                if self.take_apart(code) is not None:
                    return True
            elif not split.is_closed and (run := split.on(line)) is not None and split.leave(*run):
                return True
        return False

    def _code(self, path: str, line: int) -> CodeType | None:
        return next((split.code for split in self.splits if split.has(line)), None) or _around(
            self.home, path, line
        )

    def find(self, name: str) -> tuple[Split, Part] | None:
        """The part of a generated function."""
        return next(
            ((split, part) for split in self.splits for part in split.parts if part.name == name),
            None,
        )

    def names(self) -> list[str]:
        return [part.name for split in self.splits for part in split.parts]

    def texts(self) -> dict[str, str]:
        return {part.name: split.text_of(part) for split in self.splits for part in split.parts}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Run the functions during the block with their parts as calls of functions among the globals of the user's file."""
        made: dict[str, Any] = {}
        try:
            for split in self.splits:
                for part in split.parts:
                    text = split.text_of(part)
                    exec(
                        compile(text, f"<{part.name}>", "exec", dont_inherit=True), self.home, made
                    )
                    linecache.cache[f"<{part.name}>"] = (
                        len(text),
                        None,
                        text.splitlines(True),
                        f"<{part.name}>",
                    )
                split.function.__code__ = split.code
            self.home.update(made)
            yield
        finally:
            for split in self.splits:
                split.function.__code__ = split.whole
            for name in made:
                self.home.pop(name, None)


def _definition(code: CodeType) -> tuple[ast.FunctionDef, str] | None:
    """The function in its file, and the class that defines it."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return None

    def search(body: list[ast.stmt], owner: str) -> Iterator[tuple[ast.FunctionDef, str]]:
        for s in body:
            if isinstance(s, ast.FunctionDef):
                lines = {s.lineno, *(d.lineno for d in s.decorator_list)}
                if s.name == code.co_name and code.co_firstlineno in lines:
                    yield s, owner
            for inner in _blocks(s):
                yield from search(inner, s.name if isinstance(s, ast.ClassDef) else owner)

    return next(search(tree.body, ""), None)


def _steps(trail: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    while trail is not None:
        yield trail.tb_frame.f_code, trail.tb_lineno
        trail = trail.tb_next


def _around(home: dict[str, Any], path: str, line: int) -> CodeType | None:
    """The code of the innermost user function that contains a line of a file."""
    result: list[CodeType] = []
    held = [value for name, value in home.items() if not name.startswith("__")]
    functions = [
        f for value in held for f in (vars(value).values() if isinstance(value, type) else [value])
    ]
    for function in functions:
        function = inspect.unwrap(function) if callable(function) else function
        code = getattr(function, "__code__", None)
        if code is not None and code.co_filename == path:
            last = max((n for *_, n in code.co_lines() if n), default=0)
            if code.co_firstlineno <= line <= last:
                result.append(code)
    return max(result, key=lambda code: code.co_firstlineno, default=None)


def _blocks(s: ast.AST) -> Iterator[list[ast.stmt]]:
    for _, value in ast.iter_fields(s):
        if isinstance(value, list) and value:
            if isinstance(value[0], ast.stmt):
                yield value
            elif isinstance(
                value[0], (ast.ExceptHandler, getattr(ast, "match_case", ast.ExceptHandler))
            ):
                for inner in value:
                    yield from _blocks(inner)


def _inside(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def _is_mode(item: ast.withitem) -> bool:
    called = (
        item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
    )
    return isinstance(called, ast.Attribute) and called.attr in MODES


def _returns(s: ast.AST) -> Iterator[ast.Return]:
    """Return statements of the function that contains a statement."""
    if isinstance(s, ast.Return):
        yield s
    elif not isinstance(s, statements.SCOPES):
        for inner in ast.iter_child_nodes(s):
            yield from _returns(inner)


def _escapes(s: ast.AST) -> bool:
    """A `break` or `continue` of a loop around the statement."""
    if isinstance(s, (ast.Break, ast.Continue)):
        return True
    if isinstance(s, (*statements.SCOPES, *LOOPS)):
        return any(map(_escapes, s.orelse)) if isinstance(s, LOOPS) else False
    return any(map(_escapes, ast.iter_child_nodes(s)))


class _Mangler(ast.NodeTransformer):
    """Private names as they are called outside of their class."""

    def __init__(self, owner: str):
        self.owner = owner.lstrip("_")

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if self.owner and node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{self.owner}{node.attr}"
        return node
