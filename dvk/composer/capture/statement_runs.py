"""Runs of statements that are left to PyTorch: each becomes a function, which a graph calls as one step (`eager_calls`).

During a capture, functions of the user's file run with other code: their statements are taken apart (`statements`), and calls replace the
runs that are left. A run's arguments are the variables it reads, and its results are those it sets for later statements. The functions
travel inside drop-ins, below the user's file.
"""

from __future__ import annotations

import ast
import gc
import inspect
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, TracebackType
from typing import Any

from dvk.composer.capture.blame import is_ours
from dvk.composer.capture.eager_calls import StepRefused
from dvk.composer.capture.function_split import FunctionPart, Split
from dvk.composer.capture.statements import blocks_in

PREFIX = "dvk_part_"
"""Name prefix of the generated functions."""
LINES = 1_000_000
"""Line numbers of functions that are taken apart start at a multiple of this, one for each statement."""


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
        found = definition(code)
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

    def find(self, name: str) -> tuple[Split, FunctionPart] | None:
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


def definition(code: CodeType) -> tuple[ast.FunctionDef, str] | None:
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
            for inner in blocks_in(s):
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
