"""The quick composition of one module: is it captured, and about how much faster is it with default schedules."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dvk.api.network import steps
from dvk.api.network.choosing import Tried
from dvk.api.network.patching import dressed
from dvk.api.written import Written
from dvk.composer import CannotCompose, CapturedGraph, Plan, applicable_to, compose
from dvk.composer.capture.export import trace_call
from dvk.composer.capture.joint import with_backward
from dvk.composer.lowering.convolution import PRODUCTS
from dvk.errors import DvkError
from dvk.records import Graph, Task
from dvk.stats.intervals import median_ratio
from dvk.tasks import of_text
from dvk.tasks.entry import positional_names
from dvk.tasks.sourcefile import execute
from dvk.tasks.trees import named_tensors

Call = tuple[list[Any], dict[str, Any]]
Composed = tuple[Tried, str | None]
"""What a quick composition gains, and its text; None if it is of no use."""
SECONDS, PAIRS = 0.4, 15
"""Longest time and most pairs of the quick measurement."""
NOTHING = "nothing in it can be fused"
LOOSE = {2: 5e-2}
"""Difference, relative to the output's largest value, from which a quick composition is wrong, by bytes of an element; `LOOSE_ELSE` for
wider ones. The judge decides more finely."""
LOOSE_ELSE = 1e-2
ROUNDINGS = 8
"""A gradient may be off by so many roundings of the largest one."""


def graph_of(module: nn.Module, call: Call) -> CapturedGraph:
    """Capture a live module on what it was called with.

    Raises:
        CannotCompose: nothing of it can be captured.
    """
    args, kwargs = call
    return trace_call(module, list(args), dict(kwargs), positional_names(module.forward, len(args)))


def same_graph(one: Graph, other: Graph) -> bool:
    """Whether two captured calls compute the same from the same weights."""
    return one == other


def task_of(written: Written, train: bool = False) -> Task:
    """Return the task of a written module, without a look at its file in another process."""
    path, _, entry = written.spec.rpartition(":")
    with open(path, encoding="utf-8") as file:
        task = of_text(file.read(), entry, entry)
    how = {"path": path, "device": written.device, "kind": "module", "eval_mode": not train}
    return task.model_copy(update={**how, "train": train})


def tried(
    module: nn.Module, call: Call, written: Written, backend: str, train: bool = False
) -> Composed:
    """Compose a module once with default schedules, in this process, compare and time it; with `train` forward and backward."""
    if written.how != "source":
        return _useless(f"its weights cannot be shared: {written.how}")
    try:
        captured = graph_of(module, call)
        if train:
            captured = with_backward(captured, module, written.device)
        left = sum(node.op == "left" for node in captured.graph.nodes)
        texts = drop_ins(captured, written, backend, train)
        if not texts:
            return Tried(1.0, left, NOTHING), None
        times = [_run(module, text, call, train) for text in texts]
        pairs = zip(times, texts, strict=True)
        best, text = max(pairs, key=lambda one: (not one[0].why, one[0].gain))
        return Tried(best.gain, left, best.why), None if best.why else text
    except CannotCompose as error:
        return _useless(f"the composer cannot capture it: {error}")
    except DvkError as error:
        return _useless(error.message)
    except Exception as error:  # noqa: BLE001 - a module of any kind may raise anything
        return _useless(_failed(error))


def _run(module: nn.Module, text: str, call: Call, train: bool) -> Tried:
    """Measure one text. The others are measured if it fails."""
    try:
        return _measured(module, execute(text, role="quick").ModelNew, call, train)
    except Exception as error:  # noqa: BLE001 - a compiler may raise anything
        return Tried(1.0, why=_failed(error))


def _failed(error: Exception) -> str:
    said = str(error).strip().partition("\n")[0]
    return f"its quick composition failed: {type(error).__name__}: {said}"[:300]


def _useless(why: str) -> Composed:
    return Tried(1.0, why=why), None


def drop_ins(
    captured: CapturedGraph, written: Written, backend: str, train: bool = False
) -> list[str]:
    """Return texts with default schedules: with PyTorch's products, and with kernels of dvk's own for them where there are any."""
    exact = tuple(applicable_to(captured, written.device, backend))
    library = tuple(name for name in exact if name not in PRODUCTS)
    plans = [Plan(one) for one in dict.fromkeys((library, exact))]
    made = [compose(task_of(written, train), captured, plan, backend) for plan in plans]
    return [one.source for one in made if one.schedule]


def _measured(module: nn.Module, kind: Any, call: Call, train: bool) -> Tried:
    if train:
        call = steps.leafed(call)
    once = steps.timed_call(module, call, train=train)
    wait: Callable[[], None] = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None

    def timed() -> float:
        if train:
            steps.clear(module, call)
        wait()
        began = time.perf_counter()
        once(module)
        wait()
        return 1e3 * (time.perf_counter() - began)

    def results() -> Any:
        if train:
            return steps.stepped(module, call, 0)
        return named_tensors(module(*call[0], **call[1]))

    with torch.no_grad():
        expected = results()
        with dressed([module], kind):
            got = results()
            counts = module.__dict__.get("_dvk_counts", {})
            if not module.__dict__.get("_dvk_ready") or train and not counts.get("kernels"):
                with torch.set_grad_enabled(train):
                    why = kind.why(module, *call[0], **call[1]).partition("\n")[0]
                return Tried(1.0, why=f"its drop-in runs the original: {why}"[:300])
            if why := _differs(expected, got):
                return Tried(1.0, why=why)
            for _ in range(2):
                timed()
        ours: list[float] = []
        eager: list[float] = []
        end = time.perf_counter() + SECONDS
        while len(ours) < PAIRS and (time.perf_counter() < end or len(ours) < 3):
            eager.append(timed())
            with dressed([module], kind):
                ours.append(timed())
    return Tried(median_ratio(eager, ours))


def _differs(expected: Any, got: Any) -> str:
    if [(name, one.shape, one.dtype) for name, one in expected] != [
        (name, one.shape, one.dtype) for name, one in got
    ]:
        return "its quick composition returns another structure"
    sizes = [_size(one) for name, one in expected if name.startswith(steps.GRADIENT)]
    for (name, one), (_, other) in zip(expected, got, strict=True):
        if not one.numel():
            continue
        off = (one.double() - other.double()).abs().nan_to_num()
        admitted = LOOSE.get(one.element_size(), LOOSE_ELSE) * _size(one)
        if name.startswith(steps.GRADIENT):
            # Some gradients are zero but for rounding, as of a bias of attention's keys.
            admitted = max(admitted, ROUNDINGS * torch.finfo(one.dtype).eps * max(sizes))
        if not float(off.max()) <= admitted:
            return f"its quick composition has other values in `{name}`"
    return ""


def _size(tensor: torch.Tensor) -> float:
    """The largest value; 0 of whole numbers, which are compared exactly."""
    return float(tensor.abs().max()) if tensor.numel() and tensor.is_floating_point() else 0.0
