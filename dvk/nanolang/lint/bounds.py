"""Find out-of-bounds accesses of C++ kernels in the first and in the last step of every loop.

Both steps are executed, so an access out of bounds there is certain; accesses under a condition, and indices made of anything but sizes and
loop variables, are ignored. Steps between the two are not checked.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from dvk.nanolang.lint.scopes import TYPES, ScopeError, Scopes

LEAPS = frozenset({"break", "continue", "return"})
LONGEST = 256
"""Maximum tokens of a checked expression; composed ones have a few dozen."""
TOO_LARGE = 1 << 62
"""Range limit of C integers."""
CONDITIONS = frozenset({"?", "&", "|"})
"""As tokens; `&&` is two."""
_OPERATIONS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_HEAD = re.compile(
    r"(?:const )?long (\w+) = ([^;]+) ; \1 < ([^;]+) ; (?:\+ \+ \1|\1 \+ \+|\1 \+ = (.+))"
)


def out_of_bounds(body: str, sizes: Mapping[str, int], extents: Mapping[str, int]) -> str | None:
    """Describe an out-of-bounds access of a kernel to its tensors or arrays, as a verb phrase; None if none is certain.

    Args:
        body: its lines.
        sizes: the graph's, by name.
        extents: elements of the tensors whose extent is known, from the first in memory to the last.
    """
    return (
        _Bounds(body, sizes, extents, last=True).wrong()
        or _Bounds(body, sizes, extents, last=False).wrong()
    )


def elements(shape: str, sizes: Mapping[str, int]) -> int | None:
    """Number of elements of a shape in a text, `s0, s1*32`; None if other terms occur."""
    try:
        parts = ast.parse(f"({shape},)" if shape.strip() else "()", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    known = _Bounds("", sizes, {}, last=True)
    values = [known.of(part) for part in parts.elts] if isinstance(parts, ast.Tuple) else [None]
    return math.prod(n for n in values if n is not None) if None not in values else None


class _Bounds(Scopes):
    def __init__(self, body: str, sizes: Mapping[str, int], extents: Mapping[str, int], last: bool):
        super().__init__(body, sizes)
        self.sizes, self.extents, self.last = sizes, extents, last
        self.strange |= bool(LEAPS & set(self.tokens))
        text = " ".join(self.tokens)
        # A loop's own head sets its variable twice.
        heads = [m[1] for m in re.finditer(r"for \( (?:const )?long (\w+) =", text)]
        sets = re.findall(
            r"(?<![\w.])(\w+) (?:(?:[-+*/%&|^]|< <|> >) )?= (?!=)|(?:\+ \+|- -) (\w+)|(?<!\w)(\w+) (?:\+ \+|- -)",
            text,
        )
        named = Counter(name for found in sets for name in found if name)
        self.moved = {name for name, count in Counter(heads).items() if named[name] > 2 * count}

    def runs(self, head: Sequence[str]) -> bool:
        match = _HEAD.fullmatch(" ".join(head))
        if match is None:
            return False
        start, stop, step = (self.value((text or "1").split(" ")) for text in match.group(2, 3, 4))
        if (
            start is None
            or stop is None
            or not step
            or step < 0
            or stop <= start
            or match[1] in self.moved
        ):
            return False
        self.scopes[-1][match[1]] = (
            start + (stop - 1 - start) // step * step if self.last else start
        )
        return True

    def known_of(self, rest: Sequence[str], constant: bool) -> int | None:
        if rest[:1] == ["["] and rest[-1] == "]":
            return self.value(rest[1:-1])
        return self.value(rest[1:]) if constant and rest[:1] == ["="] else None

    def names(self, tokens: Sequence[str]) -> None:
        if self.conditions or CONDITIONS & set(tokens):
            return
        for number, token in enumerate(tokens[:-1]):
            if tokens[number + 1] != "[" or not token.isidentifier():
                continue
            extent = next(
                (scope[token] for scope in reversed(self.scopes) if token in scope),
                self.extents.get(token),
            )
            if extent is None:
                continue
            index = tokens[number + 2 : number + 2 + LONGEST]
            end = next((place for place, one in enumerate(index) if one in ("[", "]")), None)
            if end is None or index[end] == "[":
                continue
            at = self.value(index[:end])
            if at is not None and not 0 <= at < extent:
                raise ScopeError(f"reaches `{token}[{at}]`, which has {extent} elements")

    def value(self, tokens: Sequence[str]) -> int | None:
        """The value of an expression in this step."""
        if len(tokens) > LONGEST or TYPES & set(tokens):
            return None
        text = " ".join("//" if token == "/" else token for token in tokens)
        choice = re.fullmatch(r"([^?:]+)\?([^?:]+):([^?:]+)", text)
        try:
            made = self.of(
                ast.parse(
                    f"({choice[2]}) if ({choice[1]}) else ({choice[3]})"
                    if choice
                    else text.strip(),
                    mode="eval",
                ).body
            )
            return made if made is not None and abs(made) < TOO_LARGE else None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def of(self, node: ast.expr) -> int | None:
        """See `value`."""
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        if isinstance(node, ast.Name):
            return next(
                (scope[node.id] for scope in reversed(self.scopes) if node.id in scope),
                self.sizes.get(node.id),
            )
        if isinstance(node, ast.IfExp):
            test = self.of(node.test)
            return None if test is None else self.of(node.body if test else node.orelse)
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            parts = [node.left, node.comparators[0]]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
            parts = list(node.args)
        if not parts:
            return None
        left, right = self.of(parts[0]), self.of(parts[1])
        return None if left is None or right is None else _applied(node, left, right)


def _applied(node: ast.expr, a: int, b: int) -> int | None:
    if isinstance(node, ast.Compare):
        return int(a < b) if isinstance(node.ops[0], ast.Lt) else None
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        return (
            min(a, b)
            if name == "least"
            else -(-a // b)
            if name == "cdiv" and a >= 0 and b > 0
            else None
        )
    assert isinstance(node, ast.BinOp), "of two operands"
    if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and (a < 0 or b <= 0):  # C's are others
        return None
    apply = _OPERATIONS.get(type(node.op))
    return apply(a, b) if apply is not None else None


__all__ = ["out_of_bounds", "elements"]
