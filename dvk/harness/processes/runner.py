"""The process that runs a candidate: loads it and calls it on lent inputs, as the referee orders.

Sandbox target, isolated if the code is a model's. It holds no secrets: no expected output, no seed of a later draw, no verdict. Its reports
are either checked from outside (outputs, clock stamps) or can only count against the candidate (errors). The reference and other baselines
run in the same program, so that both sides of a comparison have the same overhead.

Orders (JSON frames): build, weights, inputs, prepare, call, tensors, board, export, rounds. Inside `rounds` single bytes: p prepare, and
release what was returned last (h: hold it until the next h; g: garbage, too) → r ready; the call begins when its number stands in the
control page (the runner spins for it) → d done (or e and a frame: it raised); c copy to the board (b: what is held) → k copied; x leave.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import nn

from dvk.harness.checking.written_inputs import restoring
from dvk.harness.processes.failures import compiler_says, failure
from dvk.harness.processes.tensor_matching import Places
from dvk.harness.processes.training_step import TrainingStep, begin
from dvk.harness.processes.weight_rewrites import LOAD, pack_recurrent, rewrite
from dvk.harness.provenance.operators import forbidden
from dvk.harness.supervision.memory_growth import Outputs
from dvk.harness.timing.baselines import ARMS
from dvk.harness.toolchain import stubs, triton_interpreter
from dvk.harness.transport import call_template, process_memory
from dvk.harness.transport.call_page import END, FIRST, GO, HELD, KEPT, SEED, START
from dvk.harness.transport.calls import buffers_of, call, describe, in_mode, put_buffers
from dvk.harness.transport.faults import outside
from dvk.harness.transport.lent_tensors import Board, flat, memory_of
from dvk.harness.transport.link import Gone, Link
from dvk.harness.transport.memory_budget import release_cached
from dvk.harness.transport.told import told_of
from dvk.records import Task
from dvk.sandbox import RequestChannel
from dvk.tasks.build import CandidateError, build, construct_candidate, run_file
from dvk.tasks.state import reseed
from dvk.tasks.trees import named_tensors

WAKING = 2
"""Calls before a timed one on a GPU, on the last one's inputs, so that their code is in the processor's caches."""

_now = time.perf_counter_ns
_synchronise = torch.cuda.synchronize

Answer = dict[str, Any]


def serve(channel: RequestChannel) -> None:
    """Obey the referee until it hangs up."""
    settle()
    triton_interpreter.admit_scalars()
    link = Link(channel.descriptors.pop(0))
    if channel.descriptors:
        stubs.ask_through(channel.descriptors.pop(0))
    serve_orders(Runner(link))


def serve_orders(runner: Runner) -> None:
    """Carry out orders until the line is closed."""
    try:
        while True:
            order = runner.link.receive()
            if order["do"] == "rounds":
                runner.kept, runner.tells = list(order["buffers"]), bool(order.get("tells"))
                runner.rounds(bool(order["sync"]))
                release_cached()
            else:
                answer = _guarded(getattr(runner, f"do_{order['do']}"), order)
                runner.link.send(answer)
                if ("failed" in answer or answer.get("left_out")) and not runner.is_healthy():
                    return
    except Gone:
        return


def _guarded(function: Callable[[Answer], Answer], order: Answer) -> Answer:
    try:
        return function(order)
    except CandidateError as error:
        said = compiler_says(error)
        status = "compile_error" if said else error.status
        return {"failed": {"status": status, "stage": error.stage, "error": said or error.message}}
    except Gone:
        raise
    except BaseException as error:  # noqa: BLE001 - a candidate may raise anything, KeyboardInterrupt included
        traceback.print_exc(limit=20)
        return {"failed": failure(error)}


@contextmanager
def _without_gc() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # so that another collection takes no time
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


@dataclass
class _Timed:
    """What a timed call returned, alive until the next is prepared."""

    result: Any = None
    leaves: list[Any] = field(default_factory=list)
    text: str = ""
    tensors: list[torch.Tensor] = field(default_factory=list)
    """Its tensors, then the buffers that are read after each call."""


class Runner:
    """One module and the inputs lent to it."""

    def __init__(self, link: Link):
        self.link = link
        self.module: ModuleType | None = None
        """The task's file, executed."""
        self.model: nn.Module = nn.Module()
        self.initial: dict[str, torch.Tensor] = {}
        self.call: Callable[..., Any] = self.model
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        self.board: Board | None = None
        self.written: list[torch.Tensor] = []
        """Lent inputs that the reference writes; the judge restores them between calls."""
        self._fixed: list[int] = []
        """Their positions."""
        self._num_inputs = 0
        """Lent tensors before the cotangents."""
        self.out: Board | None = None
        self.leaves: list[torch.Tensor] = []
        self.earlier: list[torch.Tensor] = []
        """Whether the first call since inputs were lent is watched; later ones must not change its outputs."""
        self.control: Any = None
        self.places: Places | None = None
        self.kept: list[str] = []
        """Buffers that are read after each timed call, by the reference's names."""
        self.tells = False
        """Whether it reports results other than tensors after each timed call."""

    # ------------------------------------------------------------ orders

    def do_build(self, order: Answer) -> Answer:
        self.task = Task.model_validate(order["task"])
        if self.task.device == "cuda":
            torch.cuda.init()
        self._map_control()
        self._borrow(order["inputs"])
        if order["role"] == "candidate":
            self.module = run_file(self.task)
            self._fill(order["inputs"])
            self.model = construct_candidate(
                order["source"],
                self.task,
                self.module,
                (self.args, self.kwargs),
                on_device=order["on_device"],
                training=order["training"],
            )
        else:
            built = build(self.task)
            self.module, self.model = built.module, built.model
            self._fill(order["inputs"])
        self.role: str = order["role"]
        self.call, self.places = self._timed_as(self.model), None
        self.initial = buffers_of(self.model)
        release_cached()
        return {"built": True}

    def do_weights(self, order: Answer) -> Answer:
        """Load the values of a state_dict, as constructed the first time; report what was loaded, and where."""
        put_buffers(
            self.model, self.initial
        )  # calls have changed buffers outside the state_dict, too
        own = self.model.state_dict()
        board = Board.borrow(order["offer"], self.link.descriptors)
        lent = dict(
            zip([entry["name"] for entry in order["offer"]["layouts"]], board.tensors, strict=True)
        )
        try:
            if self.places is None:
                self.places = Places(own, lent)
            way = order.get("way", LOAD)
            if way == LOAD or not rewrite(self.model, self.places.values(own, lent), way):
                self.model.load_state_dict(
                    lent if self.places.exact else self.places.state(own, lent)
                )
            if self.role == "candidate":
                pack_recurrent(self.model)
            self.initial = buffers_of(self.model)
            return {"missing": self.places.missing(lent), "names": self.places.names}
        finally:
            del lent
            board.close()

    def do_inputs(self, order: Answer) -> Answer:
        self._borrow(order)
        self._fill(order)
        return {"inputs": True}

    def do_prepare(self, order: Answer) -> Answer:
        """Prepare the arm for timing: compile or capture it."""
        if self.role in ARMS:
            restore = restoring(self.written)
            self.call = ARMS[self.role](self.model, self.args, self.kwargs, restore, self._timed_as)
            restore()
        else:
            self.call = self._timed_as(self.model)
        return {"prepared": True}

    def _timed_as(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return what a timed call calls: forward, in training tasks with its backward."""
        step = TrainingStep(self.model, forward, self._along, self._fixed)
        return step if self.task.train else forward

    def _along(self) -> list[torch.Tensor]:
        return self.board.tensors[self._num_inputs :] if self.board is not None else []

    def do_call(self, order: Answer) -> Answer:
        """Make one call; report its outputs' addresses and layouts."""
        self.leaves = []
        put_buffers(self.model, self.initial)
        bare = forbidden(self.task.device) if order.get("bare") else nullcontext()
        with bare, in_mode(self.model, bool(order.get("other_mode"))):
            result = call(
                self.model,
                self.args,
                self.kwargs,
                int(order["seed"]),
                backward=bool(order.get("backward")),
                separate=bool(order.get("separate")),
                fixed=self._fixed,
                along=self._along() if self.task.train else None,
            )
        if self.task.device == "cuda":
            _synchronise()
        leaves, text = describe(result)
        self.leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.earlier = self.earlier or self.leaves
        return {"leaves": [outside(leaf) for leaf in leaves], "spec": text}

    def do_tensors(self, order: Answer) -> Answer:
        """Export the module's buffers or parameters by name."""
        pairs = (
            self.model.named_buffers()
            if order["which"] == "buffers"
            else self.model.named_parameters()
        )
        tensors = dict(pairs)
        self.leaves = [tensor.detach() for tensor in tensors.values()]
        return {"names": list(tensors), "leaves": [outside(tensor) for tensor in self.leaves]}

    def do_profile(self, order: Answer) -> Answer:
        """Report where the time of a call goes: the candidate's word, since this is its process."""
        from dvk.harness.profiling.profile import profile_call

        restore = restoring(self.written)

        def once() -> None:
            restore()
            with torch.no_grad():
                self.call(*self.args, **self.kwargs)

        put_buffers(self.model, self.initial)
        return {
            "profile": profile_call(
                once, self.task.device, num_bytes=order["num_bytes"]
            ).model_dump(mode="json")
        }

    def do_board(self, order: Answer) -> Answer:
        """Attach a board for outputs."""
        if self.out is not None:
            self.out.close()
        self.out = Board.borrow(order["offer"], self.link.descriptors)
        return {"board": True}

    def do_export(self, order: Answer) -> Answer:
        """Copy the tensors of the last answer, or of the earlier one that is held, to the board."""
        self.copy_out(self.earlier if order.get("earlier") else None)
        return {"exported": True}

    # ------------------------------------------------------------ timed calls

    def rounds(self, sync: bool) -> None:
        """Make timed calls until the leave order; the outputs stay alive until the next is prepared."""
        link, control = self.link, self.control
        last, earlier = _Timed(), list[torch.Tensor]()
        self.leaves, self.earlier = [], []
        held, restore = self._held(), restoring(self.written if sync else [])
        begin(self.call)
        with torch.no_grad(), _without_gc():
            number, spare, outputs = control[GO], process_memory.HeapReserve(), Outputs()
            link.ring(b"r")
            while (byte := link.wait()) != b"x":
                if byte == b"c":
                    self.copy_out(last.tensors)
                    link.ring(b"k")
                    continue
                if byte == b"b":
                    self._copy_earlier(earlier)
                    continue
                if byte == b"h":
                    earlier = last.tensors
                last = _Timed()
                if byte == b"g":
                    gc.collect()
                control[KEPT] = outputs.count()
                control[HELD] = torch.cuda.memory_allocated() if sync else 0
                spare.refill()
                try:
                    self._wake(sync, restore)
                    number += 1
                    spare.begin()
                    link.ring(b"r")
                    while control[GO] < number:
                        pass
                    self._timed_call(last, held, sync)
                    outputs.add(last.leaves)
                    told = told_of(last.leaves, last.text, () if sync else self.written)
                except BaseException as error:  # noqa: BLE001 - see _guarded
                    traceback.print_exc(limit=20)
                    link.ring(b"e")
                    link.send({"failed": failure(error)})
                    continue
                link.ring(b"d")
                if self.tells:
                    link.send(told)

    def _timed_call(self, into: _Timed, held: list[tuple[dict[str, Any], str]], sync: bool) -> None:
        """Make the call between two readings of the clock; write addresses and stamps to the control page."""
        control = self.control
        if self.task.stochastic:  # earlier, it could draw numbers before the clock starts
            reseed(control[SEED])
        start = _now()
        into.result = result = self.call(*self.args, **self.kwargs)
        leaves, text = ([result], "*") if isinstance(result, torch.Tensor) else describe(result)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        # Part of the call: lazy tensors compute on this access.
        addresses = [leaf.data_ptr() for leaf in tensors]
        if sync:
            _synchronise()
        end = _now()
        tensors += (kept := [buffers[name].contiguous() for buffers, name in held])
        for i, address in enumerate([*addresses, *(buffer.data_ptr() for buffer in kept)]):
            control[FIRST + i] = address
        control[START], control[END] = start, end
        into.leaves, into.text, into.tensors = leaves, text, tensors

    def _wake(self, sync: bool, restore: Callable[[], None]) -> None:
        """On a GPU, calls before the timed one; then the module's buffers as they were before the first."""
        for _ in range(WAKING if sync else 0):
            restore()
            self.call(*self.args, **self.kwargs)
            _synchronise()
        # After those calls, since they, too, change buffers and draw numbers.
        put_buffers(self.model, self.initial)
        if sync:
            _synchronise()

    # ------------------------------------------------------------ parts

    def _copy_earlier(self, tensors: list[torch.Tensor]) -> None:
        try:
            self.copy_out(tensors)
        except BaseException as error:  # noqa: BLE001 - torch.compile's graphs raise where what they returned is gone
            self.link.ring(b"e")
            self.link.send({"failed": failure(error)})
        else:
            self.link.ring(b"k")

    def is_healthy(self) -> bool:
        """Whether the process can continue after a failure."""
        return True

    def _held(self) -> list[tuple[dict[str, Any], str]]:
        """Map the buffers that are read after each timed call to the module's."""
        called = self.places.names if self.places is not None else {}
        paths = [called.get(name, name).rpartition(".") for name in self.kept]
        modules = dict(self.model.named_modules())  # TorchScript has no get_submodule
        return [(modules[path]._buffers, name) for path, _, name in paths]

    def _map_control(self) -> None:
        descriptor = self.link.descriptors.pop(0)
        if self.control is not None:
            os.close(descriptor)
            return
        mapping = process_memory.Mapping(descriptor, [process_memory.PAGE])
        self.control = (ctypes.c_int64 * (process_memory.PAGE // 8)).from_address(
            mapping.addresses[0]
        )

    def _borrow(self, offered: Answer) -> None:
        """Map the tensors of other inputs."""
        if self.board is not None:
            # They may be in the memory that is given back.
            self.args, self.kwargs, self.earlier, self.written = [], {}, [], []
            self.board.close()
        self.board = Board.borrow(offered["offer"], self.link.descriptors)

    def _fill(self, offered: Answer) -> None:
        """Make a call of them, whose classes may be those of the task's file."""
        assert self.board is not None
        self.args, self.kwargs = call_template.fill(
            offered["call"], self.board.tensors, self.module
        )
        self._num_inputs = len(named_tensors((self.args, self.kwargs)))
        self._fixed = [int(number) for number in offered.get("written", ())]
        self.written = [self.board.tensors[number] for number in self._fixed]

    def copy_out(self, tensors: list[torch.Tensor] | None = None) -> None:
        """Copy the last answer, or `tensors`, to the board."""
        assert self.out is not None
        for place, leaf in zip(
            self.out.tensors, self.leaves if tensors is None else tensors, strict=True
        ):
            if place.numel():
                flat(place).copy_(flat(memory_of(leaf)))
        if self.task.device == "cuda":
            _synchronise()


def settle() -> None:
    """Return the environment for compilers and drop-ins."""
    private = tempfile.gettempdir()
    os.environ["TORCH_EXTENSIONS_DIR"] = os.path.join(private, "torch_extensions")
    os.environ.setdefault("MAX_JOBS", "4")
    # A drop-in falls back to the original if its kernels do not compile; here that must fail instead.
    os.environ["DVK_STRICT"] = "1"
    sys.dont_write_bytecode = True
    process_memory.keep_freed()
