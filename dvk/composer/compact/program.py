"""`run`: the host half of a compact text, in plain torch calls and launches.

Values go by the names of the listing (`v3` is the listing's `v3`); what the listing does not name is `t0`, `t1`, ….
The frame gives what is used beside torch: `F`, `strided`, `nhwc`, `held`, and the kernels' call forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dvk.composer.affine import contiguous_strides
from dvk.composer.fuse import Partition
from dvk.composer.host import HostWriter, Launch
from dvk.composer.kernel import Buffer, Kernel
from dvk.composer.lowering import PrimGraph, is_view
from dvk.composer.prims import Prim, View
from dvk.records import Graph, Node


@dataclass(frozen=True)
class Text:
    """The parts of the host program."""

    held: list[str]
    """Lines before `run`: weights made of weights."""
    params: list[str]
    lines: list[str]
    inplace: Mapping[str, dict[int, int]]


class CompactHost(HostWriter):
    """A `HostWriter` that writes for people and small models: short names, no addresses, no module."""

    def __init__(self, graph: Graph, prims: PrimGraph, part: Partition, kernels: Mapping[int, Kernel], launch: Launch, inplace: bool,
                 device: str):
        super().__init__(graph, prims, part, kernels, launch, inplace, device)
        self.listed: dict[Prim, str] = {}
        for node in graph.nodes:
            value = prims.values.get(node.name)
            if isinstance(value, View) and node.name[1:].isdigit() and (not value.steps or value.base not in self.listed):
                self.listed[value.base] = node.name
        inputs = [b for k in kernels.values() for b in k.inputs if not b.steps and b.prim.kind == "extern"]
        self.read = {b.prim: b for b in inputs}
        """Results of calls that kernels read, and the layout they must have."""
        self.used: set[str] = set()

    def text(self) -> Text:
        program = self.program()
        taken = {name for prim, name in self.names.items() if prim.kind == "source" and prim in self.part.users}
        held = [n for n in self.graph.nodes if n.name in taken]
        params = [n.name for n in held if n.op == "input"] + [n.name for n in held if n.op != "input"]
        return Text([f"w{n} = held({text})" for n, text in enumerate(self.derived)], params, [*program.lines, f"return {program.result}"],
                    program.inplace)

    # -------------------------------------------------------------- names

    def _fresh(self, prim: Prim | None = None) -> str:
        name = self.listed.get(prim) if prim is not None else None
        if name is not None and name not in self.used:
            self.used.add(name)
            return name
        self.counter += 1
        return f"t{self.counter - 1}"

    def _source(self, prim: Prim) -> str:
        assert prim.node is not None
        return prim.node.name

    # -------------------------------------------------------------- calls

    def _call(self, node: Node) -> str:
        if node.op == "restrided":
            return f"strided({self._literal(node.args[0])}, {node.strides!r})"
        if node.op == "derived":
            self.derived.append(node.kwargs["make"])
            return f"w{len(self.derived) - 1}({', '.join(self._literal(a) for a in node.args)})"
        text = super()._call(node)
        return text.replace("torch.nn.functional.", "F.", 1) if text.startswith("torch.nn.functional.") else text

    def _extern(self, prim: Prim) -> None:
        super()._extern(prim)
        buffer, node = self.read.get(prim), prim.node
        if buffer is None or node is None or node.op == "derived":
            return
        row_major = contiguous_strides(buffer.shape)
        dense = _same(buffer.strides, row_major, buffer.shape)
        # A view of what is guarded lies where it lay; a call may answer in another layout on another machine.
        if is_view(node) and not dense:
            return
        text = self.lines[-1]
        if dense:
            text += ".contiguous()"
        elif len(buffer.shape) == 4 and _same(buffer.strides, _channels_last(buffer.shape), buffer.shape):
            name, call = text.split(" = ", 1)
            text = f"{name} = nhwc({call})"
        else:
            name, call = text.split(" = ", 1)
            text = f"{name} = strided({call}, {buffer.strides!r})"
        self.lines[-1] = text

    def _check_layout(self, name: str, buffer: Buffer) -> None:
        pass

    def _empty(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, kernel: Kernel, inputs: list[str]) -> str:
        donor = next((n for n, b in zip(inputs, kernel.inputs, strict=True) if b.dtype == dtype), inputs[0] if inputs else None)
        same = donor is not None and any(n == donor and b.dtype == dtype for n, b in zip(inputs, kernel.inputs, strict=True))
        kind = "" if same else f", dtype=torch.{dtype}"
        if donor is None:
            kind += f", device={self.device!r}"
        make = "torch.empty" if donor is None else f"{donor}.new_empty"
        if strides == contiguous_strides(shape):
            return f"{make}({shape!r}{kind})"
        return f"{make}_strided({shape!r}, {strides!r}{kind})"


def _same(a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return all(x == y or size == 1 for x, y, size in zip(a, b, shape, strict=True))


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    _, channels, height, width = shape
    return (height * width * channels, 1, width * channels, channels)
