"""Examination of a file in the child: execute it, run its reference, report what it is or what is wrong.

Messages, in order: {stage} before each step, so that a crash can be located; {error} and the end, or {task}; then {variant} for every
further shape that the reference accepts; {done}. For a GPU, {needs: bytes} before anything is allocated, which {env} answers.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any, Protocol

import torch

from dvk.crashes import text_of
from dvk.errors import DvkError, MachineError, TaskError
from dvk.records import ShapeVariant, Task, content_hash
from dvk.tasks import beside, entry, packages, searched, variants
from dvk.tasks.build import BuiltTask, build, run_file
from dvk.tasks.gradients import check_gradients
from dvk.tasks.hygiene import equal
from dvk.tasks.input_sampler import Call
from dvk.tasks.peak_memory import peak_bytes
from dvk.tasks.precision import PrecisionMode, classify
from dvk.tasks.shared_memory import check_shared
from dvk.tasks.sizes import num_bytes
from dvk.tasks.sourcefile import fault
from dvk.tasks.state import State, generators, restore, seeded, snapshot
from dvk.tasks.trees import Named, describe, named_inputs, named_tensors
from dvk.tasks.writes import check_containers, containers, noted, written

INPUT_SEED = 0
CALL_SEED = 1
TRIAL_SEEDS = (0, 1, 2)
SEARCH_S = 10.0  # trying other shapes; enough for slow references, which get fewer


class SessionChannel(Protocol):
    """The child's end of a sandbox session."""

    def receive(self) -> dict[str, Any] | None: ...
    def send(self, message: dict[str, Any]) -> None: ...


def examine(channel: SessionChannel) -> None:
    """Sandbox target; the module's docstring lists the messages."""
    request = channel.receive()
    if request is None:
        return
    try:
        _examine(channel, request)
    except DvkError as error:
        channel.send(
            {"error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint}}
        )


def _examine(channel: SessionChannel, request: dict[str, Any]) -> None:
    on_gpu, starts_cuda = request["device"] == "cuda", "cuda" in request["source"]
    if on_gpu and starts_cuda:  # perhaps when it is imported
        _wait_for_gpu(channel, None)
    channel.send({"stage": "importing it"})
    watch = searched.SearchedFile([request["path"].rpartition("/")[0], request.pop("cwd")])
    task = _identify(request)
    if on_gpu and not starts_cuda:
        _wait_for_gpu(channel, peak_bytes(task))
    channel.send({"stage": f"constructing {task.entry}"})
    built = build(task)
    channel.send({"stage": "drawing inputs"})
    args, kwargs = built.inputs(INPUT_SEED)
    inputs = named_inputs(args, kwargs, built.input_names(args))
    twin = built.inputs(INPUT_SEED)
    kept = named_inputs(*twin, built.input_names(twin[0]))
    _check_inputs(built, inputs, kept)
    channel.send({"stage": "running it"})
    facts = _run_twice(built, (args, kwargs), inputs, twin, kept)
    task = _with_imported(
        task.model_copy(update={**facts, "folders": watch.added(beside.import_roots())})
    )
    channel.send({"task": task.model_dump(mode="json")})
    channel.send({"stage": "trying other shapes"})
    _try_shapes(channel, built, task)
    channel.send({"done": True})


def _wait_for_gpu(channel: SessionChannel, needs: int | None) -> None:
    """Tell how much memory a call takes, if it is known, and wait for a GPU that has it, before anything is allocated."""
    channel.send({"needs": needs})
    answer = channel.receive() or {}
    os.environ.update(answer.get("env", {}))  # CUDA reads it when it starts
    if not torch.cuda.is_available():
        raise MachineError(
            "this machine has no usable CUDA device",
            "use --device cpu, or see what `dvk doctor` says",
        )


def _identify(request: dict[str, Any]) -> Task:
    given = request["entry"]
    stem = request["stem"]
    fields = {key: request[key] for key in request if key not in ("entry", "stem")}
    package = packages.package_of(Path(request["path"]), request["source"])
    fields |= {"package": package, "source": packages.absolute(request["source"], package)}
    draft = Task(id="", name=stem, entry=given or "", kind="module", **fields)
    name, kind = entry.find(run_file(draft), given, request["path"].rpartition("/")[2])
    identity = content_hash(
        draft.source,
        name,
        *draft.input_specs,
        "init",
        *draft.init_args,
        f"{draft.eval_mode} {draft.dtype} {draft.device}"
        + (" train" if draft.train else "")
        + (f" autocast {draft.autocast}" if draft.autocast else ""),
    )
    label = f"{stem}:{name}" if given else stem
    return draft.model_copy(update={"id": identity, "name": label, "entry": name, "kind": kind})


def _with_imported(task: Task) -> Task:
    """Make its id depend on files that it imports from next to it; called after a call, since some imports happen only then."""
    files = beside.imported()
    if not files:
        return task
    contents = (
        part
        for name, file in files.items()
        for part in (name, hashlib.sha256(file.read_bytes()).hexdigest())
    )
    return task.model_copy(
        update={"id": content_hash(task.id, *contents), "beside": beside.texts_of(files)}
    )


def _check_inputs(built: BuiltTask, inputs: Named, kept: Named) -> None:
    if not inputs:
        raise TaskError(
            "the example inputs hold no tensor",
            'let get_inputs() return tensors, or give --input "x=float32[64,1024]"',
        )
    try:
        built.check_call(
            built.model.forward,
            built.task.entry + (".forward" if built.task.kind == "module" else ""),
        )
    except TypeError as error:
        raise TaskError(str(error), "make get_inputs() or --input fit the parameters") from None
    if [n for n, _ in inputs] != [n for n, _ in kept]:
        raise TaskError(
            "get_inputs() returns different structures under equal seeds",
            "always return the same list",
        )
    for (name, tensor), (_, again) in zip(inputs, kept, strict=True):
        describe(name, tensor)
        if tensor.shape != again.shape or not equal(tensor, again):
            raise TaskError(
                f"get_inputs() gives another `{name}` under equal seeds",
                "draw from torch's, numpy's or random's global generator; all three are seeded",
            )


def _run_twice(
    built: BuiltTask, call: Call, inputs: Named, twin: Call, kept: Named
) -> dict[str, Any]:
    """Facts from a first call; the second, with equal inputs, must agree with them."""
    state = snapshot(built.model)
    watch = PrecisionMode()
    unwritten, nesting = noted(inputs), containers(call)
    with seeded(CALL_SEED):
        before = generators()
        with watch:
            output = _forward(built, *call)
        stochastic = generators() != before
    outputs = named_tensors(output)
    check_containers(call, nesting, built.task.entry)
    written_inputs = written(inputs, unwritten, kept, built.task.entry)
    check_shared(written_inputs, built.shared_inputs, built.task.entry)
    if not outputs and not written_inputs:
        raise TaskError(
            f"{built.task.entry} returns no tensor but {type(output).__name__}",
            "return a tensor, or a tuple or dict of them, or write to an input in place",
        )
    specs = [describe(name, tensor) for name, tensor in outputs]
    for name, tensor in outputs:
        if _nan_only(tensor):
            label = f"output `{name}`" if name != "output" else "the output"
            raise TaskError(
                f"{label} of {built.task.entry} is NaN throughout on the example inputs",
                _nan_hint(built),
            )
    restore(built.model, state)
    with seeded(CALL_SEED):
        again = named_tensors(_forward(built, *twin))
    restore(built.model, state)
    left = [pair for pair in inputs if pair[0] in written_inputs]
    _check_equal(
        [*outputs, *left],
        [*again, *(pair for pair in kept if pair[0] in written_inputs)],
        built.task.entry,
    )
    if built.task.train:
        check_gradients(built, *call, CALL_SEED)
        restore(built.model, state)
    training = built.model.training if built.task.kind == "module" else None
    return {
        "inputs": tuple(describe(n, t) for n, t in inputs),
        "outputs": tuple(specs),
        "written_inputs": written_inputs,
        "stochastic": stochastic,
        "training": training,
        "precision": classify(watch, [t for _, t in (*outputs, *left)]),
        "peak_bytes": torch.cuda.max_memory_allocated() if built.task.device == "cuda" else None,
    }


def _forward(built: BuiltTask, args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        with torch.no_grad():
            output = built.model(*args, **kwargs)
        if built.task.device == "cuda":
            torch.cuda.synchronize()
        return output
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        hint = "make the example inputs fit forward, or fix forward"
        if "cuda" in text_of(error).lower() and built.task.device == "cpu":
            hint = "the file places something on a GPU: remove .cuda() and device=…, and choose with --device"
        raise fault(f"{built.task.entry} failed on the example inputs", error, hint) from error


def _check_equal(first: Named, second: Named, name: str) -> None:
    message = f"{name} gives different results under equal seeds"
    hint = "draw from torch's global generator and keep state between calls in buffers only"
    if [(n, t.shape, t.dtype) for n, t in first] != [(n, t.shape, t.dtype) for n, t in second]:
        raise TaskError(message, hint)
    for (_, a), (_, b) in zip(first, second, strict=True):
        if equal(a, b):
            continue
        if not (a.is_floating_point() or a.is_complex()):
            raise TaskError(message, hint)
        a, b = (t.float() if t.dtype.itemsize == 1 else t for t in (a, b))
        # Atomic additions on a GPU may reorder sums; that is rounding, not another result.
        scale = (
            float(b[b.isfinite()].double().square().mean().sqrt()) if b.is_floating_point() else 1.0
        )
        slack = (1e-2 if a.dtype.itemsize <= 2 else 1e-3) * scale
        if not torch.allclose(a, b, rtol=0.0, atol=slack, equal_nan=True):
            raise TaskError(message, hint)


def _nan_only(tensor: Any) -> bool:
    """There is nothing else to compare; NaN in places, as in fully masked rows, is a normal result."""
    return (
        bool(tensor.numel())
        and (tensor.is_floating_point() or tensor.is_complex())
        and bool(tensor.isnan().all())
    )


def _nan_hint(built: BuiltTask) -> str:
    if built.task.dtype in ("float16", "bfloat16"):
        return f"the values do not survive {built.task.dtype}: try another --dtype or tamer inputs"
    return "choose inputs that it is defined for, or guard it, e.g. with clamp or an eps"


# ---------------------------------------------------------------- other shapes


def _try_shapes(channel: SessionChannel, built: BuiltTask, task: Task) -> None:
    """Report the shapes that the reference accepts, of those that the file lists, or else of likely ones."""
    state = snapshot(built.model)
    listed = variants.listed(built.namespace.get(entry.GET_SHAPE_VARIANTS), task.inputs)
    if listed is None:
        _search_shapes(channel, built, task, state)
        return
    end = time.monotonic() + SEARCH_S
    for candidate in listed:
        if time.monotonic() > end:
            return
        if _accepts(_trial(built, task, candidate), candidate.name, TRIAL_SEEDS[0], state):
            channel.send({"variant": candidate.model_dump(mode="json")})
        elif task.device == "cuda" and not _alive():
            return


def _trial(built: BuiltTask, task: Task, candidate: ShapeVariant) -> BuiltTask:
    return BuiltTask(
        task.model_copy(update={"shape_variants": (candidate,)}),
        built.module,
        built.model,
        built.constructed_on_device,
    )


def _search_shapes(channel: SessionChannel, built: BuiltTask, task: Task, state: State) -> None:
    indexes = any(spec.dtype.startswith(("int", "uint")) for spec in task.inputs)
    end = time.monotonic() + SEARCH_S
    count = 0
    for axis in variants.axes(task.inputs):
        for group in axis.groups:
            accepted = 0
            for name, size in variants.sizes(
                axis, num_bytes(task), enough=count >= variants.BATCH_ENOUGH
            ):
                if count >= variants.MAX_VARIANTS or time.monotonic() > end:
                    return
                if size == 1 and not variants.safe_to_broadcast(axis, group):
                    continue
                candidate = variants.variant(name, group, size)
                # An out-of-range index for a smaller size may be missing from one draw, hardly from three.
                seeds = TRIAL_SEEDS if indexes and size < axis.size else TRIAL_SEEDS[:1]
                trial = _trial(built, task, candidate)
                if all(_accepts(trial, name, seed, state) for seed in seeds):
                    channel.send({"variant": candidate.model_dump(mode="json")})
                    accepted += 1
                    count += 1
                elif task.device == "cuda" and not _alive():
                    return
            if accepted:
                break


def _accepts(built: BuiltTask, name: str, seed: int, state: State) -> bool:
    try:
        args, kwargs = built.inputs(seed, name)
        with seeded(CALL_SEED):
            outputs = named_tensors(_forward(built, args, kwargs))
        return len(outputs) == len(built.task.outputs) and not any(_nan_only(t) for _, t in outputs)
    except TaskError:
        return False
    finally:
        restore(built.model, state)


def _alive() -> bool:
    try:
        torch.cuda.synchronize()
        return True
    except RuntimeError:
        return False
