"""Elements per thread of a Triton kernel's blocks: a compiler unrolls all of them, and takes minutes over thousands."""

from __future__ import annotations

import ast
import math
import textwrap
from collections.abc import Mapping, Sequence

from dvk.composer.ir.symint import power

MOST = 512
"""Maximum elements per thread: the widest of composed texts, sums of slices of short rows; nearly all stay within 32."""
WARP = 32
MANY = 10**9
"""Cap: larger counts need not be distinguished."""


def too_wide(name: str, head: str, body: Sequence[str], sizes: Mapping[str, int]) -> str | None:
    """The reason why a kernel cannot be compiled in reasonable time; None if there is none, or the kernel is not parsable.

    Args:
        name: name of the kernel.
        head: the content of its brackets: `programs, warps`.
        body: its lines.
        sizes: the graph's, by name.
    """
    try:
        launch = ast.parse(f"({head})", mode="eval").body
        warps = (
            value(launch.elts[-1], sizes) if isinstance(launch, ast.Tuple) and launch.elts else None
        )
        if not warps or warps < 1:
            return None
        each = _elements(ast.parse(textwrap.dedent("\n".join(body))), sizes) // (WARP * warps)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if each <= MOST:
        return None
    said = each if each < MANY else f"more than {MANY}"
    return f"kernel {name} gives each thread {said} elements, and may give {MOST}: smaller blocks or more warps"


def _elements(lines: ast.Module, sizes: Mapping[str, int]) -> int:
    """Upper bound of the widest block's elements: the longest range along each axis, or one without an axis."""
    widest: dict[tuple[bool, ...], int] = {}
    along: dict[int, tuple[bool, ...]] = {}
    for node in ast.walk(lines):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            along[id(node.value)] = tuple(isinstance(part, ast.Slice) for part in node.slice.elts)
        elif (
            isinstance(node, ast.Call) and _is_arange(node.func) and len(node.args) == 2
        ):  # parents come before their children
            axis = along.get(id(node), ())
            widest[axis] = max(widest.get(axis, 1), value(node.args[1], sizes) or 1)
    flat = widest.pop((), 1)
    return max(flat, math.prod(widest.values()))


def _is_arange(called: ast.expr) -> bool:
    return (
        isinstance(called, ast.Attribute)
        and called.attr == "arange"
        and isinstance(called.value, ast.Name)
        and called.value.id == "tl"
    )


def value(node: ast.expr, sizes: Mapping[str, int]) -> int | None:
    """The value of an expression of sizes and numbers; None for other expressions."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return sizes.get(node.id)
    if isinstance(node, ast.BinOp):
        left, right = value(node.left, sizes), value(node.right, sizes)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Add):
            return left + right
        return left // right if isinstance(node.op, ast.FloorDiv) and right else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        given = [value(argument, sizes) for argument in node.args]
        if node.func.id == "pow2" and len(given) == 1 and given[0] is not None:
            return power(given[0])
        if node.func.id == "cdiv" and len(given) == 2 and given[0] is not None and given[1]:
            return -(-given[0] // given[1])
    return None
