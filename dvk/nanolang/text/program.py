"""Host code of a compact text: plain torch calls, kernel launches, `return`.

Values have the listing's names (`v3` is the listing's `v3`); other values are `z0`, `z1`, …. Memory of a value with the listing's layout is
not mentioned, nor is the layout that a call's result must then have: `expand` knows both from the listing. In addition to torch, the frame
provides `F`, `strided`, `nhwc`, `held`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dvk.composer.dropin.forward import HostWriter
from dvk.composer.fusion.groups import Partition
from dvk.composer.ir import structures
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import is_view
from dvk.composer.ir.loops import Buffer, Kernel
from dvk.composer.ir.nodes import IRNode, View
from dvk.composer.lowering.whole_graph import PrimGraph
from dvk.nanolang.listing.prompt import DTYPES
from dvk.records import Graph, Node

Shown = Callable[[Kernel, list[str], list[str], Callable[[str, int], str]], list[str]]
"""Lines of a kernel on named tensors; the last argument allocates another tensor of a type and a number of elements."""


@dataclass(frozen=True)
class HostText:
    """The parts of the host program."""

    held: list[str]
    """Lines before the others: weights derived from weights."""
    lines: list[str]
    inplace: Mapping[str, dict[int, int]]


class HostTextWriter(HostWriter):
    """A `HostWriter` for people and small models: short names, no addresses, no module.

    Args:
        listing: the listed graph, whose layouts need no mention.
        names: the listing's names, from `listed`.
    """

    def __init__(
        self,
        graph: Graph,
        prims: PrimGraph,
        part: Partition,
        kernels: Mapping[int, Kernel],
        shown: Shown,
        inplace: bool,
        device: str,
        listing: Graph,
        names: Mapping[IRNode | View, str],
    ):
        super().__init__(
            graph, prims, part, kernels, lambda k, i, o: shown(k, i, o, self._more), inplace, device
        )
        self.nodes = {node.name: node for node in listing.nodes}
        self.listed = names
        inputs = [
            b for k in kernels.values() for b in k.inputs if not b.steps and b.prim.kind == "extern"
        ]
        self.read = {b.prim: b for b in inputs}
        """Results of calls that kernels read, and their required layout."""
        self.used: set[str] = set()
        self.derived: list[str] = []
        """Functions that derive weights from weights."""

    def text(self) -> HostText:
        program = self.program()
        lines = [line for line in program.lines if not line.startswith("del ")]
        return HostText(
            [f"w{n} = held({text})" for n, text in enumerate(self.derived)],
            [*lines, f"return {program.result}"],
            program.inplace,
        )

    def _tree(self, tree: Any) -> str:
        return super()._tree(structures.flat(tree))

    def view(self, value: View) -> str:
        return value.call(self.names[value.base])

    # -------------------------------------------------------------- names

    def _fresh(self, prim: IRNode | None = None) -> str:
        name = self.listed.get(prim) if prim is not None else None
        if name is not None and name not in self.used:
            self.used.add(name)
            return name
        self.counter += 1
        return f"z{self.counter - 1}"

    def _source(self, prim: IRNode) -> str:
        assert prim.node is not None
        return prim.node.name

    def _lies_as_listed(self, name: str, buffer: Buffer) -> bool:
        node = self.nodes.get(name)
        if (
            node is None
            or node.shape is None
            or node.dtype != buffer.dtype
            or tuple(node.shape) != tuple(buffer.shape)
        ):
            return False
        return same_layout(
            node.strides or contiguous_strides(node.shape), buffer.strides, buffer.shape
        )

    # -------------------------------------------------------------- steps

    def _check_layout(self, name: str, buffer: Buffer) -> None:
        pass

    def _memory(self, buffer: Buffer, kernel: Kernel, inputs: list[str]) -> str:
        """The name of an output in fresh memory: a text writes over no dead value."""
        name = self._fresh()
        if not self._lies_as_listed(name, buffer):
            self.lines.append(f"{name} = {new(buffer.dtype, buffer.shape, buffer.strides)}")
        return name

    def _more(self, dtype: str, count: int) -> str:
        name = self._fresh()
        self.lines.append(f"{name} = {new(dtype, (count,), (1,))}")
        return name

    def _call(self, node: Node) -> str:
        if node.op == "restrided":
            return f"strided({self._literal(node.args[0])}, {node.strides!r})"
        if node.op == "derived":
            self.derived.append(node.kwargs["make"])
            return f"w{len(self.derived) - 1}({', '.join(self._literal(a) for a in node.args)})"
        text = super()._call(node)
        return (
            text.replace("torch.nn.functional.", "F.", 1)
            if text.startswith("torch.nn.functional.")
            else text
        )

    def _extern(self, prim: IRNode) -> None:
        super()._extern(prim)
        buffer, node = self.read.get(prim), prim.node
        if buffer is None or node is None or node.op in ("derived", "restrided"):
            return
        # A view of a guarded value keeps its layout; a call may return another layout on another machine.
        dense = same_layout(buffer.strides, contiguous_strides(buffer.shape), buffer.shape)
        name, call = self.lines[-1].split(" = ", 1)
        if (is_view(node) and not dense) or self._lies_as_listed(name, buffer):
            return
        self.lines[-1] = f"{name} = {laid_out(call, buffer.shape, buffer.strides)}"


def listed(graph: Graph, prims: PrimGraph) -> dict[IRNode | View, str]:
    """The listing's name of every named value, and of every view of another; equal views get the name of the first."""
    result: dict[IRNode | View, str] = {}
    for node in graph.nodes:
        value = prims.values.get(node.name)
        if not isinstance(value, View) or not node.name[1:].isdigit():
            continue
        if not value.steps or value.base not in result:
            result[value.base] = node.name
        if value.steps:
            result.setdefault(value, node.name)
    for view, piece in prims.pieces.items():
        if view in result:
            result.setdefault(piece, result[view])
    return result


def new(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> str:
    """Memory that the listing does not describe, as an allocation in the text: `empty(f32, s0, s1)`."""
    parts = [DTYPES[dtype], *map(repr, shape)]
    if not same_layout(strides, contiguous_strides(shape), shape):
        parts.append(f"strides={strides!r}")
    return f"empty({', '.join(parts)})"


def laid_out(call: str, shape: Any, strides: Any) -> str:
    """An expression whose result has a layout."""
    if same_layout(strides, contiguous_strides(shape), shape):
        return f"{call}.contiguous()"
    if len(shape) == 4 and same_layout(strides, _channels_last(shape), shape):
        return f"nhwc({call})"
    return f"strided({call}, {tuple(strides)!r})"


def same_layout(a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Strides that differ only in dimensions of extent one."""
    return all(x == y or size == 1 for x, y, size in zip(a, b, shape, strict=True))


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    _, channels, height, width = shape
    return (height * width * channels, 1, width * channels, channels)
