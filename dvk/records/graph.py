"""The operators of a task, in order: a `Graph` of `Node`s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, WrapValidator

from dvk.records.record import Record


def _as_it_is(value: Any, checked: Callable[[Any], int]) -> int:
    """A size; an int of a class derived from int stays what it is: the composer's sizes know their formulas."""
    return value if isinstance(value, int) else checked(value)


Size = Annotated[int, WrapValidator(_as_it_is)]


class Node(Record):
    """One operator of the captured graph."""

    name: str = Field(
        description="SSA name: x* inputs, p* parameters and buffers, c* constants, v* values."
    )
    op: str = Field(
        description="`input`, `param`, `buffer`, `const`, or an ATen operator such as `aten.relu.default`."
    )
    args: tuple[Any, ...] = Field(
        (), description="Operands; a value is written {'ref': name}, everything else is a literal."
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Keyword operands, same encoding."
    )
    shape: tuple[Size, ...] | None = Field(
        None, description="Sizes of the value; null when it is not one tensor."
    )
    dtype: str | None = Field(
        None, description="torch dtype of the value without prefix; null when it is not one tensor."
    )
    strides: tuple[Size, ...] | None = Field(
        None, description="Strides in elements; null when it is not one tensor."
    )
    target: str | None = Field(
        None,
        description="For param/buffer/const: dotted path on the module; for input: parameter name.",
    )


class Graph(Record):
    """The captured operator graph: what the composer fuses, retrieval queries with and nano reads."""

    nodes: tuple[Node, ...] = Field(description="In execution order.")
    outputs: Any = Field(description="The returned pytree; tensors are {'ref': name}.")
    training: bool = Field(False, description="The module was captured in train mode.")

    def listing(self) -> str:
        """Canonical text: one `name: dtype[shape] = op(args)` a line; equal graphs have equal listings."""
        lines = []
        for node in self.nodes:
            kind = (
                f"{node.dtype}[{','.join(map(str, node.shape))}]" if node.shape is not None else "?"
            )
            if node.op in ("input", "param", "buffer", "const"):
                lines.append(f"{node.name}: {kind} = {node.op}")
            else:
                operands = [_show(a) for a in node.args] + [
                    f"{k}={_show(v)}" for k, v in node.kwargs.items()
                ]
                op = node.op.removeprefix("aten.").removesuffix(".default")
                lines.append(f"{node.name}: {kind} = {op}({', '.join(operands)})")
        return "\n".join([*lines, f"return {_show(self.outputs)}"])

    def signature(self) -> tuple[str, ...]:
        """Return the operator sequence without shapes: equal for tasks of the same kind."""
        return tuple(n.op.split(".")[1] for n in self.nodes if n.op.startswith("aten."))


def _show(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"ref"}:
        return str(value["ref"])
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_show(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_show(v)}" for k, v in value.items()) + "}"
    return repr(value)
