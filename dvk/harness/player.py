"""The process that replays launch plans: our code, a GPU context of its own, no candidate host code.

A runner in which recorded plans take the place of a module, so the referee checks it like any other;
timed calls are different: with nobody's host code to distrust, the clock can be the device's. Both
arms, the eager reference and the plan, are captured once in CUDA graphs and replayed in turn on the
same inputs, L2 flushed, between events. Candidate kernels do share this process's device memory,
which is why expected outputs are not in it; when one breaks the context, the process is replaced.

Orders besides the runner's: plan. In `rounds` a call times both arms once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import torch

from dvk.harness.calls import describe, put_buffers
from dvk.harness.link import Link
from dvk.harness.peer import END, GO, START
from dvk.harness.plans.plan import PlanError, decode
from dvk.harness.plans.replay import Replay
from dvk.harness.runner import Answer, Runner, outside, serve_orders, settle
from dvk.sandbox import Channel
from dvk.tasks.build import CandidateError

POISON = float("nan")
WARM_S = 0.005


def serve(channel: Channel) -> None:
    """Obey the referee until it hangs up."""
    settle()
    serve_orders(Player(Link(channel.descriptors.pop(0))))


class Player(Runner):
    """A runner whose candidate is a plan."""

    def __init__(self, link: Link):
        super().__init__(link)
        self.replays: dict[str, Replay] = {}
        self.variant = "native"
        self._reference: Callable[[], Any] | None = None

    def do_build(self, order: Answer) -> Answer:
        """Another task: its reference."""
        self.replays.clear()
        self.variant, self._reference = "native", None
        return super().do_build(order)

    def do_plan(self, order: Answer) -> Answer:
        """Take the place of whatever plan was there before."""
        self.replays.clear()
        torch.cuda.empty_cache()
        try:
            recording = decode(order["plan"])
            self.replays = {plan.variant: Replay(recording, plan, "cuda:0") for plan in recording.plans}
        except PlanError as error:
            raise CandidateError("compile", f"its launch plan cannot be replayed: {error}", "launch_error") from None
        return {"plan": True, "compiled": next(iter(self.replays.values())).compiled}

    def do_weights(self, order: Answer) -> Answer:
        """The reference's are the plan's, too: they were recorded by name."""
        answer = super().do_weights(order)
        self._load_plans()
        return answer

    def do_inputs(self, order: Answer) -> Answer:
        self.variant = order["variant"]
        return super().do_inputs(order)

    def do_call(self, order: Answer) -> Answer:
        """One run of the plan, node by node; fresh memory is poisoned."""
        replay = self.replays[self.variant]
        for name, value in replay.state().items():
            if name in self.initial:
                value.copy_(self.initial[name])
        tensors = replay.run(self.board.tensors if self.board else [], poison=POISON)
        torch.cuda.synchronize()
        leaves, text = describe(replay.result(tensors))
        self.leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return {"leaves": [outside(leaf) for leaf in leaves], "spec": text}

    def do_tensors(self, order: Answer) -> Answer:
        """The plan's own copies."""
        held = dict(self.model.named_buffers() if order["which"] == "buffers" else self.model.named_parameters())
        found = {name: value for name, value in self.replays[self.variant].state().items() if name in held}
        self.leaves = list(found.values())
        return {"names": list(found), "leaves": [outside(tensor) for tensor in self.leaves]}

    def do_prepare(self, order: Answer) -> Answer:
        """Capture both arms, on the native inputs."""
        assert self.board is not None
        if self.replays:
            replay = self.replays["native"]
            replay.tune(self.board.tensors)
            self._candidate = replay.capture(self.board.tensors)
            self._captured_reference()
        return {"prepared": True}

    def rounds(self, sync: bool) -> None:
        """Time both arms once a round, from graphs, until told to leave."""
        reference, candidate = self._captured_reference(), self._candidate
        flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size // 4, dtype=torch.int32, device="cuda")
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def timed(arm: Callable[[], Any]) -> int:
            flush.zero_()
            start.record()
            arm()
            end.record()
            end.synchronize()
            return int(start.elapsed_time(end) * 1e6)

        number = self.control[GO]
        warm = time.monotonic() + WARM_S
        while time.monotonic() < warm:  # clocks rise
            timed(candidate.replay)
        self.link.ring(b"r")
        while (byte := self.link.wait()) != b"x":
            if byte == b"c":
                self.copy_out(list(candidate.outputs))
                self.link.ring(b"k")
                continue
            for scratch in candidate.scratch:
                scratch.view(torch.uint8).fill_(0xFF)
            number += 1
            self.link.ring(b"r")
            while self.control[GO] < number:
                pass
            arms = [(START, reference), (END, candidate.replay)]
            random.shuffle(arms)
            for place, arm in arms:
                self.control[place] = timed(arm)
            self.link.ring(b"d")

    def _captured_reference(self) -> Callable[[], Any]:
        if self._reference is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.no_grad(), torch.cuda.stream(side):
                for _ in range(3):
                    self.model(*self.args, **self.kwargs)
            torch.cuda.current_stream().wait_stream(side)
            put_buffers(self.model, self.initial)
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph):
                self._result = self.model(*self.args, **self.kwargs)
            self._reference = graph.replay
        return self._reference

    def _load_plans(self) -> None:
        state = {name: tensor for name, tensor in self.model.state_dict().items() if isinstance(tensor, torch.Tensor)}
        for replay in self.replays.values():
            replay.load(state)


