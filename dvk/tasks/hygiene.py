"""Hygiene checks: whether a task is worth learning from, by running it, hundreds of tasks per sandboxed child.

Rejected: outputs that are constant or saturated, contain too many NaN or infinities, or do not depend on an input or a weight; references
that are ill-conditioned (float64 gives another result), change their inputs or draw random numbers. Checks run at the small sizes that the
file names, or at native sizes if a time is requested, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import Field

from dvk.config import Limits
from dvk.errors import TaskError
from dvk.records import Device, Record, Task
from dvk.sandbox import Death
from dvk.tasks.batch import each

SMALL = re.compile(r"^([A-Z][A-Z0-9_]*) = .*?# small: (\d+)$", re.MULTILINE)
"""A module constant, with its size for checks next to it."""

LIMITS = Limits(wall_s=60.0)

DEPENDS = 1e-3
"""Relative change of an output when an input is drawn again, or a weight is changed by half and a tenth."""
VARIES = 1e-3
"""Least deviation of an output over its rms."""
COMMON = 0.9
"""Largest share of an output's elements that are one value."""
MOST_NAN = 0.25
"""Largest share of an output's elements that are NaN: a logarithm of normal numbers has half."""
LARGEST = {"float16": 3e4}
LARGEST_OTHERS = 1e5
EXACT, EXACT_HALF = 2e-4, 0.1
"""Relative rms distance to the same module in float64."""


class Hygiene(Record):
    """Result for one task."""

    reasons: tuple[str, ...] = Field((), description="Why it is refused; empty when it is clean.")
    call_s: float | None = Field(
        None, description="Fastest of a few native calls, in seconds; null where not asked for."
    )

    @property
    def clean(self) -> bool:
        """Whether there is no finding."""
        return not self.reasons


def shrunk(source: str) -> str:
    """Set every constant of `source` that has a small size to it; unchanged if none has."""
    return SMALL.sub(r"\1 = \2", source)


def hygiene(
    sources: Iterable[str],
    limits: Limits = LIMITS,
    *,
    device: Device = "cpu",
    native: bool = False,
    per_child: int = 200,
    num_workers: int = 1,
    eval_mode: bool = False,
) -> Iterator[Hygiene]:
    """Return one finding per source, in order.

    Args:
        sources: task files in KernelBench's format with a class `Model`.
        limits: `wall_s` for one task.
        device: where to run.
        native: check at native sizes and measure a call, instead of at small sizes.
        per_child: tasks that one child checks.
        num_workers: children at a time.
        eval_mode: call .eval() on the modules.
    """
    how = {"device": device, "native": native, "eval_mode": eval_mode}
    requests = ({"source": source if native else shrunk(source), **how} for source in sources)
    for _, answer in each(
        "dvk.tasks.hygiene:child", requests, limits, per_child=per_child, num_workers=num_workers
    ):
        yield (
            Hygiene(reasons=(f"ended its process: {answer.reason}",))
            if isinstance(answer, Death)
            else Hygiene.model_validate(answer)
        )


# ---------------------------------------------------------------- child side


def child(channel: Any) -> None:
    """Sandbox target; see `dvk.tasks.batch`."""
    import torch

    torch.set_num_threads(1)
    for request in channel.receive()["requests"]:
        channel.send(examine(**request).model_dump())


def examine(source: str, device: Device, native: bool, eval_mode: bool = False) -> Hygiene:
    """Check one task in this process; only for processes where its code may run."""
    task = Task(
        id="",
        name="task",
        source=source,
        entry="Model",
        kind="module",
        device=device,
        eval_mode=eval_mode,
    )
    try:
        return _examined(task, native)
    except TaskError as error:
        return Hygiene(reasons=(error.message,))
    except Exception as error:  # noqa: BLE001 - the task's code may raise anything
        return Hygiene(reasons=(f"raised {type(error).__name__}: {str(error)[:200]}",))


def _examined(task: Task, native: bool) -> Hygiene:
    import torch

    from dvk.tasks.build import build
    from dvk.tasks.state import generators, restore, seeded, snapshot

    built = build(task)
    args, kwargs = built.inputs(1)
    kept = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    with seeded(0):
        before = generators()
        first = _outputs(built.model, args)
        drew = generators() != before
    reasons = ["draws random numbers"] if drew else []
    reasons += [
        f"changes input {i}"
        for i, (a, k) in enumerate(zip(args, kept, strict=True))
        if isinstance(a, torch.Tensor) and not equal(a, k)
    ]
    if not first or any(not t.is_floating_point() for t in first):
        return Hygiene(reasons=("an output is not a floating tensor",))
    for position, tensor in enumerate(first):
        reasons += [f"output {position} {what}" for what in _degenerate(tensor)]
    if reasons:
        return Hygiene(reasons=tuple(reasons))
    state = snapshot(built.model)
    other, _ = built.inputs(2)
    if max(distance(first, _outputs(built.model, other))) < DEPENDS:
        reasons.append("gives the same for other inputs")
    for index in range(len(args)):
        if (
            max(
                distance(
                    first, _outputs(built.model, [*args[:index], other[index], *args[index + 1 :]])
                )
            )
            < DEPENDS
        ):
            reasons.append(f"input {index} does not matter")
    for name, tensor in [*built.model.named_parameters(), *built.model.named_buffers()]:
        if tensor.is_floating_point():
            with torch.no_grad():
                tensor.mul_(1.5).add_(0.1)
            if max(distance(first, _outputs(built.model, args))) < DEPENDS:
                reasons.append(f"`{name}` does not matter")
            restore(built.model, state)
    call_s = _seconds(built.model, args, task.device) if native else None
    if not native:
        reasons += _inexact(built.model, args, first)
    return Hygiene(reasons=tuple(reasons), call_s=call_s)


def _outputs(model: Any, args: list[Any]) -> list[Any]:
    import torch

    from dvk.tasks.trees import named_tensors

    with torch.no_grad():
        return [tensor for _, tensor in named_tensors(model(*args))]


def _degenerate(tensor: Any) -> Iterator[str]:
    """Describe what is wrong with one output's values. Fully masked rows are NaN, and masked scores -inf, in honest tasks, too."""
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    tensor = _wider(tensor)
    values = tensor.flatten()
    values = values[values.isfinite()].double()
    if (
        int(tensor.isnan().sum()) > MOST_NAN * tensor.numel()
        or values.numel() < (1 - COMMON) * tensor.numel()
    ):
        yield "holds NaN or infinities, too many of them"
        return
    size = float(values.square().mean().sqrt())
    if size == 0.0 or float(values.abs().max()) > LARGEST.get(name, LARGEST_OTHERS):
        yield f"is out of range: rms {size:.1e}"
    elif values.numel() > 1:
        if float(values.std()) < VARIES * size:
            yield "is constant"
        sample = values if values.numel() <= 65536 else values[:: values.numel() // 65536]
        if (
            values.numel() > 4
            and float(torch.unique(sample, return_counts=True)[1].max()) > COMMON * sample.numel()
        ):
            yield "is one value nearly everywhere"


def distance(first: list[Any], second: list[Any]) -> list[float]:
    """Return for each output the rms of the difference over the rms of the first, over finite values; infinity if the rest differs."""
    return [_distance(a.double(), b.double()) for a, b in zip(first, second, strict=True)]


def _distance(a: Any, b: Any) -> float:
    there = a.isfinite() & b.isfinite()
    if not equal(a[~there], b[~there]):
        return float("inf")
    a, b = a[there], b[there]
    return (
        float(((a - b).square().mean() / a.square().mean().clamp(min=1e-30)).sqrt())
        if a.numel()
        else 0.0
    )


def _wider(tensor: Any) -> Any:
    """Return float32 for floats of eight bits, which most operators refuse; any other tensor itself."""
    narrow = tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1
    return tensor.float() if narrow else tensor


def equal(a: Any, b: Any) -> bool:
    """Whether tensors have one shape and equal values, NaN equal to itself."""
    import torch

    return bool(
        torch.equal(_wider(a), _wider(b))
        or (
            a.shape == b.shape
            and (a.is_floating_point() or a.is_complex())
            and bool(((a == b) | (a.isnan() & b.isnan())).all())
        )
    )


def _inexact(model: Any, args: list[Any], first: list[Any]) -> list[str]:
    """Return float64's result; None if the module does not run in it."""
    import torch

    dtypes = {
        str(t.dtype).removeprefix("torch.")
        for t in [*model.parameters(), *model.buffers(), *args, *first]
        if isinstance(t, torch.Tensor)
    }
    half = bool(dtypes & {"float16", "bfloat16"})
    try:
        wide = [
            a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args
        ]
        gaps = distance(first, _outputs(model.double(), wide))
    except (RuntimeError, TypeError, ValueError):  # a cast to one type in forward
        return []
    limit = EXACT_HALF if half else EXACT
    return [
        f"output {i} is ill-conditioned: float64 differs by {gap:.1e}"
        for i, gap in enumerate(gaps)
        if not gap < limit
    ]


def _seconds(model: Any, args: list[Any], device: str, calls: int = 4) -> float:
    import torch

    best = float("inf")
    for _ in range(calls):
        start = time.perf_counter()
        _outputs(model, args)
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best
