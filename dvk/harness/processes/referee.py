"""The process that judges: holds the reference, the secrets, the expected outputs and the clock, and runs no candidate.

Sandbox target. It executes the user's reference, which is trusted as far as the user trusts it. Candidates and the arms they are timed
against run in separate processes (`runner`); their ends of the line arrive here as descriptors with the parent's orders.

From the parent: {task, judge, seed, backward, brief, threads, sharers, memory_bytes, roofline} first, and for another task; then any of
    {runners: {name: pid}} + a descriptor each    → {arms: names, failed: {name: why}}
    {candidate, source, tier, pid, untimed, one_case, require_kernels, deprived, profile, arms, rounds, limit_s} + descriptor
                                                  → stages, then {findings}
    {candidate, plan, …}: the same for a launch plan, in the arm `player`
    {alone: true}                                 → {alone: reference_ms}, measured with nothing else running
To the parent besides: {stage} as each begins (setup, queue, prepare, compile, check, time), {settle}
before timing, answered by {settled}; {ready} or {broken} after a task.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from dvk import device_lock
from dvk.config import JudgeConfig
from dvk.device_lock import DeviceLock
from dvk.errors import TaskError
from dvk.harness.checking.case import Case
from dvk.harness.checking.case_keys import plan
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.input_families import NONFINITE
from dvk.harness.processes.evaluation import CandidateEvaluation
from dvk.harness.supervision.runner_client import CandidateFailed, Interfered, RunnerClient
from dvk.harness.timing.paired_timer import NUM_ALONE, WARM_ROUNDS, PairedTimer
from dvk.harness.timing.roofline_bytes import needed_bytes
from dvk.harness.transport import process_memory
from dvk.harness.transport.calls import put_buffers
from dvk.harness.transport.link import Gone
from dvk.harness.transport.memory_budget import budgets, keep_large_blocks_whole, release_cached
from dvk.records import Task
from dvk.sandbox import RequestChannel
from dvk.tasks.build import build

LASTING = ("player", "reference")
"""Arms whose processes serve one task after another; the others may hold torch.compile's results for theirs."""


def serve(channel: RequestChannel) -> None:
    """Judge until the parent closes."""
    # One thread: an OpenMP team here would spin on the cores while others are timed.
    torch.set_num_threads(1)
    process_memory.keep_freed()
    referee: _Referee | None = None
    while (order := channel.receive()) is not None:
        if "task" not in order:
            assert referee is not None, "a task comes first"
            channel.send(referee.obey(order))
            continue
        channel.send({"stage": "setup"})
        try:
            referee = _Referee(channel, order, referee)
            channel.send(
                {"ready": True, "recorded": referee.recorded(), "arms": list(referee.arms)}
            )
        except TaskError as error:
            channel.send({"broken": str(error.message)})
        except BaseException as error:  # noqa: BLE001 - the reference is not our code either
            channel.send(
                {"broken": f"the reference failed: {type(error).__name__}: {str(error)[:600]}"}
            )
        release_cached()  # memory of the previous task is free only now


class _Referee:
    """The referee's state for one task. The arms in LASTING are taken over from its predecessor, the others end with it."""

    def __init__(self, channel: RequestChannel, request: dict[str, Any], before: _Referee | None):
        self.channel = channel
        self.task = Task.model_validate(request["task"])
        self.settings = JudgeConfig.model_validate(request["judge"])
        random.seed(request["seed"])
        if before is not None:  # else the kept draws of two tasks are held at once
            before.cases.release(draws=True)
            process_memory.give_back()
        if self.task.device == "cuda":
            keep_large_blocks_whole()
            torch.cuda.init()
        self.lock: DeviceLock = (
            before.lock if before is not None else DeviceLock(_device_name(self.task))
        )
        self.threads: int = request["threads"]
        self.needed: dict[str, int] | None = None if request["roofline"] else {}
        self.arms: dict[str, RunnerClient] = {}
        with torch_threads(self.threads):
            self.built = build(self.task)
            self.plans = {
                tier: plan(
                    self.task,
                    tier,
                    self.settings.num_seeds,
                    request["seed"],
                    backward=request["backward"] or self.task.train,
                    brief=request["brief"] and tier == "search",
                    finite_only=self.settings.finite_only,
                )
                for tier in ("smoke", "search", "claim")
            }
            self.cases: Cases = Cases(
                self.built,
                self.plans["claim"],
                request["seed"],
                budgets(self.task.device, request["sharers"], request["memory_bytes"]),
                self.settings.exact_strides,
            )
            if self.settings.finite_only:
                self.cases.skipped |= dict.fromkeys(NONFINITE, "judge.finite_only is set")
            self.cases.get(self.plans["search"][0])
        self.timer = PairedTimer(self.task, self.cases, self.settings)
        if before is not None:
            self._succeed(before)

    def _succeed(self, before: _Referee) -> None:
        for name in before.arms.keys() - LASTING:
            before.arms.pop(name).close()
        self._prepare(before.arms)
        before.timer.close()
        process_memory.give_back()

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        if "runners" in order:
            return self._add_arms(order["runners"])
        if "capture" in order:
            return {"captured": self._capture(order["capture"])}
        if "alone" in order:
            with (
                self._lane(False),
                self._threads(),
            ):  # else they are drawn between the calls, on one core
                self.cases.stock(NUM_ALONE + WARM_ROUNDS)
            with self._lane(True):
                return {"alone": self.timer.alone(self.arms["reference"])}
        return {"findings": self._judge(order)}

    def recorded(self) -> dict[str, Any] | None:
        """Return the facts of this task's calls for a recorder; None if there is no GPU to replay them on."""
        if self.task.device != "cuda" or self.task.stochastic or self.task.written_inputs:
            return None
        from dvk.harness.launch_plans.calls import GpuProperties, describe_call, describe_state

        return {
            "calls": [
                describe_call(c.key.variant, c.args, c.kwargs).model_dump(mode="json")
                for c in first_cases(self.cases)
            ],
            "state": {
                name: layout.model_dump(mode="json")
                for name, layout in describe_state(self.built.model).items()
            },
            "gpu": GpuProperties.of_device(0).model_dump(mode="json"),
        }

    def say(self, stage: str) -> None:
        self.channel.send({"stage": stage})

    def _add_arms(self, pids: dict[str, int]) -> dict[str, Any]:
        for name in pids.keys() & self.arms.keys():
            self.arms.pop(name).close()
        peers = {
            name: RunnerClient(name, self.channel.descriptors.pop(0), pid, self.task.device)
            for name, pid in pids.items()
        }
        failed = self._prepare(peers)
        return {"arms": list(peers), "failed": failed}

    def _prepare(self, peers: dict[str, RunnerClient]) -> dict[str, str]:
        """Make arms of the runners; return the reasons of those that failed, which are closed."""
        failed: dict[str, str] = {}

        def each(step: Callable[[RunnerClient], object]) -> None:
            for name, peer in peers.items():
                try:
                    if name not in failed:
                        step(peer)
                except (CandidateFailed, Interfered, Gone) as error:
                    peer.close()
                    failed[name] = str(error) or "its process ended"

        with self._lane(False):
            each(lambda peer: self.timer.load_candidate(peer, ""))
            each(RunnerClient.answer)
            each(lambda peer: self.timer.load(peer, 0))
            each(lambda peer: peer.tell("prepare"))
            each(RunnerClient.answer)
        self.arms |= {name: runner for name, runner in peers.items() if name not in failed}
        return failed

    def _capture(self, names: list[str]) -> dict[str, str]:
        """Let the player capture baselines; return the reasons of those that it cannot."""
        self.say("prepare")
        player = self.arms["player"]
        try:
            self.timer.load(player, 0)
            return dict(player.ask("capture", names=names)["left_out"])
        except (CandidateFailed, Interfered, Gone) as error:
            return dict.fromkeys(names, str(error) or "its process ended")

    def _judge(self, order: dict[str, Any]) -> dict[str, Any]:
        plan: dict[str, Any] | None = order.get("plan")
        if plan is not None:
            runner = self.arms["player"]
        else:
            runner = RunnerClient(
                "candidate", self.channel.descriptors.pop(0), order["pid"], self.task.device
            )
        lane = partial(self._lane, claiming=order["tier"] == "claim")
        evaluation = CandidateEvaluation(
            self.task,
            self.cases,
            self.settings,
            self.timer,
            runner,
            self.say,
            lane,
            self._threads,
            self._turn,
        )
        try:
            findings = evaluation.run(
                order["source"],
                keys=self.plans[order["tier"]],
                plan=plan,
                untimed=order["untimed"],
                one_case=order["one_case"],
                require_kernels=order["require_kernels"],
                deprived=order["deprived"],
                profile=order["profile"],
                home=order.get("home", ""),
                arms={name: arm for name, arm in self.arms.items() if name in order["arms"]},
                captured=order["captured"],
                rounds=order["rounds"],
                limit_s=order["limit_s"],
                settle=self._settle if plan is None else lambda: None,  # a player starts nothing
            )
        finally:
            if plan is None:
                runner.close()
        if "samples" in findings:
            findings |= self._roofline()
        release_cached()
        return {
            "health": list(self.cases.remarks),
            "written_inputs": list(self.task.written_inputs),
            **findings,
        }

    def _roofline(self) -> dict[str, int]:
        """Return the bytes that a right answer must move, and the size of the flushed cache; determined once."""
        if self.needed is None:
            self.say("prepare")
            case, model = self.cases.fresh(0), self.built.model
            with self._lane(False), self._threads():
                self.cases.use(0)
                moved = needed_bytes(
                    lambda: self.cases.written.beside(model, case.args, case.kwargs),
                    [*case.inputs, *model.parameters()],
                )
                put_buffers(model, self.cases.initial(0))
            self.needed = {"needed_bytes": moved, "cache_bytes": self.timer.cache_bytes}
        return self.needed

    def _settle(self) -> None:
        """Let the parent end other processes that the candidate has started."""
        self.channel.send({"settle": True})
        self.channel.receive()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self.task.device != "cpu":
            yield
            return
        with self.lock.all_cores(lambda: self.say("queue")):
            self.say("check")
            yield

    def _threads(self) -> AbstractContextManager[None]:
        return torch_threads(self.threads)

    def _lane(self, alone: bool, claiming: bool = False) -> AbstractContextManager[None]:
        if alone:
            return self.lock.exclusive()
        return self.lock.shared() if claiming or self.task.device == "cpu" else nullcontext()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Hold all cores for work during which nothing is timed."""
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(1)


def _device_name(task: Task) -> str:
    if task.device == "cpu":
        return device_lock.of_cpu()
    properties = torch.cuda.get_device_properties(0)
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{properties.major}.{properties.minor}")
    return device_lock.of_gpu()


__all__ = ["serve"]


def first_cases(cases: Cases) -> list[Case]:
    """Return a case of every variant of the keys; an unfit family says nothing about its variant."""
    result: dict[str, Case] = {}
    for key in cases.keys:
        if key.variant not in result and (case := cases.get(key)) is not None:
            result.setdefault(case.key.variant, case)
    return list(result.values())
