"""The referee's client of one runner: gives orders, reads outputs from its memory, times its calls.

A runner's messages have two uses only. A reported error ends its case. Addresses and clock stamps are claims: at the end of a call, 64
random cache lines of the claimed outputs are read, then all of them, and both must agree; the stamps must be within the judge's, and the
time outside them is compared with the reference's handshake (`intervals.gap_charge`). So an output made after the end of the call is either
seen unfinished or charged.

A runner that is not called is stopped with all processes it has started (`held`): spinning worker threads, background work and late threads
do not affect other calls.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dvk.harness.supervision.memory_growth import Footprint
from dvk.harness.supervision.process_stopper import SLACK_S
from dvk.harness.supervision.retained_outputs import RetainedOutputs, in_memory, on_board
from dvk.harness.supervision.runner_orders import RunnerOrders
from dvk.harness.transport import process_memory
from dvk.harness.transport.call_page import END, FIRST, GO, HELD, KEPT, SEED, START, TimedCall
from dvk.harness.transport.faults import CandidateFailed, Interfered, failure_told
from dvk.harness.transport.lent_tensors import (
    Layout,
    bytes_of,
    copied,
    empty_of,
    layout_of,
    values_of,
)
from dvk.harness.transport.link import Gone
from dvk.harness.transport.told import checksums

CALLS_A_DOUBT = 500
"""Calls in which one may seem to have run while stopped, after the first that does: gains in so few do not move the median."""


class RunnerClient(RunnerOrders):
    """One runner with its timed calls.

    Args: see `RunnerOrders`.
    """

    def enter(
        self,
        outputs: Sequence[Layout],
        buffers: Mapping[str, Layout] | None = None,
        tells: bool = False,
        written: Sequence[torch.Tensor] = (),
    ) -> None:
        """Start timed calls that return tensors of these layouts and leave those buffers, by the reference's names.

        Args:
            tells: each call leaves its other results in `told`.
            written: lent inputs that calls write; their final values are in `left`.
        """
        self._written = list(written)
        self._tells, self.told, self.footprint = tells, None, Footprint()
        self._held.wake()
        self._earlier, self._count = RetainedOutputs(), len(outputs)
        self._layouts = outputs = [*outputs, *(buffers or {}).values()]
        if self.device == "cuda":
            self._place(outputs)
        else:
            self._received = [empty_of(layout) for layout in outputs]
        self.link.send(
            {
                "do": "rounds",
                "sync": self.device == "cuda",
                "buffers": list(buffers or {}),
                "tells": tells,
            }
        )
        self._expect(b"r")  # only then do bytes follow: frames are read in larger pieces
        if self.name != "player":  # a player runs no untrusted host code
            self._held.stop()

    def leave(self) -> None:
        """End timed calls; does nothing if the runner has ended."""
        try:
            self._held.wake()
            self.link.ring(b"x")
        except Gone:
            pass

    def time_call(
        self,
        seed: int,
        take: bool,
        lay: Callable[[], None],
        byte: bytes | None = None,
        again: Callable[[], None] | None = None,
    ) -> tuple[TimedCall, list[torch.Tensor]]:
        """Make one timed call, and read its outputs and buffers if wanted; those are valid until the next.

        Args:
            seed: seed of all generators, for modules that draw.
            take: whether to read them.
            lay: puts the inputs on the board and flushes caches; called while the runner, ready to call, is stopped.
            byte: prepares the call; default: the choice of `earlier`.
            again: puts them on the board later; default: `lay`.

        Raises:
            Failed, Interfered, Gone: as `ask`.
        """
        sizes = [bytes_of(layout) for layout in self._layouts]
        sample = process_memory.Sample(sizes)
        if self.device == "cuda":
            self._blank()
        began = self._begin(seed, lay, byte)
        answer = self.link.wait()
        ended = time.perf_counter_ns()
        if answer == b"e":
            raise failure_told(self._frame())
        if answer != b"d":
            raise Interfered("it answers out of turn")
        self.told = self._rest()
        outputs: list[torch.Tensor] = []
        if self.device == "cuda":
            # Work deferred to this step would show here; the reference pays for the step, too.
            copying = time.perf_counter_ns()
            self._leave()
            outputs = self._export_timed()
            ended += time.perf_counter_ns() - copying
        elif take:
            outputs = self._take(sample, sizes)
        start, end = self._control[START], self._control[END]
        if not self._held.stopped:
            self._held.stop()
        if not began <= start <= end <= ended:
            raise Interfered("its clock stamps are impossible")
        held = self._control[HELD] if self.device == "cuda" else process_memory.resident(self.pid)
        self.footprint.note(held, self._control[KEPT])
        if take:
            self._earlier.note(self._later(outputs, sample), again or lay)
        outputs = [values_of(*one) for one in zip(outputs, self._layouts, strict=bool(outputs))]
        return TimedCall((end - start) / 1e6, (ended - began - (end - start)) / 1e6), outputs

    def overwritten(self) -> set[int]:
        """Return numbers of the outputs that it holds of an earlier timed call and that later ones overwrote.

        Raises:
            CandidateFailed: they are no longer readable; Gone: the runner has ended.
        """
        return self._earlier.overwritten()

    def pause_in_call(self, seed: int, delay_s: float, lay: Callable[[], None]) -> bool:
        """Stop it `delay_s` into a call, and keep it stopped; False if the call had ended by then."""
        self._begin(seed, lay)
        time.sleep(delay_s)
        self._held.stop(surely=True)
        return not select.select([self.link.fileno()], [], [], 0)[0]

    def resume_call(self) -> None:
        """Finish the call that `pause_in_call` has stopped."""
        self._held.wake()
        self._expect(b"d")
        self._rest()
        self._held.stop()

    def _begin(self, seed: int, lay: Callable[[], None], byte: bytes | None = None) -> int:
        """Prepare a call, lay out its inputs while the runner is stopped, continue it; return the start time in ns."""
        self._held.wake()
        self.link.ring(byte or self._earlier.byte())
        self._expect(b"r")
        self._held.stop(surely=True)
        before = self._held.used_s()
        lay()
        if self._held.used_s() > before + SLACK_S:
            # A busy host's time is charged to the core's process, stopped or not. A few of many calls decide nothing.
            self._ran_stopped += 1
            if self._ran_stopped > 1 + self._number // CALLS_A_DOUBT:
                raise Interfered("it ran while it was stopped")
        self._number += 1
        began = time.perf_counter_ns()
        self._control[SEED] = seed
        self._control[GO] = self._number
        self._held.wake()
        return began

    def _rest(self) -> tuple[list[Any], str] | None:
        """Return a call's results except tensors."""
        if not self._tells:
            return None
        told = self.answer()
        constants, text, self._sums = told.get("constants"), told.get("spec"), told.get("written")
        if not isinstance(constants, list) or not isinstance(text, str):
            raise Interfered("it wrote to the judge's line")
        return constants, text

    def time_replays(self, num_arms: int) -> tuple[list[float], list[torch.Tensor]]:
        """Have a player replay all its arms once: return milliseconds of reference, plan and baselines, and the plan's outputs."""
        board = self._blank()
        self.link.ring(b"p")
        self._expect(b"d")
        return [self._control[place] / 1e6 for place in range(num_arms)], board.tensors

    def _take(self, sample: process_memory.Sample, sizes: list[int]) -> list[torch.Tensor]:
        addresses = [self._control[FIRST + i] for i in range(len(sizes))]
        written = process_memory.Sample([bytes_of(layout_of(tensor)) for tensor in self._written])
        try:
            at_bell = sample.read(self.pid, addresses) + written.of(
                [tensor.data_ptr() for tensor in self._written]
            )
            self._held.stop()  # a late candidate must not catch up during the read, nor its threads spin
            for tensor, address, size in zip(self._received, addresses, sizes, strict=True):
                process_memory.read_into(self.pid, address, tensor.data_ptr(), size)
        except process_memory.UnreadableMemory as error:
            raise self._unread(error) from None
        self._leave()
        if at_bell != sample.of([t.data_ptr() for t in self._received]) + written.of(
            [t.data_ptr() for t in self.left]
        ):
            raise Interfered("its output still changed after the call was over")
        if self._tells and self._sums != checksums(self.left):
            raise Interfered("it still wrote to its inputs after the call was over")
        return self._received

    def _leave(self) -> None:
        self.left = [copied(tensor) for tensor in self._written]
        if self.left and self.device == "cuda":
            torch.cuda.synchronize()

    def _later(
        self, outputs: list[torch.Tensor], sample: process_memory.Sample
    ) -> Callable[[], set[int]]:
        if self.device == "cuda":
            return on_board(outputs, self._export_earlier, self._count)
        seen = sample.of([tensor.data_ptr() for tensor in outputs])
        return in_memory(
            self.pid,
            [self._control[FIRST + i] for i in range(len(outputs))],
            sample,
            seen,
            self._count,
        )

    def _export_timed(self) -> list[torch.Tensor]:
        assert self._out is not None
        self.link.ring(b"c")
        self._expect(b"k")
        return self._out.tensors

    def _export_earlier(self) -> list[torch.Tensor]:
        board = self._blank()
        self._held.wake()
        self.link.ring(b"b")
        self._expect(b"k")
        return board.tensors


__all__ = ["CandidateFailed", "Interfered", "RunnerClient", "TimedCall"]
