"""Host code of a drop-in: the body of its forward, as Python lines.

Extern calls keep their program order, each kernel runs as soon as its operands exist, and a temporary is dropped after its last use so that
the allocator can reuse its memory.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dvk.composer.dropin import going_back, library_calls, time_scans
from dvk.composer.dropin.dead_memory import DeadMemory, allocation, empty, may_hold
from dvk.composer.dropin.layouts import inplace_pairs
from dvk.composer.dropin.results import Layout, Results, results
from dvk.composer.dropin.views import Views
from dvk.composer.fusion.groups import FusionGroup, Partition, output_bases
from dvk.composer.ir import steps, structures
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import written
from dvk.composer.ir.loops import Buffer, Kernel
from dvk.composer.ir.nodes import IRNode, View
from dvk.composer.ir.recurrence import RECURRENT, Recurrence
from dvk.composer.ir.text import literal
from dvk.composer.ir.time_scan import TIME_SCAN, TimeScan
from dvk.composer.lowering.dispatch import FINITE
from dvk.composer.lowering.sums_at_places import SCATTERED
from dvk.composer.lowering.whole_graph import PrimGraph
from dvk.composer.rewrites import packed_weights
from dvk.composer.runtime import sources as runtime_sources
from dvk.records import Graph, Node

RESERVED = {"self", "torch", "triton", "tl", "dvk_tensors"} | runtime_sources.texts().keys()
"""Names that the program itself uses."""
KERNEL = re.compile(r"(run_)?k\d+\w*")
"""Names that kernels and their launchers may have."""

Launch = Callable[[Kernel, list[str], list[str]], list[str]]
Recurrences = dict[Recurrence | TimeScan, str]
"""Recurrent layers → the names of their functions."""
Makers = dict[tuple[str, tuple[str, ...]], int]
"""Source of a function that makes a tensor, and its operands → its index."""


@dataclass
class ForwardProgram:
    """Lines of the fast path and the facts that its guards must check."""

    lines: list[str]
    result: str
    weights: list[Node]
    """Weights, buffers and constants of the module that the program reads, bound to `_NAME` before it runs."""
    guarded: list[Node]
    """Weights and buffers that kernels read by address."""
    derived: list[str]
    """Source of the functions that make derived weights."""
    inplace: dict[str, dict[int, int]] = field(default_factory=dict)
    """Kernel name → output index → index of the input it overwrites."""
    left: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Parts of the module that the program calls unchanged: key → path of a submodule, name of a method or empty."""
    results: Results | str = "its program was not written by the composer"
    """What it returns as an operator of PyTorch; else why it cannot be one."""
    unordered: bool = False
    """Kernels add in no fixed order, which a process may forbid (`torch.use_deterministic_algorithms`)."""

    @property
    def may_go_back(self) -> bool:
        """The program may find, halfway, that the call does not match, and returns `dvk_else` then."""
        return any(line.endswith(steps.GO_BACK) for line in self.lines)


class HostWriter:
    """Emits the program for a partition and its kernels.

    Args:
        makers: those of earlier programs in the same drop-in; tensors derived from the same weights are made once.
        recurrences: those of earlier programs in the same drop-in.
        called: recipes that change how libraries are called.
        splits_rows, run_scan: as for `Codegen`, `run_scan` its `launch_layer`.
        frees_inputs: the caller holds none of the arguments.
    """

    def __init__(
        self,
        graph: Graph,
        prims: PrimGraph,
        part: Partition,
        kernels: Mapping[int, Kernel],
        launch: Launch,
        inplace: bool,
        device: str,
        makers: Makers | None = None,
        recurrences: Recurrences | None = None,
        called: Collection[str] = (),
        splits_rows: bool = False,
        frees_inputs: bool = False,
        run_scan: Callable[[str, Sequence[str]], str] = lambda name, _: name,
    ):
        self.frees_inputs = frees_inputs
        self.graph, self.prims, self.part, self.kernels = graph, prims, part, kernels
        self.launch, self.allow_inplace = launch, inplace
        self.device, self.called = device, called
        self.splits_rows, self.run_scan = splits_rows, run_scan
        self.lines: list[str] = []
        self.names: dict[IRNode, str] = {}
        self.makers: Makers = {} if makers is None else makers
        self.recurrences: Recurrences = {} if recurrences is None else recurrences
        self.guarded: dict[str, Node] = {}
        self.inplace: dict[str, dict[int, int]] = {}
        self.outputs = output_bases(prims)
        self.counter = 0
        self.packed = packed_weights.calls(graph) if packed_weights.RECIPE in called else {}
        self.left: dict[str, tuple[str, str]] = {}
        self.allocated: dict[IRNode, Layout] = {}
        self.views = Views(self.names, self.allocated, self.guarded)
        self.dead = DeadMemory(self.lines)
        self.writes = going_back.Writes(graph, self.lines, self.value)

    def program(self) -> ForwardProgram:
        for prim in self.prims.prims:
            if prim.kind == "source":
                self.names[prim] = self._source(prim)
        last = self._last_uses()
        for number, step in enumerate(self.part.schedule):
            self.views.at(step)
            if isinstance(step, FusionGroup):
                self._group(step)
            else:
                self._extern(step)
            # A result written in place shares its operand's name, which then stays alive.
            alive = {
                n
                for p, n in self.names.items()
                if p in self.outputs or last.get(p, -1) > number or self._stays(p)
            }
            dead = [
                self.names[p]
                for p, at in last.items()
                if at == number and self.names.get(p) not in (None, *alive)
            ]
            if dead:
                self.dead.drop(dict.fromkeys(dead))
        steps_end = len(self.lines)
        result = self._tree(self.graph.outputs)
        tail = tuple(self.lines[steps_end:])
        self.lines = [line for line in self.writes.restored() if line]
        derived = [f"_dvk_make{number} = {source}" for (source, _), number in self.makers.items()]
        return ForwardProgram(
            self.lines,
            result,
            self._weights(result),
            list(self.guarded.values()),
            derived,
            self.inplace,
            self.left,
            results(self.graph, self.prims, self.names, self.allocated, tail, result),
            any(store.places for kernel in self.kernels.values() for store in kernel.stores),
        )

    def _stays(self, prim: IRNode) -> bool:
        """It is held elsewhere."""
        given = self.frees_inputs and prim.node is not None and prim.node.op == "input"
        return prim.kind == "source" and not given

    def _weights(self, result: str) -> list[Node]:
        """Held tensors whose names occur in the program."""
        words = set(re.findall(r"\w+", "\n".join([*self.lines, result])))
        held = [
            p.node
            for p in self.prims.prims
            if p.kind == "source" and p.node is not None and p.node.op != "input"
        ]
        return [n for n in held if n.target is not None and held_name(n) in words]

    # -------------------------------------------------------------- values

    def _fresh(self) -> str:
        """A new name."""
        self.counter += 1
        return f"_t{self.counter - 1}"

    def _source(self, prim: IRNode) -> str:
        node = prim.node
        assert node is not None
        if node.op == "input":
            return parameter(node.target or "")
        if node.target is not None:
            return self._on_device(node) if self._may_be_on_host(prim) else held_name(node)
        if prim not in self.part.users:
            return ""
        # Bound to a name: a kernel gets an address, which must outlive the expression that makes the tensor.
        data = self._literal(node.kwargs["data"])
        key = self._maker(
            f"lambda: torch.tensor({data}, dtype=torch.{node.dtype}, device='{self.device}')", ()
        )
        self.lines.append(f"_c{key} = dvk_derived(_dvk_values, {key}, (), _dvk_make{key})")
        return f"_c{key}"

    def _may_be_on_host(self, prim: IRNode) -> bool:
        """Whether it is a tensor that does not move with the module: a plain attribute, which PyTorch's operators take from the host."""
        node = prim.node
        if node is None or node.op != "const" or node.target is None or self.device == "cpu":
            return False
        return node.name not in {name for one in self.graph.nodes for name in written(one)}

    def _on_device(self, node: Node) -> str:
        """Have the tensor on the device, copied once until its value changes: neither a kernel nor a CUDA graph can read the host."""
        key = self._maker(f"lambda t: t.to('{self.device}')", (node.target or "",))
        self.lines.append(
            f"_c{key} = dvk_derived(_dvk_values, {key}, ({held_name(node)},), _dvk_make{key})"
        )
        return f"_c{key}"

    def _made_once(self, source: str, operands: Sequence[Any]) -> str:
        """The text of what a function makes of some operands once, until a weight changes."""
        key = self._maker(source, tuple(map(self._origin, operands)))
        given = ", ".join(map(self._literal, operands)) + ("," if len(operands) == 1 else "")
        return f"dvk_derived(_dvk_values, {key}, ({given}), _dvk_make{key})"

    def _maker(self, source: str, operands: tuple[str, ...]) -> int:
        return self.makers.setdefault((source, operands), len(self.makers))

    def _origin(self, operand: Any) -> str:
        """Name a weight by its path, which programs of one module share; other names belong to this program alone."""
        view = self.prims.values[operand["ref"]]
        node = view.base.node if not view.steps else None
        return (
            node.target
            if node is not None and node.target is not None
            else f"{operand} of {id(self)}"
        )

    def value(self, name: str) -> str:
        return self.view(self.prims.values[name])

    def view(self, value: Any) -> str:
        return self.views.text(value)

    def _tree(self, tree: Any) -> str:
        # If a reshape copies, views of it that are returned together share the copy.
        uses: Counter[str] = Counter()
        copies: dict[str, str] = {}

        def value(name: str, counting: bool) -> str:
            view = self.prims.values[name]
            base = view.base
            fresh = base.kind == "source" and base.node.op == "const" and base.node.target is None
            text = held_name(base.node) if self._may_be_on_host(base) else self.names[base]
            for step in view.steps:
                text = step.call(text)
                if step.method == "reshape" and counting:
                    uses[text] += 1
                elif step.method == "reshape" and uses[text] > 1:
                    if text not in copies:
                        copies[text] = self._fresh()
                        self.lines.append(f"{copies[text]} = {text}")
                    text = copies[text]
            return text + (".clone()" if fresh else "")

        structures.expression(tree, partial(value, counting=True), self._literal)
        return structures.expression(tree, partial(value, counting=False), self._literal)

    def _last_uses(self) -> dict[IRNode, int]:
        """Map each value to the index of the last step that touches it; aliases keep the memory of extern results alive by themselves."""
        last: dict[IRNode, int] = {}
        for number, step in enumerate(self.part.schedule):
            if isinstance(step, FusionGroup):
                last.update({fold.partial: number for fold in step.folds})
                last.update({partial: number for partial, _ in step.partials.values()})
            for member in step.members if isinstance(step, FusionGroup) else [step]:
                last.setdefault(member, number)
                for operand in member.operands:
                    if isinstance(operand, View):
                        last[operand.base] = number
        return last

    # -------------------------------------------------------------- steps

    def _group(self, group: FusionGroup) -> None:
        kernel = self.kernels[id(group)]
        for buffer in kernel.inputs:
            node = buffer.prim.node
            if (
                buffer.prim.kind == "source"
                and node is not None
                and node.op != "input"
                and node.target is not None
            ):
                self.guarded[node.name] = node
        inputs = []
        for buffer in kernel.inputs:
            name = self.names[buffer.prim]
            if buffer.steps:
                name = self._fresh()
                self.lines.append(
                    f"{name} = {self.view(View(buffer.prim, buffer.steps))}.contiguous()"
                )
            elif buffer.prim.kind == "extern" and not buffer.prim.attrs.get("checked"):
                self._check_layout(name, buffer)
                self.views.checked[buffer.prim] = buffer.strides
            inputs.append(name)
        pairs = (
            inplace_pairs(kernel, self.part, self.prims, self.outputs, self.splits_rows)
            if self.allow_inplace
            else {}
        ) | kernel.updated
        self.inplace[kernel.name] = pairs
        self.writes.note([inputs[place] for place in kernel.updated.values()])
        outputs = []
        for number, buffer in enumerate(kernel.outputs):
            if number in pairs:
                self.names[buffer.prim] = inputs[pairs[number]]
            else:
                self.names[buffer.prim] = self._memory(buffer, kernel, inputs)
            outputs.append(self.names[buffer.prim])
            if number not in kernel.updated:
                self.allocated[buffer.prim] = buffer.shape, buffer.strides, buffer.dtype
        self.lines.extend(self.launch(kernel, inputs, outputs))

    def _check_layout(self, name: str, buffer: Buffer) -> None:
        """Require of a call's result the layout that the kernel was written for."""
        self.lines.append(
            f"{name} = dvk_strided({name}, {buffer.strides!r}, {buffer.shape!r}, torch.{buffer.dtype})"
        )

    def _memory(self, buffer: Buffer, kernel: Kernel, inputs: list[str]) -> str:
        """The name of an output's memory: on a CPU that of a dead value of the same layout, if there is one."""
        layout = buffer.shape, buffer.strides, buffer.dtype
        reuses = self.device == "cpu" and buffer.prim.op != "scatter"
        name = self.dead.take(layout) if reuses else None
        if name is None:
            name = self._fresh()
            read = list(zip(inputs, kernel.inputs, strict=True))
            self.lines.append(f"{name} = {allocation(buffer, read, self.device)}")
        users = self.part.users.get(buffer.prim)  # none of partial sums, which a second kernel adds
        held = users is None or any(map(may_hold, users))
        self.dead.made[name] = None if held or not reuses else layout
        return name

    def _extern(self, prim: IRNode) -> None:
        node = prim.node
        assert node is not None
        if prim.op == SCATTERED:
            self._scattered(prim)
            return
        name = self.names[prim] = self._fresh()
        self.writes.by(node)
        if node.op == RECURRENT:
            self._recurrence(node, name)
        elif node.op == TIME_SCAN:
            made = TimeScan.of(node.kwargs)
            function = self.recurrences.setdefault(made, f"r{len(self.recurrences)}")
            given, run = [self._literal(a) for a in node.args], partial(self.run_scan, function)
            self.lines += time_scans.lines_of(made, given, name, run)
        elif node.op == "left":
            self.lines += steps.left_lines(node, name, self.value, self._literal)
            self.left.update(steps.left_place(node))
        elif node.op == FINITE:
            self._look(node, name)
        elif node.op == "expect":
            self.lines += steps.expect_lines(node, name, self._literal)
        else:
            self.lines.append(f"{name} = {self._call(node)}")

    def _scattered(self, prim: IRNode) -> None:
        """The sums are in the memory that a kernel has added to."""
        (added,) = prim.operands
        assert isinstance(added, View)
        self.names[prim], self.allocated[prim] = self.names[added.base], self.allocated[added.base]

    def _look(self, node: Node, name: str) -> None:
        """Fall back if a weight is not finite."""
        value, source = self._literal(node.args[0]), self.prims.values[node.args[0]["ref"]].base
        if source.node is not None and source.node.op == "input":
            self.lines.append(f"{name} = bool(torch.isfinite({value}).all())")
        else:
            make = "lambda w: bool(torch.isfinite(w).all())"
            self.lines.append(f"{name} = {self._made_once(make, node.args[:1])}")
        self.lines += [f"if not {name}:", f"    {steps.GO_BACK}"]

    def _recurrence(self, node: Node, name: str) -> None:
        """Run a recurrent layer; `name` becomes the tuple of its results."""
        made = Recurrence(**node.kwargs)
        function = self.recurrences.setdefault(made, f"r{len(self.recurrences)}")
        given = [self._fresh() for _ in made.read]
        for what, operand, text in zip(
            made.read, given, map(self._literal, node.args), strict=True
        ):
            shape = made.shape(what)
            self.lines.append(
                f"{operand} = dvk_strided({text}, {contiguous_strides(shape)!r}, {shape!r}, torch.{made.dtype})"
            )
        shapes = [made.shape(what) for what in made.written]
        results = [empty(shape, contiguous_strides(shape), made.dtype) for shape in shapes]
        self.lines.append(f"{name} = ({', '.join(results)})")
        addresses = [f"{operand}.data_ptr()" for operand in given] + [
            f"{name}[{n}].data_ptr()" for n in range(len(results))
        ]
        self.lines += [f"_dvk_{function}({', '.join(addresses)})", f"del {', '.join(given)}"]

    def _call(self, node: Node) -> str:
        args = [self._literal(a) for a in node.args]
        if node.op == "getitem":
            return f"{args[0]}[{args[1]}]"
        if node.op == "restrided":
            return f"dvk_strided({args[0]}, {node.strides!r})"
        if node.op == "checked":
            return f"{args[0]} if dvk_finite({args[1]}, {args[2]}) else ({node.kwargs['make']})({', '.join(args[3:])})"
        if node.op == "derived":
            return self._made_once(node.kwargs["make"], node.args)
        packed = self.packed.get(node.name)
        return library_calls.text(node, self.called, packed, self.value, self._made_once)

    def _literal(self, value: Any) -> str:
        return literal(value, self.value)


def parameter(name: str) -> str:
    """The program's name of an argument of forward(): the argument's own if that is safe."""
    text = re.sub(r"\W", "_", name)
    taken = (
        keyword.iskeyword(text)
        or hasattr(builtins, text)
        or text in RESERVED
        or KERNEL.fullmatch(text)
    )
    if text == name and not taken and not text.startswith(("_", "arg_")):
        return text
    return f"arg_{text}"


def held_name(node: Node) -> str:
    """The local name of a weight, buffer or constant of the module."""
    return f"_w_{node.name}"
