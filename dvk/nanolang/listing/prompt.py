"""The question: a graph as a short listing, one operator a line.

    triton s0=16384 s1=1024 s2=4096
    x0 f32[s0,s1]
    p0 f32[s2,s1]
    p1 f32[s2]
    v0 f32[s0,s2] = linear(x0,p0,p1)
    v1 f32[s0,s2] = gelu(v0)
    return v1

Strides follow a type where they are not row-major: `f32[s0,s1]@1,s0`. Floats stand as Python prints them. What people write in
many ways is listed in one (`canonical`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dvk.composer.ir import structures
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import is_view
from dvk.nanolang.listing.canonical import canonical, is_split
from dvk.nanolang.listing.symbolic import END, Names, packet, symbolic
from dvk.records import BackendName, Graph, Node

DTYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "bool": "b1",
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "complex64": "c64",
    "complex128": "c128",
}
MAX_SHOWN = 16
"""Maximum elements of a listed constant."""


def prompt(graph: Graph, device: str, backend: BackendName | None = None) -> str:
    """The listing of a captured graph.

    Args:
        device: `cpu` or `cuda`; names the back end by default.
    """
    names = Names(graph)
    return listing(
        symbolic(graph, names), names, backend or ("triton" if device == "cuda" else "cpp")
    )


def listing(graph: Graph, names: Names, backend: str) -> str:
    """Like `prompt`, for a graph with named sizes."""
    head = [backend, *(f"{name}={value}" for name, value in names.values.items())]
    nodes = {node.name: node for node in graph.nodes}
    returned = f"return {_tree(structures.flat(graph.outputs))}"
    lines = [
        " ".join(head),
        *(_line(canonical(node, nodes)) for node in graph.nodes if not is_split(node)),
        returned,
    ]
    return "\n".join(lines) + "\n"


def _line(node: Node) -> str:
    kind = (
        "".join((" ", DTYPES.get(node.dtype or "", node.dtype or ""), _shape(node)))
        if node.shape is not None
        else ""
    )
    if node.op in ("input", "param", "buffer"):
        return f"{node.name}{kind}"
    if node.op == "const":
        data = _flat(node.kwargs.get("data"))
        return f"{node.name}{kind}" + (
            f" = [{','.join(map(repr, data))}]"
            if data is not None and len(data) <= MAX_SHOWN
            else ""
        )
    named = (
        {} if node.op == "left" else node.kwargs
    )  # the module decides which function it calls with these operands
    operands = [_operand(a) for a in node.args] + [f"{k}={_operand(v)}" for k, v in named.items()]
    return f"{node.name}{kind} = {packet(node)}({','.join(operands)})"


def _shape(node: Node) -> str:
    shape = node.shape or ()
    text = f"[{','.join(map(repr, shape))}]"
    strides = node.strides
    # The strides of a view follow from its base.
    if strides is None or is_view(node):
        return text
    if all(
        a == b or size == 1
        for a, b, size in zip(strides, contiguous_strides(shape), shape, strict=True)
    ):
        return text
    return (
        text
        + "@"
        + ",".join(repr(s) if size != 1 else "0" for s, size in zip(strides, shape, strict=True))
    )


def _operand(value: Any) -> str:
    if isinstance(value, dict):
        ((key, inner),) = value.items()
        return str(DTYPES.get(inner, inner) if key == "dtype" else inner)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_operand(v) for v in value)}]"
    if value is None or value is True or value is False:
        return str(value).lower()
    return "end" if value == END else str(value) if isinstance(value, str) else repr(value)


def _flat(data: Any) -> list[Any] | None:
    if data is None:
        return None
    return [v for part in data for v in _flat(part) or []] if isinstance(data, list) else [data]


def _tree(tree: Any, show: Callable[[Any], str] = repr) -> str:
    if "ref" in tree:
        return str(tree["ref"])
    if "tuple" in tree or "list" in tree:
        left, right = "()" if "tuple" in tree else "[]"
        return left + ",".join(_tree(v) for v in tree.get("tuple", tree.get("list"))) + right
    if "named" in tree:
        return _tree({"tuple": tree["named"][1]}, show)
    if "dict" in tree:
        return "{" + ",".join(f"{k!r}:{_tree(v)}" for k, v in tree["dict"]) + "}"
    return show(tree["value"])
