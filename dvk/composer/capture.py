"""Capture a task's module as an operator graph, in a sandboxed child.

torch.export in its pre-dispatch form was chosen over torch.fx symbolic tracing on evidence: it gives
one canonical ATen vocabulary with shapes, dtypes and strides for free functions, methods, operators
and modules alike, keeps `layer_norm`, `softmax` or `linear` whole, and shows buffer mutations as
explicit in-place calls, where fx keeps five spellings of one operator and no shapes.

A module that cannot be captured (control flow on data, custom operators, non-tensor inputs) raises
`CannotCompose` with the reason; that is an honest "no speed-up", not an error.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, ConfigDict

from dvk import crashes
from dvk.composer.blocks import block_of
from dvk.composer.cannot import CannotCompose
from dvk.composer.effects import touched
from dvk.composer.functionalize import functionalized, reshaped
from dvk.config import Limits
from dvk.errors import TaskError
from dvk.records import Graph, Node, Task
from dvk.sandbox import Death, call

MAX_LITERAL = 256
"""Elements of a constant tensor made in forward() that may be written into the drop-in."""


HELD = ("param", "buffer", "const")
"""Nodes that stand for what the module holds."""


class Captured(BaseModel):
    """A graph and what a drop-in needs to know to stand in for the module."""

    model_config = ConfigDict(frozen=True)

    graph: Graph
    arguments: tuple[str, ...]
    """Forward parameters in call order."""
    constants: dict[str, Any] = {}
    """Arguments that are plain values, baked into the graph."""
    config_hash: str
    """What `embedded.dvk_config` says of the captured module."""
    asked: tuple[str, ...] = ()
    """Functions of torch (`observe.MODES`) on whose answer, False, the graph may rest."""
    blocks: dict[str, str] = {}
    """The block of the network (`blocks.block_of`) by operator, by SSA name; not of operators that are the model's own."""


def capture(task: Task, limits: Limits) -> Captured:
    """The operator graph of the task's reference.

    Raises:
        CannotCompose: the module is outside what can be captured.
        MachineError: the child could not be started.
    """
    isolate = limits.reference_isolation(task.device)
    answer = call("dvk.composer.capture:child", {"task": task.model_dump(mode="json")}, limits, isolate=isolate)
    if isinstance(answer, Death):
        raise CannotCompose(ended(answer))
    if "cannot" in answer.value:
        raise CannotCompose(answer.value["cannot"], answer.value.get("traceback", ""))
    return Captured.model_validate(answer.value["captured"])


def ended(death: Death) -> str:
    """Why there is no graph, where the process that was to make it has ended."""
    lines = [line.strip() for line in death.log.splitlines() if line.strip()]
    return f"capturing the module ended with {death.reason}" + (f"; it printed last: {lines[-1][:300]}" if lines else "")


def child(channel: Any) -> None:
    """Child side of `capture`."""
    channel.send(answered(Task.model_validate(channel.receive()["task"]), trace))


def answered(task: Task, trace: Callable[[Task], Captured]) -> dict[str, str | dict[str, Any]]:
    """What the parent is sent: `captured`, or why not as `cannot`, with the `traceback` of an exception that is ours."""
    try:
        return {"captured": trace(task).model_dump(mode="json")}
    except CannotCompose as error:
        return {"cannot": str(error)}
    except TaskError as error:
        return {"cannot": error.message}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code is run here
        crash = crashes.crashed(error, "capturing it")
        return {"cannot": crash.message, "traceback": crash.traceback}


def trace(task: Task) -> Captured:
    """Export and encode; runs where the user's code may run."""
    from dvk.tasks.build import build

    built = build(task)
    args, kwargs = built.inputs(0)
    if kwargs:
        args, kwargs = positional(built.model, args, kwargs)
    return trace_module(built.model, args, built.input_names(args))


def positional(model: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The same call with every argument by position, in forward's order.

    Raises:
        CannotCompose: an argument can only be passed by name, or one before it is left to its default.
    """
    parameters = list(inspect.signature(model.forward).parameters.values())
    ordered, rest = list(args), dict(kwargs)
    for parameter in parameters[len(args):]:
        if not rest or parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name not in rest:
            break
        ordered.append(rest.pop(parameter.name))
    if rest:
        raise CannotCompose(f"argument `{next(iter(rest))}` cannot be passed by position")
    return ordered, rest


def trace_module(model: Any, args: list[Any], names: list[str]) -> Captured:
    """Export a live module on example arguments."""
    import torch

    from dvk.composer.embedded import dvk_config, dvk_unchanged, dvk_watch
    from dvk.composer.observe import asked, observe
    from dvk.composer.state import without_changes

    # One tensor that is passed twice would be one input.
    args = [a.detach().clone() if isinstance(a, torch.Tensor) and any(a is b for b in args[:n]) else a for n, a in enumerate(args)]
    if any(not isinstance(a, (torch.Tensor, bool, int, float, str, type(None))) for a in args):
        raise CannotCompose("an input is neither a tensor nor a plain value")
    if not dvk_unchanged(dvk_watch(model)):
        raise CannotCompose("a submodule has forward hooks")
    config = dvk_config(model)
    try:
        with torch.no_grad(), _no_stack_traces(), _no_checks(), _apart(), asked(model) as modes:
            program = without_changes(model, lambda: torch.export.export(model, tuple(args), strict=False))
    except CannotCompose:
        raise
    except Exception as error:  # noqa: BLE001 - export raises whatever the module's code does under tracing
        raise CannotCompose(f"torch.export: {crashes.said(error)}") from None
    encoder = _Encoder(program, model, dict(zip(names, args, strict=False)), observe(program, args))
    return Captured(graph=encoder.graph(), arguments=tuple(names), config_hash=config, asked=tuple(sorted(modes)), blocks=encoder.blocks,
                    constants={n: a for n, a in zip(names, args, strict=False) if not isinstance(a, torch.Tensor)})


@contextmanager
def _no_checks() -> Iterator[None]:
    """Functions that look at values only to raise give NaN for those instead: a graph has no branch on values."""
    import torch

    functions, look = torch.nn.functional, torch.any
    whole = functions.gaussian_nll_loss

    def gaussian_nll_loss(input: Any, target: Any, var: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.any is not look:  # it calls itself under a name that is ours
            return whole(input, target, var, *args, **kwargs)
        torch.any = lambda *_: False  # type: ignore[assignment]
        try:
            return whole(input, target, torch.where(var < 0, float("nan"), var) if isinstance(var, torch.Tensor) else var, *args, **kwargs)
        finally:
            torch.any = look

    functions.gaussian_nll_loss = gaussian_nll_loss
    try:
        yield
    finally:
        functions.gaussian_nll_loss = whole


APART = ("triplet_margin_loss", "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "poisson_nll_loss", "outer", "kron")
"""Functions of torch that are made of operators which compose; whole they would stay calls of up to a dozen kernels."""


@contextmanager
def _apart() -> Iterator[None]:
    """Functions in `APART` are captured as what PyTorch makes them of."""
    import torch

    def made_of(function: Any, whole: Any) -> Any:
        known = {argument.name for argument in whole._schema.arguments}

        def parts(*args: Any, **kwargs: Any) -> Any:
            named = {"self" if name == "input" and name not in known else name: value for name, value in kwargs.items()}
            if not named.keys() <= known:  # as with `out`
                return function(*args, **kwargs)
            # Export keeps operators whole by a mode for functions, and by a `decompose` of its own.
            with torch._C.DisableTorchFunction():
                return whole._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **named)

        return parts

    before = {name: getattr(torch, name) for name in APART}
    for name, function in before.items():
        setattr(torch, name, made_of(function, getattr(torch.ops.aten, name).default))
    try:
        yield
    finally:
        for name, whole in before.items():
            setattr(torch, name, whole)


@contextmanager
def _no_stack_traces() -> Iterator[None]:
    """One for every operator is a sixth of the work of tracing, and nobody reads them."""
    from torch.fx import config

    before = getattr(config, "do_not_emit_stack_traces", False)
    config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        config.do_not_emit_stack_traces = before


class _Encoder:
    """Turns an exported program into our records."""

    def __init__(self, program: Any, model: Any, inputs: dict[str, Any],
                 seen: dict[str, tuple[tuple[int, ...], str, tuple[int, ...]]]):
        self.program, self.model, self.inputs, self.seen = program, model, inputs, seen
        self.names: dict[str, str] = {}
        self.counts = dict.fromkeys("xpcv", 0)
        self.blocks: dict[str, str] = {}
        self.nodes: list[Node] = []

    def graph(self) -> Graph:
        signature = self.program.graph_signature
        order = list(self.program.graph.nodes)
        kinds = {**dict.fromkeys(signature.user_inputs, "input"), **{n: "param" for n in signature.inputs_to_parameters},
                 **{n: "buffer" for n in signature.inputs_to_buffers},
                 **{n: "const" for n in signature.inputs_to_lifted_tensor_constants}}
        targets = {**signature.inputs_to_parameters, **signature.inputs_to_buffers,
                   **signature.inputs_to_lifted_tensor_constants}
        tensor_inputs = iter(n for n, a in self.inputs.items())
        output: Any = None
        for node in order:
            if node.op == "placeholder":
                kind = kinds.get(node.name)
                if kind == "input" or kind is None:
                    name = next(tensor_inputs)
                    if "val" in node.meta and hasattr(node.meta["val"], "shape"):
                        self._add(node, "x", "input", target=name)
                elif node.users:
                    self._held(node, kind, targets[node.name])
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                output = node.args[0]
            else:
                raise CannotCompose("a nested graph: an autocast or grad-mode block, or control flow, inside forward()")
        graph = functionalized(Graph(nodes=self._linked(), outputs=self._outputs(output), training=bool(self.model.training)))
        if (op := reshaped(graph)) is not None:
            raise CannotCompose(f"{op} gives a tensor that has aliases another shape")
        return graph

    def _outputs(self, flat: Any) -> Any:
        import torch

        spec = self.program.call_spec.out_spec
        users = [_Leaf(self._encode(v)) for v in flat][-spec.num_leaves:] if spec.num_leaves else []
        tree = torch.utils._pytree.tree_unflatten(users, spec)
        return _plain(tree)

    def _held(self, node: Any, kind: str, target: str) -> None:
        found: Any = self.model
        for part in target.split("."):
            found = getattr(found, part, None)
        if found is None:
            tensor = self.program.constants[target]
            if tensor.numel() > MAX_LITERAL:
                raise CannotCompose(f"a constant of {tensor.numel()} elements made in forward()")
            self._add(node, "c", "const", kwargs={"data": self._encode(tensor.tolist())})
        else:
            self._add(node, "c" if kind == "const" else "p", kind, target=target)

    def _linked(self) -> tuple[Node, ...]:
        """The nodes, those of weights and buffers with what they share memory with as an operand where that memory is written."""
        import torch

        first: dict[int, str] = {}
        linked = list(self.nodes)
        for position, node in enumerate(self.nodes):
            if node.op in HELD and node.target is not None:
                tensor = functools.reduce(getattr, node.target.split("."), self.model)
                if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.numel():
                    other = first.setdefault(tensor.untyped_storage().data_ptr(), node.name)
                    if other != node.name:
                        linked[position] = node.model_copy(update={"args": ({"ref": other},)})
        changed = touched(tuple(linked))
        return tuple(new if new.name in changed else node for new, node in zip(linked, self.nodes, strict=True))

    def _call(self, node: Any) -> None:
        if node.target is operator.getitem:
            op = "getitem"
        else:
            op = str(node.target)
            if not op.startswith("aten."):
                raise CannotCompose(f"operator {op}")
        self._add(node, "v", op, args=self._encode(node.args), kwargs=self._encode(node.kwargs))

    def _add(self, node: Any, letter: str, op: str, *, args: Any = (), kwargs: Any = None, target: str | None = None) -> None:
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
                raise CannotCompose(f"{op} has a shape that depends on values")
            recorded = tuple(value.shape), str(value.dtype).removeprefix("torch."), tuple(value.stride())
            shape, dtype, strides = self.seen.get(node.name, recorded)
            self.nodes.append(Node(name=name, op=op, args=tuple(args), kwargs=kwargs or {}, shape=shape, dtype=dtype, strides=strides,
                                   target=target))
        else:
            self.nodes.append(Node(name=name, op=op, args=tuple(args), kwargs=kwargs or {}, target=target))

    def _encode(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.fx.Node):
            return {"ref": self.names[value.name]}
        if isinstance(value, (list, tuple)):
            return [self._encode(v) for v in value]
        if isinstance(value, dict):
            return {k: self._encode(v) for k, v in value.items()}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": value.type}
        if isinstance(value, torch.memory_format):
            return {"memory_format": str(value).removeprefix("torch.")}
        if isinstance(value, torch.layout):
            return {"layout": str(value).removeprefix("torch.")}
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return {"float": str(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise CannotCompose(f"an operand of type {type(value).__name__}")


class _Leaf:
    """An encoded operand that no pytree function descends into."""

    def __init__(self, encoded: Any):
        self.encoded = encoded


def _plain(tree: Any) -> Any:
    """The output pytree as JSON-able data: {'tuple'|'list': parts}, {'dict': pairs}, {'named': type of
    torch.return_types and parts}, {'ref': name} or {'value': literal}."""
    if isinstance(tree, _Leaf):
        return tree.encoded if isinstance(tree.encoded, dict) and "ref" in tree.encoded else {"value": tree.encoded}
    if isinstance(tree, dict):
        if type(tree) is not dict or not all(isinstance(k, str) for k in tree):
            raise CannotCompose(f"the output is a {type(tree).__name__} or has keys that are not strings")
        return {"dict": [[k, _plain(v)] for k, v in tree.items()]}
    if isinstance(tree, tuple):
        if type(tree).__module__ == "torch.return_types":
            return {"named": [type(tree).__name__, [_plain(v) for v in tree]]}
        if type(tree) is not tuple:
            raise CannotCompose(f"the output is a {type(tree).__name__}")
        return {"tuple": [_plain(v) for v in tree]}
    if type(tree) is list:
        return {"list": [_plain(v) for v in tree]}
    if tree is None:
        return {"value": None}
    raise CannotCompose(f"the output holds a {type(tree).__name__}")
