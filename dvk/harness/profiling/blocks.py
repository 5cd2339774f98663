"""Time of each block of a reference in an eager call, measured in a sandboxed child.

Hooks wait for the device before and after each block, so a block's time contains its launches, and the blocks' times sum to at most the
whole call's. The caches are warm: the times are shares of the call, not the judge's milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from statistics import median
from typing import Any

from dvk.config import Limits
from dvk.device_lock import DeviceLock, of_cpu
from dvk.records import Task
from dvk.sandbox import Death, call

WARM, CALLS = 2, 7
"""Warm-up calls, and calls of which the median is taken."""
WHOLE = ""
"""The key of the whole call."""


def block_times(task: Task, names: Sequence[str], limits: Limits) -> dict[str, float]:
    """Return milliseconds of a call by block, all its runs together, and of the `WHOLE` call; empty if the child died.

    Args:
        names: paths of modules; the time of a nested one is excluded from the outer one.
    """
    # On a GPU the name of its lock would need a context in this process; such calls are short.
    with DeviceLock(of_cpu()).exclusive() if task.device == "cpu" else nullcontext():
        request = {"task": task.model_dump(mode="json"), "names": list(names)}
        answer = call(
            "dvk.harness.profiling.blocks:child",
            request,
            limits,
            isolate=limits.reference_isolation(task.device),
        )
    return {} if isinstance(answer, Death) else dict(answer.value)


def child(channel: Any) -> None:
    """Child side of `block_times`."""
    from dvk.tasks.build import build

    request = channel.receive()
    built = build(Task.model_validate(request["task"]))
    channel.send(measured(built.model, *built.inputs(0), request["names"]))


def measured(
    model: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    names: Sequence[str],
    of: Callable[[list[float]], float] = median,
) -> dict[str, float]:
    """Return milliseconds by block and of the whole; runs where the user's code may run.

    Args:
        of: makes one figure of those of several calls. Other load adds to some calls of each block, but to most calls of the whole: the
            least ones add up.
    """
    import torch

    wait: Callable[[], None] = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    spent: dict[str, float] = {}
    begun: list[tuple[str, float]] = []

    def now() -> float:
        wait()
        return time.perf_counter()

    def enter(name: str) -> None:
        begun.append((name, now()))

    def leave() -> None:
        name, since = begun.pop()
        took = 1e3 * (now() - since)
        spent[name] += took
        if begun and begun[-1][0] != WHOLE:
            spent[begun[-1][0]] -= took

    def watch(module: Any, name: str) -> None:
        module.register_forward_pre_hook(lambda *_: enter(name))
        module.register_forward_hook(lambda *_: leave())
        if isinstance(
            module, (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)
        ):  # its parts may be called one by one
            for part in module.children():
                watch(part, name)

    for name in names:
        watch(model.get_submodule(name), name)
    runs = []
    with torch.no_grad():
        for _ in range(WARM + CALLS):
            spent.update(dict.fromkeys([*names, WHOLE], 0.0))
            enter(WHOLE)
            model(*args, **kwargs)
            leave()
            runs.append(dict(spent))
    return {name: of([run[name] for run in runs[WARM:]]) for name in [*names, WHOLE]}
