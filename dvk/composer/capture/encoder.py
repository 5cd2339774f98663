"""An exported program as dvk's records: nodes with names, weights by their path, constants as literals."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from dvk.composer.capture.blame import operator_name, with_location
from dvk.composer.capture.blocks import block_of
from dvk.composer.capture.functionalize import functionalized, reshaped
from dvk.composer.capture.time_marks import MARK
from dvk.composer.ir import structures
from dvk.composer.ir.effects import AliasClasses, touched, written
from dvk.composer.ir.errors import CannotCompose
from dvk.records import Graph, Node

if TYPE_CHECKING:
    from dvk.composer.capture.eager_calls import Tracing


MAX_LITERAL = 256
"""Maximum elements of a constant tensor made in forward() that may be written into the drop-in."""
HELD = ("param", "buffer", "const")
"""Nodes that stand for the module's weights and buffers."""


class Encoder:
    """Converts an exported program into dvk's records."""

    def __init__(
        self,
        program: Any,
        model: Any,
        inputs: dict[str, Any],
        seen: dict[str, tuple[tuple[int, ...], str, tuple[int, ...]]],
        tree: Any,
        tracing: Tracing,
    ):
        self.program, self.model, self.inputs, self.seen, self.tree, self.tracing = (
            program,
            model,
            inputs,
            seen,
            tree,
            tracing,
        )
        self.names: dict[str, str] = {}
        self.counts = dict.fromkeys("xpcv", 0)
        self.blocks: dict[str, str] = {}
        self.nodes: list[Node] = []
        self.effects = ""
        """An operator so far that a program falling back to the original would run twice."""

    def graph(self) -> Graph:
        """Encode the program.

        Raises:
            CannotCompose: an operator or a constant cannot be in a graph; the message names the line.
        """
        output = self._read_nodes()
        graph = functionalized(
            Graph(
                nodes=self._linked(),
                outputs=self._outputs(output),
                training=bool(self.model.training),
            )
        )
        self._check_memory(graph)
        return graph

    def _read_nodes(self) -> Any:
        """Encode every node; return what the program gives back."""
        signature = self.program.graph_signature
        kinds = {
            **dict.fromkeys(signature.user_inputs, "input"),
            **{n: "param" for n in signature.inputs_to_parameters},
            **{n: "buffer" for n in signature.inputs_to_buffers},
            **{n: "const" for n in signature.inputs_to_lifted_tensor_constants},
        }
        targets = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        tensor_inputs = iter(self.inputs)
        output: Any = None
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                kind = kinds.get(node.name)
                if kind is None:
                    self._generator(node)
                elif kind == "input":
                    self._input(node, next(tensor_inputs))
                elif node.users:
                    self._held(node, kind, targets[node.name])
            elif node.op == "call_function":
                try:
                    self._call(node)
                except CannotCompose as error:
                    raise with_location(error, node) from None
            elif node.op == "output":
                output = node.args[0]
            else:
                raise CannotCompose("a nested graph inside forward()")
        return output

    def _check_memory(self, graph: Graph) -> None:
        """Refuse writes that a drop-in could not repeat: to memory the module does not hold, and those that reshape an alias."""
        memory = AliasClasses(graph.nodes)
        outside = {
            memory.of(node.name)
            for node in graph.nodes
            if node.op == "const" and node.target is None
        }
        for node in graph.nodes:
            if any(memory.of(name) in outside for name in written(node)):
                reason = f"{node.op} writes a tensor that the module does not hold"
                raise with_location(CannotCompose(reason), self._traced(node))
        if (found := reshaped(graph)) is not None:
            reason = f"{found.op} gives a tensor that has aliases another shape"
            raise with_location(CannotCompose(reason), self._traced(found))

    def _traced(self, node: Node) -> Any:
        """The program's node that became `node`."""
        return next(
            one for one in self.program.graph.nodes if self.names.get(one.name) == node.name
        )

    def _input(self, node: Any, name: str) -> None:
        if "val" in node.meta and hasattr(node.meta["val"], "shape"):
            self._add(node, "x", "input", target=name)

    def _outputs(self, flat: Any) -> Any:
        num_returned = self.program.call_spec.out_spec.num_leaves
        returned = [self._encode(v) for v in flat][-num_returned:] if num_returned else []

        def of(tree: Any) -> Any:
            if isinstance(tree, dict):
                if set(tree) == {"ref"}:
                    value = returned[tree["ref"]]
                    return value if isinstance(value, dict) and "ref" in value else {"value": value}
                return {key: of(part) for key, part in tree.items()}
            return [of(part) for part in tree] if isinstance(tree, list) else tree

        return of(self.tree)

    def _held(self, node: Any, kind: str, target: str) -> None:
        import torch

        if target in self.tracing.recording.written:
            raise with_location(
                CannotCompose(f"`{target}` is written by code left to PyTorch, and read elsewhere"),
                next(iter(node.users)),
            )
        found: Any = self.model
        for part in target.split("."):
            found = getattr(found, part, None)
        if found is None:
            tensor = self.program.constants[target]
            if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
                raise with_location(
                    CannotCompose("torch.func inside forward()"), next(iter(node.users))
                )
            if tensor.numel() > MAX_LITERAL:
                raise CannotCompose(f"a constant of {tensor.numel()} elements made in forward()")
            self._add(node, "c", "const", kwargs={"data": self._encode(tensor.tolist())})
        else:
            self._add(node, "c" if kind == "const" else "p", kind, target=target)

    def _generator(self, node: Any) -> None:
        """A random generator that forward() makes and seeds."""
        import torch

        held = next(
            (
                spec.target
                for spec in self.program.graph_signature.input_specs
                if spec.arg.name == node.name
            ),
            None,
        )
        made = self.program.constants.get(held)
        if not isinstance(made, torch.Generator):
            raise CannotCompose(f"an object of type {type(made).__name__} in forward()")
        seed = made.initial_seed()
        fresh = torch.Generator(made.device).manual_seed(seed)
        spaces = [*(vars(module) for module in self.model.modules()), self.tracing.call.home]
        # Export may hold a copy, so that one with this seed that outlives the call counts as the same.
        kept = [
            value
            for space in spaces
            for value in space.values()
            if isinstance(value, torch.Generator)
        ]
        if (
            any(value.initial_seed() == seed for value in kept)
            or not torch.equal(fresh.get_state(), made.get_state())
            or seed >= 1 << 47
        ):
            raise CannotCompose("a random generator that forward() does not seed")
        self._add(
            node, "v", "generator", kwargs={"seed": seed, "device": {"device": made.device.type}}
        )

    def _linked(self) -> tuple[Node, ...]:
        """The nodes; weights and buffers whose memory is written get the tensors that share it as an operand."""
        import torch

        first: dict[int, str] = {}
        linked = list(self.nodes)
        for position, node in enumerate(self.nodes):
            if node.op in HELD and node.target is not None:
                tensor = functools.reduce(getattr, node.target.split("."), self.model)
                if (
                    isinstance(tensor, torch.Tensor)
                    and tensor.layout is torch.strided
                    and tensor.numel()
                ):
                    storage = tensor.untyped_storage()
                    # Fake tensors have no memory: their storages tell them apart.
                    place = storage.data_ptr() or -storage._cdata
                    other = first.setdefault(place, node.name)
                    if other != node.name:
                        linked[position] = node.model_copy(update={"args": ({"ref": other},)})
        changed = touched(tuple(linked))
        return tuple(
            new if new.name in changed else node
            for new, node in zip(linked, self.nodes, strict=True)
        )

    def _call(self, node: Any) -> None:
        if node.target is operator.getitem:
            op = "getitem"
        elif (name := str(node.target)) in STEPS:
            return self._step(node, name)
        elif name == MARK:
            op = MARK
        else:
            known = operator_name(node)
            if known is None:
                return
            op = known
        self._add(node, "v", op, args=self._encode(node.args), kwargs=self._encode(node.kwargs))

    def _step(self, node: Any, name: str) -> None:
        """A call that is left to PyTorch, or a question about a value."""
        args = self._encode(node.args)
        if name == "dvk.asked.default":
            self._add(node, "v", "expect", args=args)
            self.nodes[-1] = self.nodes[-1].model_copy(
                update={"shape": None, "dtype": None, "strides": None}
            )
        else:
            tensors, numbers, call = args
            self._add(
                node,
                "v",
                "left",
                args=[*tensors, *numbers],
                kwargs=self.tracing.step(call, tensors, numbers),
            )

    def _add(
        self,
        node: Any,
        letter: str,
        op: str,
        *,
        args: Any = (),
        kwargs: Any = None,
        target: str | None = None,
    ) -> None:
        import torch

        name = f"{letter}{self.counts[letter]}"
        self.counts[letter] += 1
        self.names[node.name] = name
        for path, _ in list((node.meta.get("nn_module_stack") or {}).values())[-1:]:
            if block := block_of(path, self.model):
                self.blocks[name] = block
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            if any(not isinstance(s, int) for s in value.shape):
                # Its size depends on values: it stays with PyTorch, and so do its readers.
                dtype = str(value.dtype).removeprefix("torch.")
                self.nodes.append(
                    Node(name=name, op=op, args=tuple(args), kwargs=kwargs or {}, dtype=dtype)
                )
                return
            recorded = (
                tuple(value.shape),
                str(value.dtype).removeprefix("torch."),
                tuple(value.stride()),
            )
            shape, dtype, strides = self.seen.get(node.name, recorded)
            self.nodes.append(
                Node(
                    name=name,
                    op=op,
                    args=tuple(args),
                    kwargs=kwargs or {},
                    shape=shape,
                    dtype=dtype,
                    strides=strides,
                    target=target,
                )
            )
        else:
            self.nodes.append(
                Node(name=name, op=op, args=tuple(args), kwargs=kwargs or {}, target=target)
            )

    def _encode(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.fx.Node):
            return {"ref": self.names[value.name]}
        if isinstance(value, (list, tuple)):
            return [self._encode(v) for v in value]
        if isinstance(value, dict):
            return {k: self._encode(v) for k, v in value.items()}
        return structures.literal_of(value)


STEPS = ("dvk.left.default", "dvk.asked.default")
