"""The child that executes what others wrote: builds the reference once, then judges candidates in turn.

Sandbox target. Messages from the parent: one {task, tier, judge, baselines, seed, brief}, then
{source, untimed} a candidate. To the parent: {stage} as each begins (setup, baseline, queue, compile, check,
time), {ready} or {broken} after the first request, {findings, fatal} after each other. `fatal`: the
process is no good for another candidate (a CUDA error sticks to its context).

The reference, its outputs and the clock live in the process that runs the candidate. A candidate
that looks for them can find and change them; what the parent gets is as honest as the candidate.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from dvk.config import Judge
from dvk.errors import TaskError
from dvk.harness import timing
from dvk.harness.attempt import Attempt, forget
from dvk.harness.cases import Cases, plan, put_buffers
from dvk.harness.lanes import Lane
from dvk.records import Task
from dvk.sandbox import Channel
from dvk.tasks.build import build


def serve(channel: Channel) -> None:
    """Judge until the parent closes."""
    request = channel.receive()
    if request is None:
        return
    channel.send({"stage": "setup"})
    _settle()
    try:
        session = _Session(channel, request)
    except TaskError as error:
        channel.send({"broken": str(error.message)})
        return
    except BaseException as error:  # noqa: BLE001 - the reference is not our code either
        channel.send({"broken": f"the reference failed: {type(error).__name__}: {str(error)[:600]}"})
        return
    channel.send({"ready": True})
    while (order := channel.receive()) is not None:
        findings = session.judge(order)
        channel.send({"findings": findings, "fatal": not _device_alive(session.task)})


class _Session:
    def __init__(self, channel: Channel, request: dict[str, Any]):
        self.channel = channel
        self.task = Task.model_validate(request["task"])
        self.tier: str = request["tier"]
        self.settings = Judge.model_validate(request["judge"])
        random.seed(request["seed"])
        if self.task.device == "cuda":
            torch.cuda.init()
        self.lane = Lane(_device_name(self.task))
        self.built = build(self.task)
        num_seeds = 1 if request["brief"] else self.settings.num_seeds
        self.cases = Cases(self.built, plan(self.task, self.tier, num_seeds, request["seed"]))
        for number in range(len(self.cases)):
            self.cases.get(number)
        self.cases.release()
        self.clock: timing.Clock | None = None
        self.wanted: list[str] = request["baselines"]
        self.baselines: dict[str, timing.Arm] | None = None
        self.threads = torch.get_num_threads()

    def judge(self, order: dict[str, Any]) -> dict[str, Any]:
        """Findings on one candidate."""
        before = set(sys.modules)
        untimed: str | None = order["untimed"]
        timed = self.tier != "smoke" and untimed is None
        if timed and self.baselines is None:
            self.say("baseline")
            arms = {name: self._baseline(name) for name in self.wanted}
            self.baselines = {name: arm for name, arm in arms.items() if arm is not None}
            self.clock = timing.Clock(self.task.device, self.cases.get(0).num_bytes + self.cases.weight_bytes)
        attempt = Attempt(self.task, self.cases, self.settings, self.tier, untimed, self.say, self._lane)
        findings = attempt.run(order["source"], self.baselines or {} if timed else {}, self.clock)
        forget(before)
        torch.set_num_threads(self.threads)
        torch.set_grad_enabled(True)
        return findings

    def say(self, stage: str) -> None:
        self.channel.send({"stage": stage})

    def _lane(self, alone: bool) -> AbstractContextManager[None]:
        if alone:
            return self.lane.alone()
        return self.lane.shared() if self.task.device == "cpu" else nullcontext()

    def _baseline(self, name: str) -> timing.Arm | None:
        """An arm that computes as `name` does, compiled and warm; None when it cannot."""
        if name != "compile":
            raise ValueError(f"unknown baseline {name}")
        case = self.cases.get(0)
        module = torch.compile(self.built.model)
        try:
            with torch.no_grad():
                for _ in range(2):
                    module(*case.args, **case.kwargs)
        except Exception as error:  # noqa: BLE001 - torch.compile may fail on anything; the verdict then has no such baseline
            print(f"baseline {name} is left out: {type(error).__name__}: {str(error)[:400]}", file=sys.stderr)
            return None
        put_buffers(self.built.model, self.cases.initial)
        return lambda: module(*case.args, **case.kwargs)


def _settle() -> None:
    """Folders of this session's own for what compilers write: sessions neither wait for nor find each other's."""
    private = tempfile.gettempdir()
    os.environ["TORCH_EXTENSIONS_DIR"] = os.path.join(private, "torch_extensions")
    # torch.compile's own cache pays across sessions: the same reference is compiled in each.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(os.path.expanduser("~"), ".cache", "dvk", "inductor"))
    os.environ.setdefault("MAX_JOBS", "4")
    # A drop-in of ours falls back to the original where its kernels do not compile; here that must show.
    os.environ["DVK_STRICT"] = "1"


def _device_name(task: Task) -> str:
    if task.device == "cpu":
        return "cpu"
    properties = torch.cuda.get_device_properties(0)
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{properties.major}.{properties.minor}")
    return f"gpu-{getattr(properties, 'uuid', 0)}"


def _device_alive(task: Task) -> bool:
    if task.device != "cuda":
        return True
    try:
        torch.cuda.synchronize()
        return True
    except RuntimeError:
        return False
