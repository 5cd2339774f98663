"""Find out-of-bounds accesses and mismatched blocks of Triton kernels in one abstract execution, without a compiler.

The first and the last program always run, as does one between them (the last ones may have nothing left to do), and the first and the
last step of a nonempty loop. Their out-of-bounds loads and stores, and blocks that do not broadcast, are errors; unknown values
(`lanes.py`) are ignored, as is a kernel with a kind of statement that is not supported here.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dvk.composer.ir.symint import power
from dvk.nanolang.frame import CONSTANTS
from dvk.nanolang.lint import lanes
from dvk.nanolang.lint.lanes import UNKNOWN, LaneError, LaneValue, Shape, joined, scalar, shown
from dvk.nanolang.lint.operands import LANEWISE, operand_count_error
from dvk.nanolang.lint.scopes import ScopeUncertain
from dvk.nanolang.lint.width import value as number

MOST_STATEMENTS = 20_000
MOST_LANES = 1 << 24
"""Limit for all blocks of a kernel together; composed ones have a few million at most."""
REDUCTIONS = frozenset({"tl.sum", "tl.max", "tl.min", "tl.reduce", "dvk_max", "dvk_max_f64"})
SCANS = frozenset({"tl.cumsum", "tl.cumprod", "tl.associative_scan"})
ACCESSES = frozenset(
    {
        "tl.load",
        "tl.store",
        *(f"tl.atomic_{name}" for name in ("add", "max", "min", "and", "or", "xor", "xchg")),
    }
)
WHOLE = frozenset({"tl.int32", "tl.int64"})
HINTS = frozenset(
    {"num_stages", "flatten", "loop_unroll_factor", "warp_specialize", "disallow_acc_multi_buffer"}
)
"""Loop options: they change no step."""


def access_error(
    head: str,
    body: Sequence[str],
    sizes: Mapping[str, int],
    tensors: Mapping[str, int | None],
    functions: Collection[str] = (),
) -> str | None:
    """Describe a certain error of a kernel, as a verb phrase; None if there is none.

    Args:
        head: the content of its brackets: `programs, warps`.
        body: its lines.
        sizes: the graph's, by name.
        tensors: those it names, with their elements from the first in memory to the last if known.
        functions: lane functions available in addition to the frame's.
    """
    try:
        lines = ast.parse(textwrap.dedent("\n".join(body))).body
        launch = ast.parse(f"({head})", mode="eval").body
        pair = launch.elts if isinstance(launch, ast.Tuple) else []
        programs = number(pair[0], sizes) if len(pair) == 2 else None
        for program in (
            sorted({0, programs // 3, programs - 1})
            if programs is not None and programs > 0
            else (None,)
        ):
            KernelWalk(program, programs, sizes, tensors, functions).run(lines)
    except LaneError as error:
        return str(error)
    except (ScopeUncertain, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return None


def _stored(line: ast.stmt) -> set[str]:
    """The names assigned in a statement."""
    return {
        n.id for n in ast.walk(line) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


class KernelWalk:
    """One program of a kernel, executed abstractly."""

    def __init__(
        self,
        number: int | None,
        programs: int | None,
        sizes: Mapping[str, int],
        tensors: Mapping[str, int | None],
        functions: Collection[str],
    ):
        self.number, self.programs = number, programs
        self.tensors, self.functions = tensors, functions
        self.values: dict[str, LaneValue] = {name: scalar(size) for name, size in sizes.items()}
        self.values |= {name: LaneValue(()) for name in CONSTANTS} | {
            name: LaneValue((), 0, name) for name in tensors
        }
        self.stored: dict[int, set[str]] = {}
        """Loop → the names assigned in it."""
        self.sure = True
        """The current statement certainly runs."""
        self.statements = self.lanes = 0

    def run(self, lines: Sequence[ast.stmt]) -> None:
        """Execute statements.

        Raises:
            LaneError: one of them fails.
            ScopeUncertain: one of them cannot be analysed.
        """
        for line in lines:
            self.statements += 1
            if self.statements > MOST_STATEMENTS or self.lanes > MOST_LANES:
                raise ScopeUncertain
            if isinstance(line, ast.For) and isinstance(line.target, ast.Name) and not line.orelse:
                self._loop(line, line.target.id)
            elif (
                isinstance(line, ast.Assign)
                and len(line.targets) == 1
                and isinstance(line.targets[0], ast.Name)
            ):
                self._set(line.targets[0].id, self.of(line.value))
            elif isinstance(line, ast.AugAssign) and isinstance(line.target, ast.Name):
                before = self.values.get(line.target.id, UNKNOWN)
                self._set(
                    line.target.id, self._tried(lanes.applied, line.op, before, self.of(line.value))
                )
            elif isinstance(line, ast.Expr):
                self.of(line.value)
            elif isinstance(line, ast.If):
                self._branch(line)
            elif not isinstance(line, ast.Pass):
                raise ScopeUncertain

    def program(self) -> LaneValue:
        """The program id."""
        return scalar(self.number)

    def _set(self, name: str, value: LaneValue) -> None:
        if name in ("tl", "range", "cdiv", "pow2", *self.functions) or name.startswith("dvk_"):
            raise ScopeUncertain
        self.values[name] = value

    def _tried(self, make: Any, *operands: Any) -> LaneValue:
        """Treat a failing value as unknown if it may not be needed."""
        try:
            value: LaneValue = make(*operands)
        except LaneError:
            if self.sure:
                raise
            return UNKNOWN
        self.lanes += value.data.size if isinstance(value.data, np.ndarray) else 0
        return value

    # ------------------------------------------------------------ branches and loops

    def _branch(self, line: ast.If) -> None:
        """The branch that runs; both, neither for sure, where that is not known."""
        test = self.of(line.test)
        if test.shape == () and not test.base and test.data is not None:
            return self.run(line.body if test.data else line.orelse)
        before, sure = dict(self.values), self.sure
        self.sure = False
        self.run(line.body)
        self.values = dict(before)
        self.run(line.orelse)
        self.sure = sure
        self._forget(_stored(line), before)

    def _loop(self, line: ast.For, variable: str) -> None:
        steps = self._steps(line.iter)
        before, sure = dict(self.values), self.sure
        if id(line) not in self.stored:
            self.stored[id(line)] = _stored(line)
        if steps is None:
            self.sure = False
            self._forget(self.stored[id(line)], before)
        for place, step in enumerate(
            [None] if steps is None else dict.fromkeys((*steps[:1], *steps[-1:]))
        ):
            if place:
                self._forget(self.stored[id(line)], before)
            self._set(variable, scalar(step))
            self.run(line.body)
        self.sure = sure
        if steps is None:
            self._forget(self.stored[id(line)], before)

    def _forget(self, names: Collection[str], before: Mapping[str, LaneValue]) -> None:
        """Keep only the shapes of values that a loop changes; drop those that change, too."""
        self.statements += len(names)
        shapes = {
            name: [
                (v.shape, v.base)
                for v in (before.get(name), self.values.get(name))
                if v is not None
            ]
            for name in names
        }
        kept = all(found[:1] * len(found) == found for found in shapes.values())
        self.values |= {
            name: LaneValue(found[0][0], None, found[0][1]) if kept and found else UNKNOWN
            for name, found in shapes.items()
        }

    def _steps(self, over: ast.expr) -> range | None:
        """The values of a loop's variable, if known."""
        if not isinstance(over, ast.Call) or dotted(over.func) not in (
            "range",
            "tl.range",
            "tl.static_range",
        ):
            raise ScopeUncertain
        if not 1 <= len(over.args) <= 3 or not HINTS.issuperset(str(k.arg) for k in over.keywords):
            raise ScopeUncertain
        ends = [
            value.data if value.shape == () and type(value.data) is int else None
            for value in map(self.of, over.args)
        ]
        start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1)[:3]
        return (
            range(start, stop, step)
            if start is not None and stop is not None and step is not None and step > 0
            else None
        )

    # ------------------------------------------------------------ expressions

    def of(self, node: ast.expr) -> LaneValue:
        """The abstract value of an expression."""
        if isinstance(node, ast.Constant):
            return (
                scalar(node.value)
                if type(node.value) is int
                else LaneValue(())
                if isinstance(node.value, (bool, float))
                else UNKNOWN
            )
        if isinstance(node, ast.Name):
            return self.values.get(node.id, UNKNOWN)
        if isinstance(node, ast.BinOp):
            return self._tried(lanes.applied, node.op, self.of(node.left), self.of(node.right))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._tried(
                lanes.applied, node.ops[0], self.of(node.left), self.of(node.comparators[0])
            )
        if isinstance(node, ast.UnaryOp):
            value = self.of(node.operand)
            if value.base or isinstance(node.op, ast.Not):
                return UNKNOWN
            negative = isinstance(node.op, ast.USub) and value.data is not None
            return (
                self._tried(lanes.applied, ast.Sub(), scalar(0), value)
                if negative
                else LaneValue(value.shape)
            )
        if isinstance(node, ast.Subscript):
            return self._tried(lanes.expanded, self.of(node.value), node.slice)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, (ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom)):
            raise ScopeUncertain
        return UNKNOWN

    def _call(self, node: ast.Call) -> LaneValue:
        name = dotted(node.func)
        if any(isinstance(a, ast.Starred) for a in node.args) or any(
            k.arg is None for k in node.keywords
        ):
            return UNKNOWN
        if isinstance(node.func, ast.Attribute) and not name.startswith("tl."):
            return self._method(self.of(node.func.value), node)
        values = [self.of(a) for a in node.args]
        keyed = {str(k.arg): k.value for k in node.keywords}
        if self.sure and (why := operand_count_error(name, len(values) + len(keyed))) is not None:
            raise LaneError(why)
        if name in LANEWISE or name in self.functions:
            shape = self._tried(lambda: LaneValue(joined(values))).shape
            return UNKNOWN if keyed or any(v.base for v in values) else LaneValue(shape)
        if name in REDUCTIONS or name in SCANS:
            return self._tried(self._folded, name, node.args, keyed, values)
        if name in ACCESSES:
            return self._tried(
                self._access, name, values, {key: self.of(value) for key, value in keyed.items()}
            )
        if name in ("tl.maximum", "tl.minimum") and len(values) == 2:
            return self._tried(
                lanes.extreme, np.maximum if name == "tl.maximum" else np.minimum, values
            )
        if name == "tl.where" and len(values) == 3:
            return self._tried(lanes.chosen, *values)
        return self._tried(self._made, name, node.args, values)

    def _method(self, value: LaneValue, node: ast.Call) -> LaneValue:
        """`x.to(tl.int64)`; other methods give unknown values."""
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "to" or value.base:
            return UNKNOWN
        kind = node.args[0] if len(node.args) == 1 and not node.keywords else None
        return LaneValue(
            value.shape,
            value.data + 0
            if kind is not None and dotted(kind) in WHOLE and value.data is not None
            else None,
        )

    # ------------------------------------------------------------ functions

    def _made(self, name: str, args: Sequence[ast.expr], values: Sequence[LaneValue]) -> LaneValue:
        """A function of plain numbers."""
        numbers = [
            v.data if v.shape == () and not v.base and type(v.data) is int else None for v in values
        ]
        if name == "tl.program_id" and numbers[:1] in ([0], [1], [2]):
            return self.program() if numbers == [0] else scalar(0)
        if name == "tl.num_programs" and numbers == [0]:
            return scalar(self.programs)
        if name == "float" and len(args) == 1 and isinstance(args[0], ast.Constant):
            return LaneValue(())
        if name in ("tl.full", "tl.zeros") and args and isinstance(args[0], (ast.List, ast.Tuple)):
            return LaneValue(
                self._block(args[0]),
                0 if name == "tl.zeros" and dotted(args[-1]) in WHOLE else None,
            )
        if (
            name == "tl.broadcast_to"
            and len(args) == 2
            and isinstance(args[1], (ast.List, ast.Tuple))
            and not values[0].base
        ):
            return LaneValue(self._block(args[1]))
        known = [n for n in numbers if n is not None]
        if len(known) < len(args):
            return UNKNOWN
        if name in ("cdiv", "tl.cdiv") and len(known) == 2 and known[0] >= 0 and known[1] > 0:
            return scalar(-(-known[0] // known[1]))
        if name == "pow2" and len(known) == 1:
            return scalar(power(known[0]))
        if name == "tl.arange" and len(known) == 2:
            count = known[1] - known[0]
            if count < 1 or count & (count - 1):
                raise LaneError(f"asks for a range of {count} elements, which is no power of two")
            return LaneValue((count,), np.arange(*known) if count <= lanes.WIDEST else None)
        return UNKNOWN

    def _block(self, shape: ast.List | ast.Tuple) -> Shape | None:
        lengths = [self.of(part) for part in shape.elts]
        sizes = [v.data for v in lengths if v.shape == () and type(v.data) is int]
        if len(sizes) < len(lengths):
            return None
        if any(n < 1 or n & (n - 1) for n in sizes):
            raise LaneError(f"asks for a block of {sizes}, whose sizes are to be powers of two")
        return tuple(sizes)

    def _folded(
        self,
        name: str,
        args: Sequence[ast.expr],
        keyed: Mapping[str, ast.expr],
        values: Sequence[LaneValue],
    ) -> LaneValue:
        """A reduction or a scan along an axis."""
        keeps = keyed.get(
            "keep_dims",
            args[2] if name.startswith("dvk_max") and len(args) == 3 else ast.Constant(False),
        )
        axis = (
            values[1].data
            if len(values) > 1
            else self.of(keyed["axis"]).data
            if "axis" in keyed
            else None
        )
        more = 2 if name in ("tl.sum", "tl.max", "tl.min") else 3
        odd = not set(keyed) <= {"axis", "keep_dims", "reverse"} or len(args) > more
        shape = values[0].shape if values else None
        if (
            shape is None
            or type(axis) is not int
            or values[0].base
            or odd
            or not isinstance(keeps, ast.Constant)
        ):
            return UNKNOWN
        if not -len(shape) <= axis < len(shape):
            raise LaneError(
                f"folds axis {axis} of "
                + (f"a block of {shown(shape)}" if shape else "a single number")
            )
        if name in SCANS:
            return LaneValue(shape)
        axis %= len(shape)
        return LaneValue((*shape[:axis], *((1,) if keeps.value else ()), *shape[axis + 1 :]))

    def _access(
        self, name: str, values: Sequence[LaneValue], keyed: Mapping[str, LaneValue]
    ) -> LaneValue:
        """A load, a store or an atomic operation."""
        names = (
            ("pointer", "mask", "other")
            if name == "tl.load"
            else ("pointer", "value" if name == "tl.store" else "val", "mask")
        )
        given = {**dict(zip(names, values, strict=False)), **keyed}
        if "pointer" not in given or not given["pointer"].base:
            return UNKNOWN
        where, mask = given["pointer"], given.get("mask")
        what = next((given[key] for key in ("value", "val") if key in given), None)
        beside = [
            (part, said) for part, said in ((what, "a block"), (mask, "a mask")) if part is not None
        ]
        verb = "loads" if name == "tl.load" else "stores"
        for part, said in beside if where.shape is not None else ():
            together = joined([where, part])
            if (
                part.shape
                and together is not None
                and (not where.shape or verb == "stores" and together != where.shape)
            ):
                with_it = "with a mask" if said == "a mask" else said
                raise LaneError(
                    f"{verb} {with_it} of {shown(part.shape)} through "
                    + (f"pointers of {shown(where.shape)}" if where.shape else "a single pointer")
                )
        extent = self.tensors.get(where.base)
        if (
            extent is not None
            and self.sure
            and where.shape is not None
            and (mask is None or mask.shape is not None)
        ):
            place = lanes.reaching(where, mask, extent)
            if place is not None:
                raise LaneError(f"reaches `{where.base}[{place}]`, which has {extent} elements")
        return LaneValue(joined([replace(where, base=""), *([mask] if mask is not None else [])]))


def dotted(node: ast.expr) -> str:
    """`tl.load`; empty for other names."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


__all__ = ["ACCESSES", "KernelWalk", "access_error", "dotted"]
