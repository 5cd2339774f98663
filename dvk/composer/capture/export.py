"""Capture a task's module as an operator graph, in a sandboxed child.

torch.export in its pre-dispatch form was chosen over torch.fx symbolic tracing on evidence: it gives
one canonical ATen vocabulary with shapes, dtypes and strides for free functions, methods, operators
and modules alike, keeps `layer_norm`, `softmax` or `linear` whole, and shows buffer mutations as
explicit in-place calls, where fx keeps five spellings of one operator and no shapes.

A module that cannot be captured (control flow on data, custom operators, non-tensor inputs) raises
`CannotCompose` with the reason; that is an honest "no speed-up", not an error.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dvk import crashes, gpu_memory
from dvk.composer.capture import reads
from dvk.composer.capture.blame import one_line, with_location
from dvk.composer.capture.captured import CapturedGraph
from dvk.composer.capture.encoder import Encoder
from dvk.composer.capture.time_marks import Unfit
from dvk.composer.capture.tracing_context import apart, no_checks, no_stack_traces, quietly
from dvk.composer.ir.errors import CannotCompose, NothingToFuse
from dvk.config import Limits
from dvk.errors import TaskError
from dvk.records import Task
from dvk.sandbox import Death, call
from dvk.tasks.sizes import bytes_to_run

if TYPE_CHECKING:
    from dvk.composer.capture.autocast import Setting
    from dvk.composer.capture.calling import ModuleCall
    from dvk.composer.capture.eager_calls import CallRecording, Tracing


def capture(task: Task, limits: Limits, rolls: bool = True) -> CapturedGraph:
    """Capture the operator graph of the task's reference.

    Args:
        rolls: loops over time steps become one operator where they can; see `codegen.base.takes_time_loops`.

    Raises:
        CannotCompose: the module is outside what can be captured.
        MachineError: the child could not be started.
    """
    try:
        return capture_on(task, limits, bytes_to_run(task.peak_bytes), rolls)
    except CannotCompose as error:
        if task.device != "cuda" or not gpu_memory.was_short(str(error)):
            raise
    return capture_on(task, limits, None, rolls)


def capture_on(task: Task, limits: Limits, need: int | None, rolls: bool = True) -> CapturedGraph:
    """As `capture`, where `need` bytes of GPU memory are free; None: alone on a GPU."""
    with gpu_memory.environment(task.device, need) as env:
        answer = call(
            "dvk.composer.capture.export:child",
            {"task": task.model_dump(mode="json"), "rolls": rolls},
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
    given = channel.receive()
    task = Task.model_validate(given["task"])
    channel.send(build_reply(task, partial(trace, rolls=given["rolls"])))


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


def trace(task: Task, rolls: bool = True) -> CapturedGraph:
    """Export and encode; runs where the user's code may run."""
    from dvk.tasks.ambient import autocast_of
    from dvk.tasks.build import build

    built = build(task)
    args, kwargs = built.inputs(0)
    with autocast_of(task):
        named = built.input_names(args)
        rolls = rolls and rolls_loops(task, [*args, *kwargs.values()])
        made = trace_call(built.model, args, kwargs, named, built.namespace, rolls)
    if not task.train:
        return made
    from dvk.composer.capture.joint import with_backward

    return with_backward(made, built.model, task.device)


def rolls_loops(task: Task, values: list[Any]) -> bool:
    """Whether there are kernels for loops over time steps: not for gradients, nor for 16 bits in C++."""
    narrow = any(getattr(value, "itemsize", 4) == 2 for value in values)
    return not task.train and not (task.device == "cpu" and narrow)


def trace_call(
    model: Any,
    args: list[Any],
    kwargs: dict[str, Any],
    names: list[str],
    home: dict[str, Any] | None = None,
    rolls: bool = True,
) -> CapturedGraph:
    """Capture like `trace_module`, for a call with keywords; `home` are the globals of the user's file."""
    from dvk.composer.capture.calling import positional_form

    values, rest, by_name = positional_form(model, args, kwargs)
    return trace_module(model, values, [*names, *rest], by_name, home, rolls)


def trace_module(
    model: Any,
    args: list[Any],
    names: list[str],
    by_name: int = 0,
    home: dict[str, Any] | None = None,
    rolls: bool = True,
) -> CapturedGraph:
    """Export a live module on example arguments, the last `by_name` of them passed by keyword.

    Code that cannot be captured is left to PyTorch if the rest can be captured (`partial`).

    Args:
        rolls: loops over time steps become one operator where they can.

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
        call.rolls = rolls
        try:
            return capture_partial.captured(call, partial(_traced, call))
        except Unfit:
            call.rolls = False
            return capture_partial.captured(call, partial(_traced, call))
    except CannotCompose:
        raise
    except Exception as error:  # a module of any kind may break any part of the capture
        raise CannotCompose(
            f"capturing raised {one_line(error)}", traceback.format_exc()
        ) from error


def _traced(call: ModuleCall, recording: CallRecording | None) -> CapturedGraph:
    """Capture the graph of a call; places named by the recording are left to PyTorch."""
    from dvk.composer.capture import autocast, layouts, modes
    from dvk.composer.capture import partial as capture_partial
    from dvk.composer.capture.eager_calls import CallRecording, Tracing
    from dvk.composer.capture.inline import inline
    from dvk.composer.capture.observe import observe
    from dvk.composer.capture.rolling import rolled
    from dvk.composer.capture.state_between import freed
    from dvk.composer.capture.time_loops import shortened
    from dvk.composer.runtime.facts import dvk_facts

    model, tensors = call.model, list(call.tensors.values())
    places = recording.places if recording is not None else ()
    left = tuple(place.path for place in places if place.module is None and not place.name)
    recording = recording or CallRecording(is_known=False)
    free = freed(recording.changes, left)
    tracing = Tracing(call, recording)
    with shortened(model, call.loops, call.rolls):
        program, answered, read, mode_of = _exported(call, recording, tracing, left)
    facts: dict[str, dict[str, str]] = {}
    for path, name, text in dvk_facts(model, reads.wanted(model, read, left, free)):
        facts.setdefault(path, {})[name] = text
    for path, mode in mode_of.items():
        facts.setdefault(path, {})["training"] = repr(mode)
    kinds = {t.device.type for t in tensors}
    ambient = autocast.ambient(kinds)
    with autocast.off(ambient):
        inline(program, ambient)
        same = autocast.without_effect(program, *kinds) if len(kinds) == 1 else ()
    under = _under(ambient, bool(places), same)
    with autocast.off(ambient), tracing.known():
        seen = observe(program, tensors)
    if (mistaken := layouts.mistaken(program, seen)) is not None:
        text = f"the module asks for the memory order of {mistaken.target}'s result, and a capture guesses it wrong"
        raise with_location(CannotCompose(text), mistaken)
    encoder = Encoder(program, model, call.tensors, seen, call.tree, tracing)
    graph = rolled(encoder.graph(), call.loops)
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
        facts=facts,
        asked=tuple(sorted(answered)),
        autocast=() if under or places else same,
        under=under,
        modes=mode_of,
        depending=modes.depending(model, mode_of),
        blocks=encoder.blocks,
        constants=call.constants,
        structure=call.structure,
        left=left,
        free=free,
        parts={name: text for name, text in recording.parts.items() if name in called},
    )


def _under(ambient: list[Setting], leaves: bool, same: tuple[str, ...]) -> str | None:
    """The type of the autocast around the capture, None without one.

    Args:
        leaves: code is left to PyTorch.
        same: types of autocast that change nothing in the graph.

    Raises:
        CannotCompose: such code needs autocast, and the operators around it must run without.
    """
    if not ambient:
        return None
    under = str(ambient[0][1]).removeprefix("torch.")
    if leaves and under not in same:
        raise CannotCompose(
            "code that is left to PyTorch under autocast, beside operators without it"
        )
    return under


def _exported(
    call: ModuleCall, recording: CallRecording, tracing: Tracing, left: tuple[str, ...]
) -> tuple[Any, set[str], reads.Reads, dict[str, bool]]:
    """Export the module.

    Returns:
        The program, the questions about gradient modes that were answered, the attributes that were read, and the modes that count.

    Raises:
        CannotCompose: it cannot be exported, or its code changes what it also reads.
    """
    import torch

    from dvk.composer.capture import layouts, modes
    from dvk.composer.capture.observe import following_data, mode_reads
    from dvk.composer.capture.python_state import without_changes
    from dvk.composer.capture.state_between import unread
    from dvk.composer.capture.swallowed import none_swallowed

    model, tensors = call.model, tuple(call.tensors.values())

    def exported(opposite: str = "") -> tuple[Any, Any, Any]:
        call.loops.clear()
        with (
            torch.no_grad(),
            no_stack_traces(not recording.is_known),
            no_checks(),
            apart(),
            quietly(),
            mode_reads(model, opposite) as answered,
            call.flat(),
            tracing.meanwhile(),
            reads.recording(model) as read,
            unread(model, recording.changes, left, recording.parts),
            none_swallowed(model),
            following_data(),
            layouts.asked(),
        ):
            program = without_changes(
                model, lambda: torch.export.export(model, tensors, strict=False)
            )
        return program, answered, read

    try:
        program, answered, read = exported()
    except (CannotCompose, Unfit):
        raise
    except Exception as error:  # a module of any kind may break any part of the capture
        raise CannotCompose(f"torch.export: {one_line(error)}") from error
    mode_of = reads.modes(model, read)
    if not recording.places and not recording.changes:
        tree = call.tree

        def again(opposite: str = "") -> Any:
            other, _, also = exported(opposite)
            for part, names in also.items():
                read[part].update(names)
            return other

        for path in modes.without_effect(model, mode_of, program, again):
            del mode_of[path]
        answered -= {name for name in answered if modes.is_same(program, partial(again, name))}
        call.tree = tree
    return program, answered, read, mode_of
