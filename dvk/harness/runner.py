"""The process that a candidate runs in: loads it and calls it on lent inputs, as the referee orders.

Sandbox target, isolated where the code is a model's. It owns nothing worth stealing: no expected
output, no seed of a later draw, no verdict. What it reports is either checked from outside (outputs,
clock stamps) or only ever speaks against the candidate (errors). The reference and other baselines
run in the same program, so that both sides of a comparison pay the same for it.

Orders (JSON frames): build, weights, inputs, prepare, call, tensors, board, export, rounds. Inside
`rounds` single bytes: p prepare → r ready; the call begins when its number stands in the control page
(the runner spins for it, a few µs) → d done (or e and a frame: it raised); c copy to the board → k
copied; x leave.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from dvk.harness import memory, slots
from dvk.harness.arms import ARMS
from dvk.harness.board import Board, flat, layout_of
from dvk.harness.calls import buffers_of, call, describe, put_buffers
from dvk.harness.link import Gone, Link
from dvk.harness.operators import forbidden
from dvk.harness.peer import END, FIRST, GO, SEED, START
from dvk.records import Task
from dvk.sandbox import Channel
from dvk.tasks.build import CandidateError, build, construct_candidate, run_file
from dvk.tasks.sourcefile import blame
from dvk.tasks.state import reseed

WAKING = 2
"""Calls before a timed one on a GPU, on the last one's inputs: where the host takes as long as the kernels, a call whose
code has left the processor's caches is no measure."""

_now = time.perf_counter_ns
_synchronise = torch.cuda.synchronize

Answer = dict[str, Any]


def serve(channel: Channel) -> None:
    """Obey the referee until it hangs up."""
    settle()
    serve_orders(Runner(Link(channel.descriptors.pop(0))))


def serve_orders(runner: Runner) -> None:
    """Carry out orders until nobody gives any."""
    try:
        while True:
            order = runner.link.receive()
            if order["do"] == "rounds":
                runner.rounds(bool(order["sync"]))
            else:
                runner.link.send(_guarded(getattr(runner, f"do_{order['do']}"), order))
    except Gone:
        return


def _guarded(function: Callable[[Answer], Answer], order: Answer) -> Answer:
    try:
        return function(order)
    except CandidateError as error:
        return {"failed": {"status": error.status, "stage": error.stage, "error": error.message}}
    except Gone:
        raise
    except BaseException as error:  # noqa: BLE001 - a candidate may raise anything, KeyboardInterrupt included
        traceback.print_exc(limit=20)
        return {"failed": failure(error)}


def failure(error: BaseException) -> Answer:
    """Status, stage (null: where it happened) and text of what a candidate raised."""
    compiler = _by_a_compiler(error)
    return {
        "status": "compile_error" if compiler else "launch_error",
        "stage": "compile" if compiler else None,
        "error": blame(error),
    }


class Runner:
    """One module and the inputs lent to it."""

    def __init__(self, link: Link):
        self.link = link
        self.model: nn.Module = nn.Module()
        self.initial: dict[str, torch.Tensor] = {}
        self.call: Callable[..., Any] = self.model
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        self.board: Board | None = None
        self.out: Board | None = None
        self.leaves: list[torch.Tensor] = []
        self.control: Any = None

    # ------------------------------------------------------------ orders

    def do_build(self, order: Answer) -> Answer:
        self.task = Task.model_validate(order["task"])
        if self.task.device == "cuda":
            torch.cuda.init()
        self._map_control()
        self._take_inputs(order["inputs"])
        if order["role"] == "candidate":
            module = run_file(self.task)
            self.model = construct_candidate(
                order["source"], self.task, module, (self.args, self.kwargs), on_device=order["on_device"],
                training=order["training"],
            )
        else:
            self.model = build(self.task).model
        self.role: str = order["role"]
        self.call = self.model
        self.initial = buffers_of(self.model)
        return {"built": True}

    def do_weights(self, order: Answer) -> Answer:
        """Load a state_dict if it fits by name and shape."""
        own = self.model.state_dict()
        names = [entry["name"] for entry in order["offer"]["layouts"]]
        with_shapes = {entry["name"]: entry["shape"] for entry in order["offer"]["layouts"]}
        fits = own.keys() == with_shapes.keys() and all(list(getattr(own[n], "shape", ())) == with_shapes[n] for n in names)
        board = Board.borrow(order["offer"], self.link.descriptors)
        try:
            if fits:
                self.model.load_state_dict(dict(zip(names, board.tensors, strict=True)))
                self.initial = buffers_of(self.model)
        finally:
            board.close()
        return {"loaded": fits}

    def do_inputs(self, order: Answer) -> Answer:
        self._take_inputs(order)
        return {"inputs": True}

    def do_prepare(self, order: Answer) -> Answer:
        """Make the arm ready for timing: compile or capture what it stands for."""
        self.call = ARMS[self.role](self.model, self.args, self.kwargs) if self.role in ARMS else self.model
        return {"prepared": True}

    def do_call(self, order: Answer) -> Answer:
        """One call; where its outputs are and what they look like from outside."""
        put_buffers(self.model, self.initial)
        with forbidden(self.task.device) if order.get("bare") else nullcontext():
            result = call(self.model, self.args, self.kwargs, int(order["seed"]), backward=bool(order.get("backward")))
        if self.task.device == "cuda":
            _synchronise()
        leaves, text = describe(result)
        self.leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return {"leaves": [outside(leaf) for leaf in leaves], "spec": text}

    def do_tensors(self, order: Answer) -> Answer:
        """The module's buffers or parameters by name."""
        pairs = self.model.named_buffers() if order["which"] == "buffers" else self.model.named_parameters()
        found = dict(pairs)
        self.leaves = [tensor.detach() for tensor in found.values()]
        return {"names": list(found), "leaves": [outside(tensor) for tensor in self.leaves]}

    def do_board(self, order: Answer) -> Answer:
        """A place for outputs."""
        if self.out is not None:
            self.out.close()
        self.out = Board.borrow(order["offer"], self.link.descriptors)
        return {"board": True}

    def do_export(self, order: Answer) -> Answer:
        """Copy the tensors of the last answer to the board."""
        self.copy_out()
        return {"exported": True}

    # ------------------------------------------------------------ timed calls

    def rounds(self, sync: bool) -> None:
        """Timed calls until told to leave; the outputs stay alive until the next is prepared."""
        link, control = self.link, self.control
        tensors: list[torch.Tensor] = []
        result: Any = None
        gc.collect()
        gc.disable()
        number = control[GO]
        link.ring(b"r")
        try:
            with torch.no_grad():
                while (byte := link.wait()) != b"x":
                    if byte == b"c":
                        self.copy_out(tensors)
                        link.ring(b"k")
                        continue
                    del tensors[:]
                    result = None
                    put_buffers(self.model, self.initial)
                    if self.task.stochastic:
                        reseed(control[SEED])
                    try:
                        for _ in range(WAKING if sync else 0):
                            self.call(*self.args, **self.kwargs)
                            _synchronise()
                        number += 1
                        link.ring(b"r")
                        while control[GO] < number:
                            pass
                        start = _now()
                        result = self.call(*self.args, **self.kwargs)
                        if sync:
                            _synchronise()
                        end = _now()
                        leaves = [result] if isinstance(result, torch.Tensor) else describe(result)[0]
                        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
                        for i, leaf in enumerate(tensors):
                            control[FIRST + i] = leaf.data_ptr()
                        control[START], control[END] = start, end
                    except BaseException as error:  # noqa: BLE001 - see _guarded
                        traceback.print_exc(limit=20)
                        link.ring(b"e")
                        link.send({"failed": failure(error)})
                        continue
                    link.ring(b"d")
        finally:
            gc.enable()

    # ------------------------------------------------------------ parts

    def _map_control(self) -> None:
        descriptor = self.link.descriptors.pop(0)
        if self.control is not None:
            os.close(descriptor)
            return
        mapping = memory.Mapping(descriptor, [memory.PAGE])
        self.control = (ctypes.c_int64 * (memory.PAGE // 8)).from_address(mapping.addresses[0])

    def _take_inputs(self, offered: Answer) -> None:
        if self.board is not None:
            self.args, self.kwargs = [], {}
            self.board.close()
        self.board = Board.borrow(offered["offer"], self.link.descriptors)
        self.args, self.kwargs = slots.fill(offered["call"], self.board.tensors)

    def copy_out(self, tensors: list[torch.Tensor] | None = None) -> None:
        """To the board, what was last answered or `tensors`."""
        assert self.out is not None
        for place, leaf in zip(self.out.tensors, self.leaves if tensors is None else tensors, strict=True):
            if place.numel():
                flat(place).copy_(flat(leaf))
        if self.task.device == "cuda":
            _synchronise()


def outside(leaf: Any) -> Answer:
    """How an output looks from outside, and where it is."""
    if not isinstance(leaf, torch.Tensor):
        return {"value": leaf}
    if leaf.layout is not torch.strided or leaf.is_meta:
        return {"layout": str(leaf.layout), "dtype": str(leaf.dtype).removeprefix("torch."), "shape": list(leaf.shape),
                "strides": [], "device": leaf.device.type, "address": 0}
    leaf = leaf.detach().resolve_conj().resolve_neg()
    return {**layout_of(leaf), "layout": "torch.strided", "device": leaf.device.type, "address": leaf.data_ptr()}


def settle() -> None:
    """What compilers and drop-ins are told by the environment."""
    private = tempfile.gettempdir()
    os.environ["TORCH_EXTENSIONS_DIR"] = os.path.join(private, "torch_extensions")
    os.environ.setdefault("MAX_JOBS", "4")
    # A drop-in of ours falls back to the original where its kernels do not compile; here that must show.
    os.environ["DVK_STRICT"] = "1"
    sys.dont_write_bytecode = True


def _by_a_compiler(error: BaseException) -> bool:
    """g++, nvcc or Triton refused the kernel; many candidates compile at their first call only."""
    seen: BaseException | None = error
    while seen is not None:
        kind = type(seen)
        if kind.__module__.startswith("triton.compiler") or kind.__name__ in (
            "CompilationError", "CalledProcessError", "PTXASError",
        ):
            return True
        if "Error building extension" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
