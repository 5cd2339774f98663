"""Profile of an eager call of the reference, measured in a sandboxed child."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from dvk.config import Limits
from dvk.device_lock import DeviceLock, of_cpu
from dvk.harness.profiling.record import Profile
from dvk.records import Task
from dvk.sandbox import Death, call


def reference_profile(task: Task, limits: Limits) -> Profile | None:
    """Return where the time of an eager call goes, with warm caches; None if the child died.

    On a GPU this takes some 10 s, most of it the child's start and the profiler's.
    """
    with DeviceLock(of_cpu()).exclusive() if task.device == "cpu" else nullcontext():
        answer = call(
            "dvk.harness.profiling.reference:child",
            {"task": task.model_dump(mode="json")},
            limits,
            isolate=limits.reference_isolation(task.device),
        )
    return None if isinstance(answer, Death) else Profile.model_validate(answer.value)


def child(channel: Any) -> None:
    """Child side of `reference_profile`."""
    import torch

    from dvk.harness.profiling.profile import profile_call
    from dvk.tasks.build import build

    task = Task.model_validate(channel.receive()["task"])
    built = build(task)
    args, kwargs = built.inputs(0)
    with torch.no_grad():
        profile = profile_call(lambda: built.model(*args, **kwargs), task.device, own_kernels=())
    channel.send(profile.model_dump(mode="json"))
