"""The process that replays launch plans: trusted code, a separate GPU context, no candidate host code.

It is a runner with recorded plans in place of a module, so the referee checks it like any other. Timed calls are different: without
untrusted host code, the clock can be the device's. The eager reference, the plan and requested baselines are captured once in CUDA graphs
and replayed in turn on the same inputs, L2 flushed, between events. So `torch.compile` is compared by the device's time, too. Candidate
kernels do share this process's device memory, so it holds no expected outputs; if one breaks the context, the process is replaced.

Boards stay mapped as long as their task: the reference's graph, captured once per task, reads the native one at the address it was captured
with, whatever other shapes are lent meanwhile.

Orders besides the runner's: plan, capture. Inside `rounds`: p times every arm once and copies the plan's outputs to the board → d; x
leaves. Switching the GPU between two processes takes longer than all of that, so there is one switch each way. If the GPU's context is
broken the process reports the exception and ends.
"""

from __future__ import annotations

import json
import os
import random
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dvk.crashes import text_of
from dvk.harness.launch_plans.cuda_graph import GraphedCall
from dvk.harness.launch_plans.plan import LaunchPlanError, NotCapturable, decode
from dvk.harness.launch_plans.replay import OutOfBounds, Replay
from dvk.harness.processes.failures import failure
from dvk.harness.processes.runner import Answer, Runner, serve_orders, settle
from dvk.harness.timing.baselines import ARMS
from dvk.harness.transport.calls import describe, put_buffers
from dvk.harness.transport.faults import outside
from dvk.harness.transport.lent_tensors import Board
from dvk.harness.transport.link import Gone, Link
from dvk.harness.transport.memory_budget import release_cached
from dvk.sandbox import RequestChannel
from dvk.tasks.build import CandidateError

POISON = float("nan")
WARM_S = 0.005


def serve(channel: RequestChannel) -> None:
    """Obey the referee until it hangs up."""
    settle()
    serve_orders(Player(Link(channel.descriptors.pop(0))))


class Player(Runner):
    """A runner whose candidate is a plan."""

    def __init__(self, link: Link):
        super().__init__(link)
        self.replays: dict[str, Replay] = {}
        self.variant = "native"
        self._boards: dict[str, Board] = {}
        """Plans by the offered text, for this task."""
        self._native: tuple[Board, list[Any], dict[str, Any]] | None = None
        self._candidate: GraphedCall | None = None
        self._reference: Callable[[], Any] | None = None
        self._baselines: dict[str, Callable[[], Any]] = {}
        """Captured ones, by name."""
        self._beside: list[str] = []
        """Those of them that are timed with the candidate."""
        self._results: list[Any] = []
        """Memory of graphs of the reference and the baselines, which must not be taken for anything else."""
        self._damaged = False
        """A kernel wrote into unknown memory."""

    def do_build(self, order: Answer) -> Answer:
        """Start another task with its reference. Nothing of the last one stays, not even memory that is no longer lent."""
        before, self._boards = self._boards, {}
        self._forget()
        self.variant, self._reference, self._native = "native", None, None
        self._baselines, self._beside, self._results = {}, [], []
        try:
            answer = super().do_build(order)
        finally:
            for board in before.values():
                board.close()
        assert self.board is not None
        self._native = self.board, self.args, self.kwargs
        return answer

    def do_plan(self, order: Answer) -> Answer:
        """Replace the previous plan, on the native inputs, whatever it was last called on."""
        assert self._native is not None
        self.variant, (self.board, self.args, self.kwargs) = "native", self._native
        self._forget()
        release_cached()
        try:
            recording = decode(order["plan"])
            self.replays = {
                plan.variant: Replay(recording, plan, "cuda:0") for plan in recording.plans
            }
        except LaunchPlanError as error:
            raise CandidateError(
                "compile", f"its launch plan cannot be replayed: {error}", "launch_error"
            ) from None
        operators = {name for replay in self.replays.values() for name in replay.operators}
        return {
            "plan": True,
            "compiled": next(iter(self.replays.values())).compiled,
            "operators": sorted(operators),
        }

    def do_weights(self, order: Answer) -> Answer:
        """Return the reference's buffers, which are the plan's, too: they were recorded by name."""
        answer = super().do_weights(order)
        self._load_plans()
        return answer

    def do_inputs(self, order: Answer) -> Answer:
        self.variant = order["variant"]
        return super().do_inputs(order)

    def do_call(self, order: Answer) -> Answer:
        """Run the plan once, node by node; fresh memory is poisoned."""
        replay = self.replays[self.variant]
        for name, value in replay.state().items():
            if name in self.initial:
                value.copy_(self.initial[name])
        try:
            tensors = replay.run(self.board.tensors if self.board else [], poison=POISON)
        except OutOfBounds:
            self._damaged = True
            raise
        torch.cuda.synchronize()
        leaves, text = describe(replay.result(tensors))
        self.leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return {"leaves": [outside(leaf) for leaf in leaves], "spec": text}

    def do_tensors(self, order: Answer) -> Answer:
        """Return the plan's copies."""
        held = dict(
            self.model.named_buffers()
            if order["which"] == "buffers"
            else self.model.named_parameters()
        )
        tensors = {
            name: value
            for name, value in self.replays[self.variant].state().items()
            if name in held
        }
        self.leaves = list(tensors.values())
        return {"names": list(tensors), "leaves": [outside(tensor) for tensor in self.leaves]}

    def do_profile(self, order: Answer) -> Answer:
        """Return where the time of a call of the plan goes, node by node; its kernels are known by their launches."""
        from dvk.harness.profiling.profile import profile_call

        replay, tensors = self.replays["native"], self.board.tensors if self.board else []
        profile = profile_call(
            lambda: replay.run(tensors),
            "cuda",
            own_kernels=replay.kernels,
            compiled=replay.compiled,
            num_bytes=order["num_bytes"],
        )
        return {"profile": profile.model_dump(mode="json")}

    def do_capture(self, order: Answer) -> Answer:
        """Compile baselines and capture them, on the native inputs; return the reasons of those that cannot be captured.

        Of another name the reference is captured again, to be timed against itself.
        """
        assert self._native is not None
        _, args, kwargs = self._native
        failed: dict[str, str] = {}
        for name in order["names"]:
            try:
                with self._capturing(name):
                    call: Callable[..., Any] = self.model
                    if name in ARMS and name != "graph":
                        call = ARMS[name](self.model, args, kwargs, lambda: None, lambda arm: arm)
                    self._baselines[name] = self._captured(call)
            except (CandidateError, NotCapturable) as error:
                failed[name] = str(error)
            except Exception as error:  # noqa: BLE001 - compilers raise anything
                failed[name] = text_of(error)[:300]
        return {"left_out": failed}

    def do_prepare(self, order: Answer) -> Answer:
        """Capture the reference and the plan, on the native inputs."""
        assert self.board is not None
        self._beside = list(order.get("beside", ()))
        if self.replays:
            replay = self.replays["native"]
            replay.tune(self.board.tensors)
            with self._capturing("the candidate"):
                self._candidate = replay.capture(self.board.tensors)
            with self._capturing("the reference"):
                self._captured_reference()
        return {"prepared": True}

    @contextmanager
    def _capturing(self, arm: str) -> Iterator[None]:
        """Run the body, which captures an arm.

        Raises:
            NotCapturable: its call cannot be in a CUDA graph: it copies from the host, synchronises, or allocates in ways of its own.
        """
        try:
            yield
        except (LaunchPlanError, OutOfBounds):
            raise
        except RuntimeError as error:
            first = error
            while isinstance(first.__context__, RuntimeError):
                first = first.__context__
            # Ending the capture failed as well: the allocator may take what comes next for a part of the graph.
            self._damaged |= first is not error
            raise NotCapturable(
                f"{arm} cannot be captured in a CUDA graph: {text_of(first)[:300]}"
            ) from None

    def rounds(self, sync: bool) -> None:
        """Time every arm once per round, from graphs, until the leave order; an exception is reported, and ends it."""
        try:
            self._rounds()
        except Gone:
            raise
        except BaseException as error:  # noqa: BLE001 - a kernel may have broken the context
            traceback.print_exc(limit=20)
            self.link.ring(b"e")
            self.link.send({"failed": failure(error)})
            if not self.is_healthy():
                raise Gone from None

    def is_healthy(self) -> bool:
        """Whether the GPU's context still works, with unchanged memory."""
        if self._damaged:
            return False
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True

    def _rounds(self) -> None:
        reference, candidate = self._captured_reference(), self._candidate
        beside = [self._baselines[name] for name in self._beside]
        assert candidate is not None
        state = self.replays["native"].state()
        changing = [
            (value, self.initial[name]) for name, value in state.items() if name in self.initial
        ]
        answer = [*candidate.outputs, *(state[name] for name in self.kept)]
        flush = torch.empty(
            2 * torch.cuda.get_device_properties(0).L2_cache_size // 4,
            dtype=torch.int32,
            device="cuda",
        )
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def timed(arm: Callable[[], Any]) -> int:
            flush.zero_()
            start.record()
            arm()
            end.record()
            end.synchronize()
            return int(start.elapsed_time(end) * 1e6)

        warm = time.monotonic() + WARM_S
        while time.monotonic() < warm:  # clocks rise
            timed(candidate.replay)
        self.link.ring(b"r")
        while self.link.wait() != b"x":
            for scratch in candidate.scratch:
                scratch.view(torch.uint8).fill_(0xFF)
            for value, before in changing:
                value.copy_(before)
            arms = list(enumerate((reference, candidate.replay, *beside)))
            random.shuffle(arms)
            for place, arm in arms:
                self.control[place] = timed(arm)
            self.copy_out(answer)
            self.link.ring(b"d")

    def _captured_reference(self) -> Callable[[], Any]:
        if self._reference is None:
            self._reference = self._captured(self.model)
        return self._reference

    def _captured(self, call: Callable[..., Any]) -> Callable[[], Any]:
        """Return the replay of a trusted call on the native inputs."""
        assert self._native is not None
        _, args, kwargs = self._native
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(3):
                call(*args, **kwargs)
        torch.cuda.current_stream().wait_stream(side)
        put_buffers(self.model, self.initial)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            self._results.append(call(*args, **kwargs))
        return graph.replay

    def _forget(self) -> None:
        """Free the last plan: its graph, then its kernels."""
        self.leaves, self._candidate = [], None
        for replay in self.replays.values():
            replay.close()
        self.replays.clear()

    def _borrow(self, offered: Answer) -> None:
        name = json.dumps(offered["offer"], sort_keys=True)
        if name not in self._boards:
            self._boards[name] = Board.borrow(offered["offer"], self.link.descriptors)
        else:
            os.close(self.link.descriptors.pop(0))
        self.board = self._boards[name]

    def _load_plans(self) -> None:
        state = {
            name: tensor
            for name, tensor in self.model.state_dict().items()
            if isinstance(tensor, torch.Tensor)
        }
        for replay in self.replays.values():
            replay.load(state)
