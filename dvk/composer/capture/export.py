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
import logging
import operator
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from dvk import aten, crashes, gpu_memory
from dvk.composer.capture.blame import one_line, operator_name, with_location
from dvk.composer.capture.blocks import block_of
from dvk.composer.capture.captured import CapturedGraph
from dvk.composer.capture.functionalize import functionalized, reshaped
from dvk.composer.ir import structures
from dvk.composer.ir.effects import AliasClasses, touched, written
from dvk.composer.ir.errors import CannotCompose, NothingToFuse
from dvk.config import Limits
from dvk.errors import TaskError
from dvk.records import Graph, Node, Task
from dvk.sandbox import Death, call
from dvk.tasks.sizes import bytes_to_run

if TYPE_CHECKING:
    from dvk.composer.capture.calling import ModuleCall
    from dvk.composer.capture.eager_calls import CallRecording, Tracing

MAX_LITERAL = 256
"""Maximum elements of a constant tensor made in forward() that may be written into the drop-in."""


HELD = ("param", "buffer", "const")
"""Nodes that stand for the module's weights and buffers."""


def capture(task: Task, limits: Limits) -> CapturedGraph:
    """Capture the operator graph of the task's reference.

    Raises:
        CannotCompose: the module is outside what can be captured.
        MachineError: the child could not be started.
    """
    with gpu_memory.environment(task.device, bytes_to_run(task.peak_bytes)) as env:
        answer = call(
            "dvk.composer.capture.export:child",
            {"task": task.model_dump(mode="json")},
            limits,
            env=env,
            isolate=limits.reference_isolation(task.device),
        )
    if isinstance(answer, Death):
        raise CannotCompose(error_of_death(answer))
    if "cannot" in answer.value:
        raise CannotCompose(answer.value["cannot"], answer.value.get("traceback", ""))
    return CapturedGraph.model_validate(answer.value["captured"])


def error_of_death(death: Death) -> str:
    """Explain a missing graph after the capturing process ended."""
    lines = [line.strip() for line in death.log.splitlines() if line.strip()]
    return f"capturing the module ended with {death.reason}" + (
        f"; it printed last: {lines[-1][:300]}" if lines else ""
    )


def child(channel: Any) -> None:
    """Child side of `capture`."""
    channel.send(build_reply(Task.model_validate(channel.receive()["task"]), trace))


def build_reply(
    task: Task, trace: Callable[[Task], CapturedGraph]
) -> dict[str, str | dict[str, Any]]:
    """Build the reply to the parent: `captured`, or the reason as `cannot`, with the `traceback` of an internal exception."""
    try:
        return {"captured": trace(task).model_dump(mode="json")}
    except CannotCompose as error:
        return {"cannot": str(error), "traceback": error.traceback}
    except TaskError as error:
        return {"cannot": error.message}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code is run here
        crash = crashes.crashed(error, "capturing it")
        return {"cannot": crash.message, "traceback": crash.traceback}


def trace(task: Task) -> CapturedGraph:
    """Export and encode; runs where the user's code may run."""
    from dvk.tasks.build import build

    built = build(task)
    args, kwargs = built.inputs(0)
    return trace_call(built.model, args, kwargs, built.input_names(args), built.namespace)


def trace_call(
    model: Any,
    args: list[Any],
    kwargs: dict[str, Any],
    names: list[str],
    home: dict[str, Any] | None = None,
) -> CapturedGraph:
    """Capture like `trace_module`, for a call with keywords; `home` are the globals of the user's file."""
    from dvk.composer.capture.calling import positional_form

    values, rest, by_name = positional_form(model, args, kwargs)
    return trace_module(model, values, [*names, *rest], by_name, home)


def trace_module(
    model: Any,
    args: list[Any],
    names: list[str],
    by_name: int = 0,
    home: dict[str, Any] | None = None,
) -> CapturedGraph:
    """Export a live module on example arguments, the last `by_name` of them passed by keyword.

    Code that cannot be captured is left to PyTorch if the rest can be captured (`partial`).

    Raises:
        CannotCompose: nothing can be captured; the message names the operator and the line.
    """
    from dvk.composer.capture import partial as capture_partial
    from dvk.composer.capture.calling import ModuleCall

    try:
        call = ModuleCall(
            model,
            args,
            [*names, *(f"arg{number}" for number in range(len(names), len(args)))],
            by_name,
            home,
        )
        return capture_partial.captured(call, partial(_traced, call))
    except CannotCompose:
        raise
    except Exception as error:  # a module of any kind may break any part of the capture
        raise CannotCompose(
            f"capturing raised {one_line(error)}", traceback.format_exc()
        ) from error


def _traced(call: ModuleCall, recording: CallRecording | None) -> CapturedGraph:
    """Capture the graph of a call; places named by the recording are left to PyTorch."""
    import torch

    from dvk.composer.capture import layouts, modes
    from dvk.composer.capture import partial as capture_partial
    from dvk.composer.capture.eager_calls import CallRecording, Tracing
    from dvk.composer.capture.inline import inline
    from dvk.composer.capture.observe import following_data, mode_reads, observe
    from dvk.composer.capture.python_state import without_changes
    from dvk.composer.capture.state_between import freed, unread
    from dvk.composer.capture.swallowed import none_swallowed
    from dvk.composer.runtime.guards import dvk_config

    model, tensors = call.model, list(call.tensors.values())
    places = recording.places if recording is not None else ()
    left = tuple(place.path for place in places if place.module is None and not place.name)
    recording = recording or CallRecording(is_known=False)
    free = freed(recording.changes, left)
    config = dvk_config(model, left, free)
    tracing = Tracing(call, recording)
    try:
        with (
            torch.no_grad(),
            _no_stack_traces(not recording.is_known),
            _no_checks(),
            _apart(),
            _quietly(),
            mode_reads(model) as answered,
            call.flat(),
            tracing.meanwhile(),
            modes.reading(model) as read,
            unread(model, recording.changes, left, recording.parts),
            none_swallowed(model),
            following_data(),
            layouts.asked(),
        ):
            program = without_changes(
                model, lambda: torch.export.export(model, tuple(tensors), strict=False)
            )
    except CannotCompose:
        raise
    except Exception as error:  # a module of any kind may break any part of the capture
        raise CannotCompose(f"torch.export: {one_line(error)}") from error
    inline(program)
    with tracing.known():
        seen = observe(program, tensors)
    if (mistaken := layouts.mistaken(program, seen)) is not None:
        text = f"the module asks for the memory order of {mistaken.target}'s result, and a capture guesses it wrong"
        raise with_location(CannotCompose(text), mistaken)
    encoder = _Encoder(program, model, call.tensors, seen, call.tree, tracing)
    graph = encoder.graph()
    capture_partial.check_repeatable(graph)
    if places and not capture_partial.is_worthwhile(graph):
        raise NothingToFuse(
            f"nothing to fuse remains; left to PyTorch: {', '.join(map(str, places))}"
        )
    called = {node.kwargs["place"][2] for node in graph.nodes if node.op == "left"}
    return CapturedGraph(
        graph=graph,
        arguments=tuple(call.names),
        by_name=call.by_name,
        config_hash=config,
        asked=tuple(sorted(answered)),
        modes=read,
        depending=modes.depending(model, read),
        blocks=encoder.blocks,
        constants=call.constants,
        structure=call.structure,
        left=left,
        free=free,
        parts={name: text for name, text in recording.parts.items() if name in called},
    )


@contextmanager
def _no_checks() -> Iterator[None]:
    """Make functions that read values only to raise return NaN for such values instead: a graph has no branch on values."""
    import torch

    functions, look = torch.nn.functional, torch.any
    whole = functions.gaussian_nll_loss

    def gaussian_nll_loss(input: Any, target: Any, var: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.any is not look:  # it calls itself under a name of dvk's
            return whole(input, target, var, *args, **kwargs)
        torch.any = lambda *_: False  # type: ignore[assignment]
        try:
            return whole(
                input,
                target,
                torch.where(var < 0, float("nan"), var) if isinstance(var, torch.Tensor) else var,
                *args,
                **kwargs,
            )
        finally:
            torch.any = look

    functions.gaussian_nll_loss = gaussian_nll_loss
    try:
        yield
    finally:
        functions.gaussian_nll_loss = whole


DECOMPOSED_FUNCTIONS = aten.having("decomposed")
"""Functions of torch made of composable operators; whole they would stay calls of up to a dozen kernels."""


@contextmanager
def _apart() -> Iterator[None]:
    """Capture the functions in `DECOMPOSED_FUNCTIONS` as the operators PyTorch makes them of."""
    import torch

    def made_of(function: Any, whole: Any) -> Any:
        known = {argument.name for argument in whole._schema.arguments}

        def parts(*args: Any, **kwargs: Any) -> Any:
            named = {
                "self" if name == "input" and name not in known else name: value
                for name, value in kwargs.items()
            }
            if not named.keys() <= known:  # as with `out`
                return function(*args, **kwargs)
            # Export keeps operators whole by a function mode and by a separate `decompose`.
            with torch._C.DisableTorchFunction():
                return whole._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **named)

        return parts

    before = {name: getattr(torch, name) for name in DECOMPOSED_FUNCTIONS}
    for name, function in before.items():
        setattr(torch, name, made_of(function, getattr(torch.ops.aten, name).default))
    try:
        yield
    finally:
        for name, whole in before.items():
            setattr(torch, name, whole)


@contextmanager
def _quietly() -> Iterator[None]:
    """torch.export logs and warns at length about what it refuses; the reason is in the exception."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _no_stack_traces(wanted: bool) -> Iterator[None]:
    """Skip stack traces: one per operator is a sixth of the tracing time, and only a failed capture reads them."""
    from torch.fx import config

    if not wanted:
        yield
        return

    before = getattr(config, "do_not_emit_stack_traces", False)
    config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        config.do_not_emit_stack_traces = before


class _Encoder:
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
        signature = self.program.graph_signature
        order = list(self.program.graph.nodes)
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
        tensor_inputs = iter(n for n, a in self.inputs.items())
        output: Any = None
        for node in order:
            if node.op == "placeholder":
                kind = kinds.get(node.name)
                if kind is None:
                    self._generator(node)
                elif kind == "input":
                    name = next(tensor_inputs)
                    if "val" in node.meta and hasattr(node.meta["val"], "shape"):
                        self._add(node, "x", "input", target=name)
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
        graph = functionalized(
            Graph(
                nodes=self._linked(),
                outputs=self._outputs(output),
                training=bool(self.model.training),
            )
        )
        memory = AliasClasses(graph.nodes)
        outside = {
            memory.of(node.name)
            for node in graph.nodes
            if node.op == "const" and node.target is None
        }
        for node in graph.nodes:
            if any(memory.of(name) in outside for name in written(node)):
                traced = next(one for one in order if self.names.get(one.name) == node.name)
                raise with_location(
                    CannotCompose(f"{node.op} writes a tensor that the module does not hold"),
                    traced,
                )
        if (found := reshaped(graph)) is not None:
            traced = next(node for node in order if self.names.get(node.name) == found.name)
            raise with_location(
                CannotCompose(f"{found.op} gives a tensor that has aliases another shape"), traced
            )
        return graph

    def _outputs(self, flat: Any) -> Any:
        num_returned = self.program.call_spec.out_spec.num_leaves
        returned = [self._encode(v) for v in flat][-num_returned:] if num_returned else []

        def of(tree: Any) -> Any:
            if isinstance(tree, dict):
                if set(tree) == {"ref"}:
                    found = returned[tree["ref"]]
                    return found if isinstance(found, dict) and "ref" in found else {"value": found}
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
