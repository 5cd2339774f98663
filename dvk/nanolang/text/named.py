"""Operators by their own names: `e3 = gelu(e2,approximate=tanh)` in a kernel repeats the listing's line.

One operator in the listing is one call in the text, so the writer of a text copies where the composer computes. The function behind a call
is the composer's code for that operator alone, in float32 registers; a group of instructions becomes a call only if it is exactly that
code. Infix arithmetic, comparisons and the instructions that identify reductions stay unchanged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dvk.composer.codegen.cpp.scalar import REGISTER
from dvk.composer.codegen.cpp.writer import CppWriter
from dvk.composer.codegen.triton.writer import TritonWriter
from dvk.composer.compose import Composition, fuse_graph
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.loops import Argument, Instr, Kernel, NamedOperator, Ref, Store
from dvk.composer.ir.nodes import View
from dvk.composer.ir.schedules.cpp import CppLoops
from dvk.composer.ir.symint import constant
from dvk.composer.lowering import activations, pointwise, powers, reductions, views  # noqa: F401 - registers the rules
from dvk.composer.lowering.dispatch import RULES
from dvk.nanolang.frame import CONSTANTS
from dvk.records import BackendName, Graph, Node

PLAIN = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "exp",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
        "and",
        "or",
        "not",
        "where",
        "as",
        "isnan",
        "isinf",
    }
)
"""Single operations that texts write as expressions."""
WORDS: dict[str, Any] = {
    "true": True,
    "false": False,
    "none": None,
    "tanh": "tanh",
    "trunc": "trunc",
    "floor": "floor",
}
"""Literals that are words: the modes of gelu and rounding division."""
LETTERS = "abc"
"""Maximum operands of a function."""
REGISTER_NAME = re.compile(r"[a-z]\w*(?:\[l\])?|\(\((?:float|double)\)[a-z]\w*(?:\[l\])?\)")
"""A register, in C++ perhaps an array element, or rounded."""
CALL = re.compile(r"(?<![\w.])(?P<name>[a-z]\w*)\((?P<args>(?:[^()]|\(\(\w+\)\w+(?:\[l\])?\))*)\)")
_NAMED = {value: constant(name, value) for name, value in CONSTANTS.items()}


@dataclass(frozen=True)
class OperatorForm:
    """One operator with its literals: `gelu({0},approximate=tanh)`."""

    name: str
    args: tuple[Any, ...]
    """`OperandSlot` at the positions of operands, literals unchanged."""
    kwargs: tuple[tuple[str, Any], ...]

    @property
    def count(self) -> int:
        """Operands."""
        return sum(isinstance(a, OperandSlot) for a in self.args)

    def text(self) -> str:
        """Operands as in `NamedOperator.form`."""
        shown = [f"{{{a.number}}}" if isinstance(a, OperandSlot) else literal(a) for a in self.args]
        return f"{self.name}({','.join([*shown, *(f'{k}={literal(v)}' for k, v in self.kwargs)])})"


@dataclass(frozen=True)
class OperandSlot:
    """The slot of a tensor."""

    number: int


# -------------------------------------------------------------- writing


def plain(kernel: Kernel) -> Kernel:
    """Drop instructions that only rename another, and name the constants of formulas."""
    kept: list[Instr] = []
    now: dict[int, int] = {}

    def argument(value: Argument) -> Argument:
        if isinstance(value, Ref):
            return Ref(now[value.id])
        return _NAMED.get(value, value) if type(value) is float else value

    for instr in kernel.instrs:
        source = instr.args[0] if instr.op == "as" else None
        if isinstance(source, Ref) and kernel.instrs[source.id].type == instr.type == instr.compute:
            now[instr.id] = now[source.id]
            # The operator's result has the name of its last primitive.
            if instr.prim is not None and kept[now[source.id]].op != "load":
                kept[now[source.id]] = replace(kept[now[source.id]], prim=instr.prim)
            continue
        now[instr.id] = len(kept)
        kept.append(replace(instr, id=len(kept), args=tuple(argument(a) for a in instr.args)))
    return replace(
        kernel,
        instrs=tuple(kept),
        stores=tuple(Store(now[s.value], s.buffer, s.offset) for s in kernel.stores),
    )


def named(composition: Composition) -> Composition:
    """The composition with its kernels' operators by name."""
    prims, nodes = composition.prims, {n.name: n for n in composition.graph.nodes}
    results = {
        v.base: nodes[name]
        for name, v in prims.values.items()
        if isinstance(v, View) and not v.steps and name in nodes
    }
    for view, piece in prims.pieces.items():
        if view.base in results:
            results[piece] = results[view.base]
    kernels = {
        key: _named(plain(k), results, prims.origins) for key, k in composition.kernels.items()
    }
    return replace(composition, kernels=kernels)


def _named(kernel: Kernel, results: Mapping[Any, Node], origins: Mapping[Any, str]) -> Kernel:
    stored = {s.value for s in kernel.stores}
    readers: dict[int, set[int]] = {}
    members: dict[str, list[Instr]] = {}
    for instr in kernel.instrs:
        for arg in instr.args:
            if isinstance(arg, Ref):
                readers.setdefault(arg.id, set()).add(instr.id)
        if instr.op not in ("load", "iota") and instr.prim in origins:
            members.setdefault(origins[instr.prim], []).append(instr)
    calls: dict[int, Instr] = {}
    gone: set[int] = set()
    for group in members.values():
        last = group[-1]
        node = results.get(last.prim)
        inside = {i.id for i in group}
        alike = all(
            (i.vars, i.stage) == (last.vars, last.stage) and not i.op.startswith("reduce_")
            for i in group
        )
        hidden = all(i.id not in stored and readers.get(i.id, set()) <= inside for i in group[:-1])
        if node is None or not alike or not hidden or (len(group) == 1 and last.op in PLAIN):
            continue
        form = form_of(node)
        operands = _same(group, form) if form is not None else None
        if (
            form is not None
            and operands is not None
            and all(kernel.instrs[o].type == "float32" for o in operands)
        ):
            call = NamedOperator(form.text(), frozenset(i.op for i in group))
            calls[last.id] = replace(
                last, op="call", args=tuple(Ref(o) for o in operands), compute="float32", call=call
            )
            gone |= inside - {last.id}
    return _without(kernel, calls, gone)


def _without(kernel: Kernel, calls: Mapping[int, Instr], gone: set[int]) -> Kernel:
    now = {old.id: new for new, old in enumerate(i for i in kernel.instrs if i.id not in gone)}

    def moved(instr: Instr) -> Instr:
        return replace(
            instr,
            id=now[instr.id],
            args=tuple(Ref(now[a.id]) if isinstance(a, Ref) else a for a in instr.args),
        )

    instrs = tuple(moved(calls.get(i.id, i)) for i in kernel.instrs if i.id not in gone)
    return replace(
        kernel,
        instrs=instrs,
        stores=tuple(Store(now[s.value], s.buffer, s.offset) for s in kernel.stores),
    )


def _same(group: list[Instr], form: OperatorForm) -> list[int] | None:
    """The registers of the form's operands, if the group is exactly the form's function."""
    body = function(form)
    if body is None:
        return None
    inner = [i for i in body.instrs if i.op != "load"]
    if len(inner) != len(group):
        return None
    same = {i.id: j.id for i, j in zip(inner, group, strict=True)}
    operands: dict[int, int] = {}
    loads = {i.id: _position(body, i) for i in body.instrs if i.op == "load"}
    for i, j in zip(inner, group, strict=True):
        if (i.op, i.type, i.compute, len(i.args)) != (j.op, j.type, j.compute, len(j.args)):
            return None
        for a, b in zip(i.args, j.args, strict=True):
            if isinstance(a, Ref) != isinstance(b, Ref):
                return None
            if not isinstance(a, Ref) or not isinstance(b, Ref):
                if type(a) is not type(b) or repr(a) != repr(b):
                    return None
            elif a.id in loads:
                if operands.setdefault(loads[a.id], b.id) != b.id:
                    return None
            elif same[a.id] != b.id:
                return None
    outside = set(same.values())
    known = all(o not in outside for o in operands.values())
    return (
        [operands[n] for n in range(form.count)]
        if known and set(operands) == set(range(form.count))
        else None
    )


def _position(kernel: Kernel, load: Instr) -> int:
    node = kernel.inputs[load.buffer].prim.node
    assert node is not None
    return int(node.name[1:])


def form_of(node: Node) -> OperatorForm | None:
    """The form of an operator; None if an operand is neither a tensor nor a plain literal."""
    args: list[Any] = []
    count = 0
    for arg in node.args:
        if isinstance(arg, dict) and set(arg) == {"ref"}:
            args.append(OperandSlot(count))
            count += 1
        elif arg is None or type(arg) in (bool, int, float):
            args.append(arg)
        else:
            return None
    if not 1 <= count <= len(LETTERS) or any(
        v is not None and type(v) not in (bool, int, float, str) for v in node.kwargs.values()
    ):
        return None
    name = node.op.split(".")[1] if node.op.startswith("aten.") else ""
    return OperatorForm(name, tuple(args), tuple(node.kwargs.items())) if name in RULES else None


def literal(value: Any) -> str:
    """A literal as the listing shows it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


# -------------------------------------------------------------- reading


def read(name: str, args: str) -> tuple[OperatorForm, tuple[str, ...]] | None:
    """A call in a text: its form and the operands' names; None if it does not call an operator."""
    if name not in RULES:
        return None
    values: list[str] = []
    positional: list[Any] = []
    keyed: list[tuple[str, Any]] = []
    for part in (p.strip() for p in args.split(",")):
        key, equals, text = part.partition("=")
        if not equals and part not in WORDS and REGISTER_NAME.fullmatch(part):
            positional.append(OperandSlot(len(values)))
            values.append(part)
            continue
        value = _literal(text.strip() if equals else part)
        if value is Ellipsis:
            return None
        if equals:
            keyed.append((key.strip(), value))
        else:
            positional.append(value)
    if not 1 <= len(values) <= len(LETTERS):
        return None
    form = OperatorForm(name, tuple(positional), tuple(keyed))
    return (form, tuple(values)) if function(form) is not None else None


def _literal(text: str) -> Any:
    if text in WORDS:
        return WORDS[text]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return Ellipsis
    return value if type(value) in (int, float) else Ellipsis


@lru_cache(maxsize=4096)
def function(form: OperatorForm) -> Kernel | None:
    """The composer's computation of the operator alone, on float32; None if it is more than register arithmetic."""
    nodes = [
        Node(
            name=f"x{n}",
            op="input",
            shape=(8,),
            dtype="float32",
            strides=contiguous_strides((8,)),
            target=f"x{n}",
        )
        for n in range(form.count)
    ]
    args = tuple({"ref": f"x{a.number}"} if isinstance(a, OperandSlot) else a for a in form.args)
    nodes.append(
        Node(
            name="v0",
            op=f"aten.{form.name}.default",
            args=args,
            kwargs=dict(form.kwargs),
            shape=(8,),
            dtype="float32",
            strides=contiguous_strides((8,)),
        )
    )
    try:
        found = fuse_graph(
            Graph(nodes=tuple(nodes), outputs={"ref": "v0"}), ("fuse_pointwise",), "cpu"
        ).ordered
    except Exception:  # noqa: BLE001 - a model wrote the literals: any rule may trip over them
        return None
    if len(found) != 1 or len(found[0].stores) != 1:
        return None
    kernel = plain(found[0])
    single = all(
        i.op == "load" or (not i.op.startswith(("reduce_", "cast_")) and i.op != "iota")
        for i in kernel.instrs
    )
    whole = kernel.instrs[kernel.stores[0].value].type == "float32" and all(
        b.dtype == "float32" and not b.steps for b in kernel.inputs
    )
    return kernel if single and whole and len(kernel.inputs) == form.count else None


def defined(form: OperatorForm, name: str, backend: BackendName) -> str:
    """The source of the function behind a call.

    Raises:
        ValueError: there is none.
    """
    kernel = function(form)
    if kernel is None:
        raise ValueError(f"{form.text()} is no function of registers")
    letters = {i.id: LETTERS[_position(kernel, i)] for i in kernel.instrs if i.op == "load"}
    result = kernel.stores[0].value
    inner = [i for i in kernel.instrs if i.op != "load"]
    params = LETTERS[: form.count]

    def renamed(text: str) -> str:
        return re.sub(r"\bv(\d+)\b", lambda m: letters.get(int(m[1]), m[0]), text)

    if backend == "triton":
        writer = TritonWriter(kernel, [])
        lines = [renamed(f"v{i.id} = {writer.value(i)}") for i in inner]
        return "\n".join(
            [
                "@triton.jit",
                f"def {name}({', '.join(params)}):",
                *(f"    {line}" for line in [*lines, f"return v{result}"]),
            ]
        )
    scalar = CppWriter(kernel, CppLoops(parallel="serial", chunk=8, width=512), {})
    lines = [renamed(f"{REGISTER[i.type]} v{i.id} = {scalar._expression(i)};") for i in inner]
    head = f"static inline __attribute__((always_inline)) float {name}({', '.join(f'float {p}' for p in params)}) {{"
    return "\n".join([head, *(f"  {line}" for line in [*lines, f"return v{result};"]), "}"])


__all__ = ["CALL", "OperatorForm", "defined", "named", "plain", "read"]
