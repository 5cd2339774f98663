"""Capture many modules in few sandboxed children, without memory for their tensors.

    for index, captured in capture_many(tasks, limits): ...       # Captured, or CannotCompose with the reason

The graphs equal those of `export`, an order of magnitude faster at real sizes: weights and inputs are fake tensors (`FakeTensorMode`:
sizes, types and strides without data), so nothing is drawn and nothing runs. `export` learns the layouts that kernels return by running the
program once; the fake kernels know them too, except in the cases named in `needs_real_kernels`. Those cases take the slow path, as does any
module that does not trace with fake tensors (a `tolist()` in the constructor, a numpy detour).

Fake tensors have no real device: a task for a GPU is traced on the CPU and relabelled, so no child opens a GPU and none is needed. Files
that name a device themselves take the slow path, as does attention on a GPU; if kernels target a GPU that is absent, `_attended` gives
attention that GPU's layout.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from dvk import aten, gpu_memory
from dvk.composer.capture.export import (
    CannotCompose,
    CapturedGraph,
    build_reply,
    capture_on,
    error_of_death,
    rolls_loops,
    trace,
    trace_call,
)
from dvk.composer.ir.affine import contiguous_strides
from dvk.config import Limits
from dvk.records import Device, Graph, Node, Task
from dvk.sandbox import Death
from dvk.tasks.batch import each
from dvk.tasks.sizes import bytes_to_run

LIMITS = Limits(wall_s=120.0)

COLLECT_EVERY = 50
"""Captures between two garbage collections of a child; each capture leaves a few megabytes of cycles."""


def capture_many(
    tasks: Iterable[Task],
    limits: Limits = LIMITS,
    *,
    num_workers: int = 1,
    per_child: int = 600,
    rolls: bool | Sequence[bool] = True,
) -> Iterator[tuple[int, CapturedGraph | CannotCompose]]:
    """Yield the operator graphs of many tasks, in order.

    Args:
        tasks: consumed lazily, a few blocks ahead; they need not have been examined.
        limits: `wall_s` for one capture, the rest for a child. A child that dies loses its current task.
        num_workers: concurrent children.
        per_child: captures per child; a child starts with some seconds of imports and answers after its last capture.
        rolls: as in `capture`, for all tasks or for each.
    """
    on_gpu: dict[int, Task] = {}

    def rolled(index: int) -> bool:
        return rolls if isinstance(rolls, bool) else rolls[index]

    def requested() -> Iterator[dict[str, Any]]:
        for index, task in enumerate(tasks):
            if task.device == "cuda":
                on_gpu[index] = task
            yield {"task": task.model_dump(mode="json"), "rolls": rolled(index)}

    for index, answer in each(
        "dvk.composer.capture.batch:child",
        requested(),
        limits,
        per_child=per_child,
        num_workers=num_workers,
    ):
        task = on_gpu.pop(index, None)
        if isinstance(answer, Death):
            yield index, CannotCompose(error_of_death(answer))
        elif task is not None and gpu_memory.was_short(answer.get("cannot")):
            yield index, _alone(task, limits, rolled(index))
        elif "cannot" in answer:
            yield index, CannotCompose(answer["cannot"], answer.get("traceback", ""))
        else:
            yield index, CapturedGraph.model_validate(answer["captured"])


def _alone(task: Task, limits: Limits, rolls: bool) -> CapturedGraph | CannotCompose:
    """The graph of a task that found the memory of its GPU taken."""
    try:
        return capture_on(task, limits, None, rolls)
    except CannotCompose as error:
        return error


# ---------------------------------------------------------------- child side


def child(channel: Any) -> None:
    """Sandbox target; see `dvk.tasks.batch`."""
    import torch

    torch.set_num_threads(1)
    gc.disable()  # full collections walk all of torch's objects
    for position, request in enumerate(channel.receive()["requests"], 1):
        if position % COLLECT_EVERY == 0:
            gc.collect()
        before = set(sys.modules)
        task = Task.model_validate(request["task"])
        ask = partial(wait_for_gpu, channel)
        channel.send(build_reply(task, partial(trace_quickly, ask=ask, rolls=request["rolls"])))
        for name in set(sys.modules) - before:
            if name.startswith("dvk_source_"):
                del sys.modules[name]  # hundreds of tasks' globals use memory


def wait_for_gpu(channel: Any, task: Task) -> None:
    """Wait until the parent grants the GPU memory that running the task takes; on a CPU nothing is asked."""
    if task.device == "cuda":
        channel.send({"needs": bytes_to_run(task.peak_bytes)})
        os.environ.update(channel.receive()["env"])  # CUDA reads it when it starts


def trace_quickly(
    task: Task,
    kernels: Device | None = None,
    ask: Callable[[Task], None] = lambda _: None,
    rolls: bool = True,
) -> CapturedGraph:
    """Capture as `export.trace` does, with fake tensors where they are as good.

    Args:
        task: without a GPU, a task for the CPU, whatever device its graph is for.
        kernels: the device whose layouts results must have, if it is not the task's device.
        ask: called before the task is run on its device.
        rolls: as in `capture`.

    Raises:
        CannotCompose, TaskError: as `trace`; also if attention on another device cannot be traced with fake tensors.
    """
    if (
        task.train
        or task.autocast
        or (task.device != "cpu" and re.search(r"cuda|cpu|device", task.source))
    ):
        ask(task)
        return trace(task, rolls)
    try:
        quick = trace_fake(task, kernels, rolls)
        # The GPU and its libraries decide which kernel computes attention and in which layout: ask the GPU if there is one.
        if not needs_real_kernels(quick.graph) and not (
            task.device != "cpu" and calls_attention(quick.graph)
        ):
            return quick
    except Exception:  # noqa: BLE001 - whatever fake tensors cannot do, the slow way does or explains
        pass
    ask(task)
    captured = trace(task, rolls)
    if kernels not in (None, task.device) and calls_attention(captured.graph):
        raise CannotCompose(
            "attention's layout on another device is unknown after operators that must run"
        )
    return captured


def trace_fake(task: Task, kernels: Device | None = None, rolls: bool = True) -> CapturedGraph:
    """Build the task under `FakeTensorMode` and export it; layouts come from the fake kernels, and those of attention from `kernels`."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from dvk.tasks.build import build

    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        _patched(task.device, attended=kernels == "cuda"),
    ):
        built = build(task.model_copy(update={"device": "cpu"}))
        args, kwargs = built.inputs(0)
        named = built.input_names(args)
        rolls = rolls and rolls_loops(task, [*args, *kwargs.values()])
        captured = trace_call(built.model, args, kwargs, named, built.namespace, rolls)
    # Autocast casts other operators on another device: a drop-in from here runs the original under it.
    captured = captured.model_copy(update={"autocast": ()})
    if task.device == "cpu":
        return captured
    nodes = tuple(
        node.model_copy(
            update={
                "args": tuple(_moved(node.args, task.device)),
                "kwargs": _moved(node.kwargs, task.device),
            }
        )
        for node in captured.graph.nodes
    )
    return captured.model_copy(update={"graph": captured.graph.model_copy(update={"nodes": nodes})})


def _moved(value: Any, device: str) -> Any:
    """An encoded operand with `device` replacing the CPU."""
    if isinstance(value, dict):
        return (
            {"device": device}
            if value == {"device": "cpu"}
            else {k: _moved(v, device) for k, v in value.items()}
        )
    return [_moved(v, device) for v in value] if isinstance(value, (list, tuple)) else value


ALIKE = 256
"""Widest head whose output PyTorch's 16-bit attention on a GPU (cuDNN or flash attention) lays out like the query."""


def _attended(answer: Any, query: Any, mask: Any) -> Any:
    """Give an attention result the layout of a GPU that is absent; on a CPU it has the query's layout.

    The choice of kernel is that of PyTorch 2.11 on an H100, for equal numbers of key and query heads. Memory-efficient attention, the only
    kernel for float32, returns results written as [batch, tokens, heads, width]; the fallback returns matmuls in row-major order. Other
    GPUs may choose otherwise, above all with 16-bit masks.
    """
    import torch

    batch, heads, tokens, width = answer.shape
    padded = -width % 8
    if query.element_size() == 2 and width <= ALIKE and (mask is None or not padded):
        return (
            torch.empty_like(torch.nn.functional.pad(query, (0, padded)))[..., :width]
            if padded
            else answer
        )
    if query.element_size() <= 4 and width * query.element_size() % 16 == 0:
        return answer.new_empty(batch, tokens, heads, width).transpose(1, 2)
    return answer.new_empty(answer.shape)


@contextmanager
def _patched(device: str, *, attended: bool) -> Iterator[None]:
    """Patch torch so that one capture in this child builds and exports with fake tensors; `attended`: attention as on a GPU."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    from dvk.composer.capture import observe
    from dvk.composer.runtime import facts

    warnings.filterwarnings(
        "ignore", message="Accessing the data pointer of FakeTensor"
    )  # torch asks whether two share memory

    def apply(self: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
        # torch swaps fake parameters in place, which weak references forbid; new ones work as well here.
        for module in self.modules() if recurse else [self]:
            for name, weight in module._parameters.items():
                if weight is not None:
                    module._parameters[name] = torch.nn.Parameter(
                        function(weight.detach()), weight.requires_grad
                    )
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = function(buffer)
        return self

    dispatched = FakeTensorMode.dispatch

    def dispatch(
        self: Any, function: Any, types: Any, args: Any = (), kwargs: Any = MappingProxyType({})
    ) -> Any:
        # Around the mode's cache, which tasks for both devices share.
        result: Any = dispatched(self, function, types, args, kwargs)
        if function is not torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default:
            return result
        return _attended(result[0], args[0], kwargs.get("attn_mask")), *result[1:]

    kept = torch.nn.Module._apply, facts.dvk_tensors, facts.dvk_place, observe.observe
    try:
        torch.nn.Module._apply = apply  # type: ignore[method-assign]
        facts.dvk_tensors = (torch.Tensor, FakeTensor)  # type: ignore[assignment]  # facts must not see them
        facts.dvk_place = lambda tensor: device
        observe.observe = lambda program, args: {}
        if attended:
            FakeTensorMode.dispatch = dispatch  # type: ignore[assignment, method-assign]
        yield
    finally:
        torch.nn.Module._apply, facts.dvk_tensors, facts.dvk_place, observe.observe = kept  # type: ignore[method-assign]
        FakeTensorMode.dispatch = dispatched  # type: ignore[method-assign]


LAYOUT_DEPENDS = aten.having("channels")
"""Operators whose fake kernels guess the layout of a result from that of an operand."""


def needs_real_kernels(graph: Graph) -> bool:
    """The program has layouts or types that fake kernels may get wrong: maps that are not contiguous or have one channel, losses of two
    types."""
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        packet = node.op.split(".")[1] if node.op.startswith("aten.") else ""
        operands = [nodes[a["ref"]] for a in node.args if isinstance(a, dict) and set(a) == {"ref"}]
        if packet in LAYOUT_DEPENDS and any(not _plain(n) for n in operands):
            return True
        if (
            "loss" in packet
            and len(
                {n.dtype for n in operands if n.dtype and n.dtype.startswith(("float", "bfloat"))}
            )
            > 1
        ):
            return True
    return False


def calls_attention(graph: Graph) -> bool:
    """The program calls attention."""
    return any(node.op.startswith("aten.scaled_dot_product_attention") for node in graph.nodes)


def _plain(node: Node) -> bool:
    shape, strides = node.shape or (), node.strides or ()
    return strides == contiguous_strides(shape) and (
        len(shape) < 3 or node.op == "param" or shape[1] != 1
    )
