"""Elements that Triton kernels load and store, over all programs and steps.

A kernel that never writes part of its result, or never reads elements that the result depends on (`live_elements.py`), is wrong even if
every access is within bounds. All programs execute at once, as one more axis of every number; a tensor accessed at unknown offsets, or a
kernel with too many lanes, is ignored.
"""

from __future__ import annotations

import ast
import math
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from dvk.nanolang.lint.lanes import UNKNOWN, LaneError, LaneValue, lined_up, scalar
from dvk.nanolang.lint.live_elements import LiveElements
from dvk.nanolang.lint.reach import ACCESSES, KernelWalk, dotted
from dvk.nanolang.lint.scopes import ScopeUncertain
from dvk.nanolang.lint.width import value as number
from dvk.records import Graph

MOST_PROGRAMS = 1 << 16
MOST_EXPRESSIONS = 100_000
"""Limit per text and pass: about a second."""
MOST_LANES = 1 << 25
"""Limit for all programs of a text together."""
MOST_ELEMENTS = 1 << 22
"""Elements of a tensor that is tracked."""


TENSOR = re.compile(r"(?<![\w.])([xpcvzw]\d+)\b")
_RETURNED = re.compile(r"return ([\w\s,()\[\]]*)")
_PRODUCT = re.compile(r"[vw]\d+ = (?:F\.linear|torch\.(?:matmul|mm|bmm))\(([\w\s,]*)\)")


class TouchedElements:
    """Elements touched so far by a text's kernels."""

    def __init__(self) -> None:
        self.loaded: dict[str, np.ndarray | None] = {}
        """Tensor → booleans over its memory; None if some offsets are unknown."""
        self.stored: dict[str, np.ndarray | None] = {}
        self.beyond: str | None = None
        """A program's out-of-bounds access, as a verb phrase: `reach` checks three programs."""
        self.expressions = self.lanes = 0

    def by(
        self,
        head: str,
        body: Sequence[str],
        sizes: Mapping[str, int],
        tensors: Mapping[str, int | None],
        functions: Collection[str] = (),
    ) -> str | None:
        """Execute a kernel (see `reach.access_error`); returns its certain out-of-bounds access, or None."""
        try:
            lines = ast.parse(textwrap.dedent("\n".join(body))).body
            launch = ast.parse(f"({head})", mode="eval").body
            pair = launch.elts if isinstance(launch, ast.Tuple) else []
            programs = number(pair[0], sizes) if len(pair) == 2 else None
            if programs is None or not 0 < programs <= MOST_PROGRAMS:
                raise ScopeUncertain
            walk = _All(self, programs, sizes, tensors, functions)
            try:
                walk.run(lines)
            finally:
                self.lanes += walk.lanes
        except (LaneError, ScopeUncertain, SyntaxError, ValueError, RecursionError, MemoryError):
            self.lost(tensors)
        return self.beyond

    def lost(self, names: Iterable[str]) -> None:
        """Treat these as unknown from now on."""
        for name in names:
            self.loaded[name] = self.stored[name] = None


class _All(KernelWalk):
    """All programs of a kernel. A kernel is followed to its last expression or not at all: the rest may contain loads."""

    def __init__(
        self,
        touched: TouchedElements,
        programs: int,
        sizes: Mapping[str, int],
        tensors: Mapping[str, int | None],
        functions: Collection[str],
    ):
        super().__init__(None, programs, sizes, tensors, functions)
        self.touched, self.count = touched, programs
        self._known: dict[int, LaneValue] = {}
        """Operands of the current call."""
        self.sure = (
            False  # failures were already reported by `reach`, for programs that certainly run
        )

    def program(self) -> LaneValue:
        return LaneValue((), np.arange(self.count)) if self.count != 1 else scalar(0)

    def of(self, node: ast.expr) -> LaneValue:
        if (known := self._known.pop(id(node), None)) is not None:
            return known
        self.touched.expressions += 1
        if (
            self.touched.expressions > MOST_EXPRESSIONS
            or self.touched.lanes + self.lanes > MOST_LANES
        ):
            raise ScopeUncertain
        if isinstance(node, (ast.List, ast.Tuple)):
            for part in node.elts:
                self.of(part)
            return UNKNOWN
        if isinstance(node, ast.Subscript) and any(
            isinstance(part, (ast.Call, ast.Name)) for part in ast.walk(node.slice)
        ):
            raise ScopeUncertain
        if not isinstance(
            node,
            (
                ast.Constant,
                ast.Name,
                ast.BinOp,
                ast.Compare,
                ast.UnaryOp,
                ast.Subscript,
                ast.Call,
                ast.Attribute,
            ),
        ):
            raise ScopeUncertain
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            raise ScopeUncertain
        if isinstance(node, ast.Attribute) and not ast.unparse(node).startswith("tl."):
            raise ScopeUncertain
        return super().of(node)

    def _loop(self, line: ast.For, variable: str) -> None:
        steps = self._steps(line.iter)
        if steps is None or len(steps) > MOST_EXPRESSIONS:
            raise ScopeUncertain
        for step in steps:
            self._set(variable, scalar(step))
            self.run(line.body)

    def _call(self, node: ast.Call) -> LaneValue:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(
            k.arg is None for k in node.keywords
        ):
            raise ScopeUncertain
        name = dotted(node.func)
        if name in ACCESSES:
            return super()._call(node)
        if isinstance(node.func, ast.Attribute) and not name.startswith(
            "tl."
        ):  # a method: `x.to(tl.float32)`
            given = {id(node.func.value): self.of(node.func.value)}
            if not all(
                isinstance(a, (ast.Constant, ast.Attribute))
                for a in [*node.args, *(k.value for k in node.keywords)]
            ):
                raise ScopeUncertain
        else:
            given = {id(a): self.of(a) for a in [*node.args, *(k.value for k in node.keywords)]}
        if any(
            value.base for value in given.values()
        ):  # the elements read through a pointer there are unknown
            raise ScopeUncertain
        self._known = given
        return super()._call(node)

    def _access(
        self, name: str, values: Sequence[LaneValue], keyed: Mapping[str, LaneValue]
    ) -> LaneValue:
        value = super()._access(name, values, keyed)
        names = ("pointer", "mask", "other") if name == "tl.load" else ("pointer", "value", "mask")
        given = {**dict(zip(names, values, strict=False)), **keyed}
        where, mask = given.get("pointer", UNKNOWN), given.get("mask", LaneValue((), True))
        if name not in ("tl.load", "tl.store") or not where.base or value.shape is None:
            raise ScopeUncertain
        extent = self.tensors.get(where.base)
        into = self.touched.loaded if name == "tl.load" else self.touched.stored
        places, active = lined_up([where, mask], value.shape)
        if extent is None or extent > MOST_ELEMENTS or places is None or active is None:
            self.touched.lost([where.base])
            return value
        flags = into.setdefault(where.base, np.zeros(extent, bool))
        if flags is not None and len(flags) != extent:
            self.touched.lost([where.base])
        elif flags is not None:
            self.touched.lanes += math.prod(np.broadcast_shapes(np.shape(places), np.shape(active)))
            if self.touched.lanes > MOST_LANES:
                raise ScopeUncertain
            places, active = np.broadcast_arrays(places, np.not_equal(active, 0))
            reached = places[active]
            inside = (reached >= 0) & (reached < extent)
            flags[reached[inside]] = True
            if not inside.all():
                self.touched.beyond = (
                    f"reaches `{where.base}[{reached[~inside][0]}]`, which has {extent} elements"
                )
        return value


def untouched_elements(
    touched: TouchedElements,
    graph: Graph,
    kernels: Sequence[tuple[str, Collection[str], Collection[str]]],
    calls: Sequence[str],
    params: Collection[str],
) -> tuple[str, str] | None:
    """Find result elements that are never written, and needed operand elements that are never read: the first in words, and the last kernel
    that might have touched it.

    Args:
        touched: elements touched by all kernels.
        kernels: name, tensors and written tensors of each.
        calls: the text's other lines.
        params: tensors that exist before.
    """
    open_ = [
        (verb, name, flags)
        for verb, about in (("writes", touched.stored), ("reads", touched.loaded))
        for name, flags in about.items()
        if flags is not None and not flags.all()
    ]
    if not open_:
        return None
    whole: Counter[str] = Counter()
    for line in calls:
        if (match := _RETURNED.fullmatch(line) or _PRODUCT.fullmatch(line)) is not None:
            whole.update(set(TENSOR.findall(match[1])))
    made = Counter(step.partition(" = ")[0] for step in calls)
    named = Counter(name for step in calls for name in set(TENSOR.findall(step)))
    written = {name for _, _, names in kernels for name in names}
    needs = LiveElements(graph)
    for verb, name, flags in open_:
        if name not in needs.nodes:
            continue
        if verb == "writes":  # another holder of the memory might write there
            wanted = (
                needs.all_of(name)
                if 0 < whole[name] == named[name] and name not in params
                else None
            )
        else:  # a kernel may still know its own writes, and operands of calls need no kernel that reads them
            wanted = (
                needs.of(name)
                if name not in written and made[name] == named[name] == (name not in params)
                else None
            )
        if (
            wanted is None
            or len(wanted) != len(flags)
            or not (missing := wanted.numpy() & ~flags).any()
        ):
            continue
        last = next(kernel for kernel, tensors, _ in reversed(kernels) if name in tensors)
        why = ", which the result depends on" if verb == "reads" else ""
        return f"kernel {last} never {verb} `{name}[{missing.argmax()}]`{why}", last
    return None


__all__ = ["TENSOR", "TouchedElements", "untouched_elements"]
