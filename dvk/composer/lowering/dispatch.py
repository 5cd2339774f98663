"""Lowering of one ATen operator to primitives: tables of rules, operands and views.

`whole_graph.lower` turns each captured operator into pointwise and reduce primitives if a rule exists (`pointwise.py`, `activations.py`,
`elementary.py`, `integers.py`, `powers.py`, `reductions.py`, `bool_reductions.py`, `views.py`) and keeps the PyTorch call otherwise, so
every graph lowers. A rule may decline (return None) for arguments it does not cover. Operators that torch computes well by itself
(`pooling.py`, `arg_reductions.py`, `selections.py`, `data_movement.py`, `indexing.py`, `scans.py`, `matmul.py`, `convolution.py`,
`conv_transpose.py`) leave it only under a separate recipe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dvk.composer.ir.effects import walk_refs
from dvk.composer.ir.nodes import (
    BYTES,
    EIGHTHS,
    FLOATS,
    HALVES,
    INTS,
    IRNode,
    Operand,
    Scalar,
    View,
    broadcast_shapes,
    register_type,
)
from dvk.composer.ir.primitives import PREDICATES
from dvk.composer.lowering import view_pushdown as pieces
from dvk.composer.lowering.magnitude import INFINITE, magnitude_bound
from dvk.records import Node

log = logging.getLogger(__name__)
Rule = Callable[["Lowering", Node, list[Any], dict[str, Any]], "View | tuple[View, ...] | None"]
RULES: dict[str, Rule] = {}

CODEGEN_RULES: dict[str, dict[str, Rule]] = {}
"""Operators lowered only when their recipe is enabled: packet name → rule by recipe."""


COARSE = ("log1p", "expm1", "tanh")
"""Operations whose full precision costs more than a result in fp16 or bf16 takes to be written; back ends may compute fewer digits.
`unit` marks a `log1p` whose operand is between 0 and 1."""
NARROW = "own_narrow"
"""Recipe of kernels that read and write floating-point values of 8 bits."""
NARROW_PRODUCTS = "own_narrow_matmul"
"""Recipe of matmuls of quantised values."""
BLOCK_PRODUCTS = "own_block_matmul"
"""Recipe of matmuls of 8-bit floating-point values with a scale for each block."""
FINITE = "finite"
"""A step that checks a weight and runs the original if an element is not finite."""


class NotLowered(Exception):
    """A rule asked for a primitive that kernels cannot hold: a dtype without a register, or no elements at all."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a lowering rule for ATen operators by packet name (`add`, `layer_norm`)."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def codegen_rule(recipe: str, *names: str) -> Callable[[Rule], Rule]:
    """Register a rule that applies only under `recipe`, after the operator's ordinary rule has declined."""

    def register(function: Rule) -> Rule:
        for name in names:
            CODEGEN_RULES.setdefault(name, {})[recipe] = function
        return function

    return register


@dataclass
class Lowering:
    """The graph being built; `values` maps SSA names to views (or tuples of them)."""

    values: dict[str, Any] = field(default_factory=dict)
    order: list[IRNode] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    named: dict[tuple[str, int], Node] = field(default_factory=dict)
    """Readers of one of several results: by the operator's name and the result's index."""
    read_parts: dict[str, set[int]] = field(default_factory=dict)
    """The used results of a multi-result operator."""
    device: str = "cpu"
    """The target device: PyTorch's kernels differ between devices for special values."""
    tf32: bool = False
    """Matmuls of float32 may use TF32: the task declares that class."""
    narrow: bool = False
    """Kernels may hold floating-point values of 8 bits."""
    narrow_products: bool = False
    """Matmuls of quantised operands multiply their codes."""
    block_products: bool = False
    """The same where scales vary between blocks of k."""
    codes_only: bool = False
    """The rule that runs may multiply nothing else."""
    coarse: bool = False
    """The operator that is lowered rounds its result to fp16 or bf16."""
    kept_whole: set[IRNode] = field(default_factory=set)
    """Computed values of which no slice is recomputed: it would cost more than reading it."""
    pieces: dict[View, View] = field(default_factory=dict)
    copies: dict[View, View] = field(default_factory=dict)
    """A view of a value that a reshape would copy → the value in the view's order."""
    has_effects: bool = False
    """A call writes memory, draws random numbers or is left to PyTorch: no program may stop halfway and run the original instead."""
    last_read: dict[str, int] = field(default_factory=dict)
    """Position in the graph of a name's last reader that needs it in memory; beyond all for outputs."""
    position: int = 0
    """Of the operator that is lowered."""
    completed: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Sums whose operand is completed to a shape by elements of value 0 (`common_loops`)."""
    _settled: dict[View, View] = field(default_factory=dict)
    _largest: dict[IRNode, float] = field(default_factory=dict)
    _looked_at: set[View] = field(default_factory=set)

    def pointwise(
        self,
        op: str,
        *operands: Operand,
        dtype: str | None = None,
        compute: str | None = None,
        **attrs: Any,
    ) -> View:
        """A pointwise value; `dtype` defaults to the compute type, `bool` for predicates."""
        operands = tuple(self.push_views(o) if isinstance(o, View) else o for o in operands)
        views = [o for o in operands if isinstance(o, View)]
        shape = (
            attrs.pop("shape") if "shape" in attrs else broadcast_shapes(*(v.shape for v in views))
        )
        compute = compute or _compute_type([v.dtype for v in views])
        if self.coarse and op in COARSE:
            attrs["coarse"] = True
        result = dtype or ("bool" if op in PREDICATES else compute)
        self._check(shape, result, views)
        prim = IRNode("pw", op, shape, result, operands, {"compute": compute, **attrs})
        self.order.append(prim)
        return View(prim)

    def reduce(
        self,
        op: str,
        operand: View,
        dims: tuple[int, ...],
        keepdim: bool,
        dtype: str | None = None,
        **attrs: Any,
    ) -> View:
        """A reduction (`sum`, `max`, `min`, `prod`) over `dims`, never empty of elements."""
        operand = self.push_views(operand)
        rank = len(operand.shape)
        dims = tuple(sorted({d % rank for d in dims})) if dims else tuple(range(rank))
        shape = tuple(
            1 if d in dims else s for d, s in enumerate(operand.shape) if keepdim or d not in dims
        )
        dtype = dtype or operand.dtype
        self._check(shape, dtype, [operand])
        if all(operand.shape[d] == 1 for d in dims):
            return self.pointwise(
                "as",
                operand.then("reshape", shape, shape),
                dtype=dtype,
                compute=register_type(dtype),
            )
        prim = IRNode(
            "reduce", op, shape, dtype, (operand,), {"dims": dims, "keepdim": keepdim, **attrs}
        )
        self.order.append(prim)
        return View(prim)

    def scan(self, op: str, operand: View, dim: int, backward: bool = False) -> View:
        """A prefix reduction (`sum`, `prod`, `max`) up to each element along `dim`, or from it to the end if `backward`."""
        operand = self.push_views(operand)
        self._check(operand.shape, operand.dtype, [operand])
        if operand.shape[dim] == 1:
            return self.pointwise(
                "as", operand, dtype=operand.dtype, compute=register_type(operand.dtype)
            )
        prim = IRNode(
            "scan",
            op,
            operand.shape,
            operand.dtype,
            (operand,),
            {"dim": dim, "backward": backward, "own": True},
        )
        self.order.append(prim)
        return View(prim)

    def _check(self, shape: tuple[int, ...], dtype: str, operands: list[View]) -> None:
        """Raise NotLowered for a value that kernels cannot hold."""
        dtypes = {dtype, *(v.dtype for v in operands)}
        if not dtypes <= BYTES.keys() or not (self.narrow or dtypes.isdisjoint(EIGHTHS)):
            raise NotLowered("a dtype that kernels do not compute in")
        if 0 in shape or any(0 in v.shape for v in operands):
            raise NotLowered("a tensor without elements")

    def push_views(self, view: View) -> View:
        """Push a view down into a computed value, so that the slice is computed from slices of the operands and fuses with its reader."""
        return pieces.push_views(self, view)

    def rounded_as_stored(self, value: Operand) -> Operand:
        """An fp16 or bf16 value rounded as memory would round it.

        Registers hold such values unrounded, which is more accurate, but a comparison or a rounding step must not depend on whether a value
        went through memory: `y == y.amax()` would find nothing.
        """
        if not isinstance(value, View) or value.dtype not in HALVES:
            return value
        if value.base.kind in ("source", "extern") or value.base.op == "cast":
            return value
        if value not in self._settled:
            self._settled[value] = self.pointwise(
                "cast", value, dtype=value.dtype, compute="float32"
            )
        return self._settled[value]

    def within(self, view: View) -> View:
        """A value that other operators read; float16 is rounded where memory might hold an infinity."""
        if view.dtype != "float16" or magnitude_bound(view.base, self._largest) < INFINITE:
            return view
        value = self.rounded_as_stored(View(view.base))
        assert isinstance(value, View)
        return View(value.base, view.steps)

    def assume_finite(self, weight: Any, margins: Iterable[int]) -> bool:
        """Make the host check a weight whose tensor is padded: padding multiplies zeros, which gives 0 only for finite weights. If the
        check fails, the original runs.

        The answer stays valid until a weight changes. On a GPU there is no check, because the host would have to wait.

        Args:
            weight: the operand in the graph.
            margins: elements of padding.

        Returns:
            Whether the host can check, or need not.
        """
        if self.device != "cpu" or not any(margins):
            return True
        name = weight.get("ref") if isinstance(weight, dict) else None
        node, view = self.nodes.get(name or ""), self.values.get(name or "")
        held = node is not None and node.op in ("param", "buffer", "const", "derived", "input")
        if node is None or not isinstance(view, View) or self.has_effects or not held:
            return False
        if view not in self._looked_at:
            self._looked_at.add(view)
            check = IRNode(
                "extern",
                FINITE,
                (),
                "none",
                (view,),
                {},
                Node(name=f"{name}_{FINITE}", op=FINITE, args=(weight,)),
            )
            self.order.insert(self.order.index(view.base) + 1, check)
        return True

    def typed(self, view: View, dtype: str) -> View:
        """`view` as a value of `dtype`, without rounding a wider register value."""
        return (
            view
            if view.dtype == dtype
            else self.pointwise(
                "as",
                view,
                dtype=dtype,
                compute=_float(dtype) if dtype in FLOATS else register_type(dtype),
            )
        )

    def source(self, node: Node) -> View:
        prim = IRNode(
            "source", node.op, tuple(node.shape or ()), node.dtype or "none", (), {}, node
        )
        self.order.append(prim)
        return View(prim)

    def read_later(self) -> set[IRNode]:
        """Values that operators after this one read, or the caller."""
        names = [name for name, last in self.last_read.items() if last > self.position]
        return {v.base for name in names for v in _flat(self.values.get(name, ()))}

    def number(self, node: Node) -> View | None:
        """A one-element constant written in forward() is a number, not a tensor to load."""
        data: Any = node.kwargs.get("data")
        if (
            node.op != "const"
            or data is None
            or any(s != 1 for s in node.shape or ())
            or node.dtype not in (*FLOATS, *INTS, "bool")
        ):
            return None
        while isinstance(data, list):
            data = data[0]
        data = self.decode(data)
        return self.pointwise(
            "as",
            data,
            shape=tuple(node.shape or ()),
            dtype=node.dtype,
            compute=register_type(node.dtype),
        )

    def extern(self, node: Node) -> View:
        prim = IRNode(
            "extern",
            node.op,
            tuple(node.shape or ()),
            node.dtype or "none",
            tuple(v for v in self.references(node)),
            {},
            node,
        )
        self.order.append(prim)
        return View(prim)

    def try_rule(self, known: Rule | None, node: Node) -> View | tuple[View, ...] | None:
        """Apply a rule to an operator; None if it declines, fails on these operands, or makes another kind of tensor."""
        if known is None:
            return None
        self.coarse = node.dtype in HALVES
        try:
            made = known(
                self,
                node,
                self.decode(list(node.args)),
                {k: self.decode(v) for k, v in node.kwargs.items()},
            )
        except NotLowered:
            return None
        except UNFIT as error:
            log.debug(
                "the rule of %s failed on %s %s: %r",
                node.op,
                node.args,
                node.kwargs,
                error,
                exc_info=True,
            )
            return None
        if isinstance(made, View):
            return made if _is_kind(made, node) else None
        return (
            made
            if all(
                _is_kind(part, self.named.get((node.name, n))) for n, part in enumerate(made or ())
            )
            else None
        )

    def references(self, node: Node) -> list[View]:
        result: list[View] = []
        walk_refs(
            (list(node.args), node.kwargs), lambda name: result.extend(_flat(self.values[name]))
        )
        return result

    def decode(self, value: Any) -> Any:
        """Operands of a node with references replaced by views."""
        if isinstance(value, dict):
            if set(value) == {"ref"}:
                return self.values[value["ref"]]
            if set(value) == {"complex"}:
                return complex(*map(float, value["complex"]))
            return float(value["float"]) if set(value) == {"float"} else value
        return [self.decode(v) for v in value] if isinstance(value, (list, tuple)) else value


def _is_kind(value: object, node: Node | None) -> bool:
    """A rule's result has the shape and type of PyTorch's result."""
    if node is None or node.shape is None or not isinstance(value, View):
        return True
    return (value.shape, value.dtype) == (node.shape, node.dtype)


UNFIT = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    ZeroDivisionError,
    OverflowError,
)
"""Exceptions of rules on unexpected operands: a list in place of a tensor, a missing dimension."""


def _float(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _compute_type(dtypes: list[str]) -> str:
    floats = [d for d in dtypes if d in FLOATS]
    if floats:
        return "float64" if "float64" in floats else "float32"
    ordered = ["bool", "uint8", "int8", "int16", "int32", "int64"]
    return (
        max(dtypes, key=ordered.index, default="float32")
        if all(d in ordered for d in dtypes)
        else "float32"
    )


def _flat(value: Any) -> list[View]:
    return [value] if isinstance(value, View) else [v for part in value for v in _flat(part)]


def padded(args: list[Any], *defaults: Any) -> list[Any]:
    """Positional operands, completed by `defaults`."""
    return [*args, *defaults[len(args) :]]


def is_number(value: Any) -> bool:
    """An operand that is a Python number."""
    return isinstance(value, (bool, int, float))


def as_operand(value: Any) -> Operand | None:
    """A view or number, or None for an operand that a kernel cannot read."""
    if isinstance(value, View):
        return (
            value
            if value.dtype in FLOATS
            or value.dtype in ("bool", "uint8", "int8", "int16", "int32", "int64")
            else None
        )
    return value if is_number(value) else None


__all__ = ["RULES", "Lowering", "Scalar", "as_operand", "is_number", "padded", "rule"]
