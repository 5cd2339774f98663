"""The joint forward and backward of a captured graph, as two graphs: what the forward saves, the backward reads.

AOTAutograd traces both together from the graph's own operators, and PyTorch's min-cut partitioner chooses what is saved and what is
computed again. Norms, softmax and losses are traced in parts: a backward then needs statistics of rows instead of whole results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dvk.composer.capture.blame import one_line, operator_name
from dvk.composer.capture.captured import SAVED, TANGENT, CapturedGraph, Training
from dvk.composer.capture.chunked_loss import with_chunked_losses
from dvk.composer.capture.decompositions import table
from dvk.composer.capture.pieces import join_pieces
from dvk.composer.capture.saved_views import save_bases
from dvk.composer.ir import structures
from dvk.composer.ir.effects import is_step, touched
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.steps import CHUNKED_LOSS
from dvk.composer.ir.text import spelled
from dvk.records import Graph, Node

GIVEN = ("input", "param", "buffer", "const")
CHECK = "aten._assert_tensor_metadata.default"
"""An export's check of a conversion. It held when the graph was captured; its device has no index, and a tensor's has."""


def with_backward(
    captured: CapturedGraph, model: torch.nn.Module, device: str = "cpu"
) -> CapturedGraph:
    """The capture with both programs of a training step in it.

    Raises:
        CannotCompose: an operator has no derivative, or the graph is more than operators on tensors.
    """
    _refuse(captured.graph)
    graph = with_chunked_losses(captured.graph, device)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    try:
        joint = _Joint(graph, trained)
        return captured.model_copy(update={"training": joint.split(device)})
    except CannotCompose:
        raise
    except Exception as error:  # operators of any kind may break any part of the tracing
        raise CannotCompose(f"no backward could be traced: {one_line(error)}") from error


def _refuse(graph: Graph) -> None:
    changed = touched(graph.nodes)
    for node in graph.nodes:
        if is_step(node) or node.op == "generator" or node.op.startswith("python."):
            raise CannotCompose(f"`{node.op}` in a graph whose backward is wanted")
        if node.op == "input" and node.name in changed:
            raise CannotCompose(f"it writes its input `{node.target}`, and gradients are wanted")


IN_PLACE = {"aten.lerp.Scalar": "lerp_", "aten.add.Tensor": "add_"}
"""Operators of a buffer's new value → the same in place. A kernel that read a buffer and wrote its next value would read some of both."""


class _Joint:
    """The joint graph of a captured forward.

    Args:
        trained: paths of the weights whose gradients are wanted.
    """

    def __init__(self, graph: Graph, trained: set[str]):
        self.graph = graph
        literals = [n for n in graph.nodes if n.op == "const" and n.target is None]
        self.given = [n for n in graph.nodes if n.op in GIVEN and n not in literals]
        self.changed = [n for n in self.given if n.op != "input" and n.name in touched(graph.nodes)]
        self.results = structures.refs(graph.outputs)
        self.forward = _function(graph, self.given, literals, self.changed, self.results)
        inputs = [n for n in self.given if n.op == "input" and _is_float(n)]
        self.sources = inputs + [n for n in self.given if n.op == "param" and n.target in trained]

    def split(self, device: str) -> Training:
        """Trace and partition."""
        from torch._functorch.aot_autograd import aot_export_joint_simple
        from torch._functorch.partitioners import min_cut_rematerialization_partition
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad():
            args = [self._fake(node, device) for node in self.given]
            outputs = self.forward(*args)
            reached = self._reached(args, outputs[: len(self.results)])
            if not any(reached):
                raise CannotCompose("no output depends on what has a gradient")
            joint: Any = aot_export_joint_simple(
                self.forward, tuple(args), trace_joint=True, decompositions=table()
            )
            join_pieces(joint.graph)
            forward, backward = min_cut_rematerialization_partition(
                joint, args, num_fwd_outputs=len(outputs)
            )
        return self._encoded(forward, backward, reached)

    def _reached(
        self, args: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
    ) -> list[set[str]]:
        """For each result, the sources that have a gradient of it."""
        leaves = [args[self.given.index(node)] for node in self.sources]
        found = []
        for result in results:
            grads = (
                torch.autograd.grad(
                    result, leaves, torch.ones_like(result), allow_unused=True, retain_graph=True
                )
                if result.requires_grad
                else [None] * len(leaves)
            )
            pairs = zip(self.sources, grads, strict=True)
            found.append({node.name for node, grad in pairs if grad is not None})
        return found

    def _fake(self, node: Node, device: str) -> torch.Tensor:
        assert node.shape is not None and node.strides is not None and node.dtype is not None
        made = torch.empty_strided(
            node.shape, node.strides, dtype=getattr(torch, node.dtype), device=device
        )
        return made.requires_grad_(node in self.sources)

    def _encoded(self, forward: Any, backward: Any, reached: Sequence[set[str]]) -> Training:
        ahead = _Encoder()
        placeholders = [n for n in forward.graph.nodes if n.op == "placeholder"]
        for place in placeholders:
            number = int(str(place.target).rpartition("_")[2]) - 1
            ahead.add_given(place, self.given[number])
        _without_copies(forward, len(self.results))
        num = len(self.results) + len(self.changed)
        save_bases(forward, backward, num)
        names = {n.name for n in self.changed}
        _read_in_place(forward, [p for p in placeholders if ahead.names[p.name] in names])
        outputs = ahead.body(forward)
        saved = outputs[num:]
        ahead.write(list(zip(self.changed, outputs[len(self.results) : num], strict=True)))
        results = {"tuple": outputs[: len(self.results)]}
        ahead_graph = ahead.graph({"tuple": [results, {"tuple": saved}]}, self.graph.training)
        back = _Encoder()
        counts = {SAVED: 0, TANGENT: 0}
        for place in [n for n in backward.graph.nodes if n.op == "placeholder"]:
            kind = TANGENT if str(place.target).startswith("tangents") else SAVED
            back.add_input(place, f"{kind}_{counts[kind]}")
            counts[kind] += 1
        if counts != {SAVED: len(saved), TANGENT: sum(map(bool, reached))}:
            raise CannotCompose("the partition of forward and backward does not fit together")
        grads = back.body(backward)
        found = {n.name: grads[self.given.index(n)] for n in self.sources}
        sources = [n for n in self.sources if found[n.name] is not None]
        wanted = [found[node.name] for node in sources]
        back_graph = back.graph({"tuple": wanted}, self.graph.training)
        return Training(
            forward=ahead_graph,
            backward=back_graph,
            inputs=tuple(str(n.target) for n in sources if n.op == "input"),
            weights=tuple(str(n.target) for n in sources if n.op != "input"),
            frozen=tuple(
                str(n.target) for n in self.given if n.op != "input" and n not in self.sources
            ),
            pulled=tuple(
                len(names) == len(sources)
                or tuple(n for n, node in enumerate(sources) if node.name in names)
                for names in reached
            ),
            random=any("rand" in n.op or "bernoulli" in n.op for n in ahead_graph.nodes),
        )


def _without_copies(forward: Any, num_results: int) -> None:
    """Return what was copied in place of the first results' copies."""
    (output,) = [node for node in forward.graph.nodes if node.op == "output"]
    values = list(output.args[0])
    for number, node in enumerate(values[:num_results]):
        if node.target is torch.ops.aten.clone.default:
            values[number] = node.args[0]
    output.args = (type(output.args[0])(values),)
    forward.graph.eliminate_dead_code()


def _read_in_place(forward: Any, written: Sequence[Any]) -> None:
    """Read buffers whose next value is a step in place (`IN_PLACE`) without a copy of them."""
    for place in written:
        for copy in [n for n in place.users if n.target is torch.ops.aten.clone.default]:
            if all(f"{n.target}" in IN_PLACE and n.args[0] is copy for n in copy.users):
                copy.replace_all_uses_with(place)
                forward.graph.erase_node(copy)


def _is_float(node: Node) -> bool:
    return str(node.dtype).startswith(("float", "bfloat"))


def _function(
    graph: Graph,
    given: Sequence[Node],
    literals: Sequence[Node],
    changed: Sequence[Node],
    results: Sequence[str],
) -> Callable[..., list[torch.Tensor]]:
    """The graph as a function of its inputs and weights: its results, then the new values of the buffers that it writes."""
    lines = [f"def forward({', '.join(n.name for n in given)}):"]
    lines += [f"    {n.name} = {n.name}.clone()" for n in changed]
    for node in literals:
        lines.append(
            f"    {node.name} = torch.tensor({node.kwargs['data']!r}, dtype=torch.{node.dtype})"
        )
    for node in graph.nodes:
        if node.op in GIVEN or node.op == CHECK:
            continue
        if node.op == "getitem":
            text = f"{node.args[0]['ref']}[{node.args[1]!r}]"
        else:
            text = spelled(node, str)
        lines.append(f"    {node.name} = {text}")
    # Copies, which are taken out of the traced forward: AOTAutograd accepts no results that share memory.
    returned = [f"{name}.clone()" for name in results]
    returned += [f"{n.name}.detach()" for n in changed]
    lines.append(f"    return [{', '.join(returned)}]")
    space: dict[str, Any] = {"torch": torch}
    if any(node.op == CHUNKED_LOSS for node in graph.nodes):
        space["dvk_chunked_loss"] = torch.ops.dvk.chunked_loss.default
    exec("\n".join(lines), space)
    made: Callable[..., list[torch.Tensor]] = space["forward"]
    return made


class _Encoder:
    """Nodes of a traced half as dvk's records."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.names: dict[str, str] = {}
        self.held: dict[str, str] = {}
        """The forward's given nodes by the captured graph's names."""
        self.count = 0

    def add_given(self, place: Any, node: Node) -> None:
        self.names[place.name] = self.held[node.name] = node.name
        self.nodes.append(node.model_copy(update={"args": ()}))

    def add_input(self, place: Any, target: str) -> None:
        name = f"x{len(self.nodes)}"
        self.names[place.name] = name
        value = place.meta["val"]
        self.nodes.append(Node(name=name, op="input", target=target, **_layout(value)))

    def body(self, module: Any) -> list[Any]:
        """Encode the operators; return the encoded outputs."""
        outputs: Any = ()
        for node in module.graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                outputs = node.args[0]
            elif node.op != "placeholder":
                raise CannotCompose(f"a nested graph in the backward: {node.op}")
        return [self._encode(value) for value in outputs]

    def write(self, pairs: Sequence[tuple[Node, Any]]) -> None:
        """Write buffers' new values at the end: steps of running statistics and counters in place, one call for those alike."""
        made = {node.name: node for node in self.nodes}
        alike: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
        for node, new in pairs:
            source, buffer = made.get(new["ref"]), {"ref": node.name}
            while source is not None and source.op in ("aten.alias.default", "aten.detach.default"):
                source = made.get(source.args[0]["ref"])
            op, rest = "copy_", [new]
            if source is not None and source.op in IN_PLACE and source.args[0] == buffer:
                steps = list(source.args[1:])
                if not source.kwargs and isinstance(steps[-1], int | float):
                    op, rest = IN_PLACE[source.op], steps
            numbers = [str(value) for value in rest if not isinstance(value, dict)]
            alike.setdefault((op, node.dtype, *numbers), []).append((buffer, rest))
        for (op, *_), found in alike.items():
            self._write(op, [buffer for buffer, _ in found], [rest for _, rest in found])

    def _write(self, op: str, buffers: list[Any], operands: list[list[Any]]) -> None:
        """One call of a `torch._foreach` operator; operands that are tensors are lists, a number is the last of the first."""
        tensors = [
            [one[at] for one in operands] for at, v in enumerate(operands[0]) if isinstance(v, dict)
        ]
        numbers = [v for v in operands[0] if not isinstance(v, dict)]
        overload = "Scalar" if numbers else "default"
        given = (buffers, *tensors, *numbers)
        self.nodes.append(
            Node(name=f"v{self.count}", op=f"aten._foreach_{op}.{overload}", args=given)
        )
        self.count += 1

    def graph(self, outputs: Any, training: bool) -> Graph:
        return Graph(nodes=tuple(self.nodes), outputs=outputs, training=training)

    def _call(self, node: Any) -> None:
        args, kwargs = self._encode(node.args), self._encode(node.kwargs)
        if node.target is operator.getitem:
            op = "getitem"
        elif str(node.target) == "prims.convert_element_type.default":
            op, args, kwargs = "aten._to_copy.default", [args[0]], {"dtype": args[1]}
        else:
            known = operator_name(node)
            if known is None:
                return
            op = known
        kwargs = {
            key: value
            for key, value in kwargs.items()
            if not (key == "layout" and value == STRIDED)
        }
        self.names[node.name] = self._new(op, tuple(args), kwargs, node.meta.get("val"))

    def _new(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], like: Any) -> str:
        name = f"v{self.count}"
        self.count += 1
        layout = (
            {"shape": like.shape, "dtype": like.dtype, "strides": like.strides}
            if isinstance(like, Node)
            else _layout(like)
        )
        self.nodes.append(Node(name=name, op=op, args=args, kwargs=kwargs, **layout))
        return name

    def _encode(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return {"ref": self.names[value.name]}
        if isinstance(value, (list, tuple)):
            return [self._encode(v) for v in value]
        if isinstance(value, dict):
            return {k: self._encode(v) for k, v in value.items()}
        return structures.literal_of(value)


STRIDED = {"layout": "strided"}


def _layout(value: Any) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        return {}
    return {
        "shape": tuple(map(int, value.shape)),
        "dtype": str(value.dtype).removeprefix("torch."),
        "strides": tuple(map(int, value.stride())),
    }
