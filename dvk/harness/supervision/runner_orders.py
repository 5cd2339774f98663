"""Orders to one runner, and what its untimed calls returned, read from its memory. Its messages are claims: see `runner_client`."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Sequence
from typing import Any

import torch

from dvk.harness.supervision.memory_growth import Footprint
from dvk.harness.supervision.process_stopper import PausedTree
from dvk.harness.supervision.retained_outputs import RetainedOutputs
from dvk.harness.transport import call_template, process_memory
from dvk.harness.transport.faults import (
    CandidateFailed,
    Interfered,
    claimed_address,
    claimed_layout,
    failure_told,
)
from dvk.harness.transport.lent_tensors import (
    Board,
    Layout,
    bytes_of,
    comparable,
    copied,
    dtype_of,
    empty_of,
    values_of,
)
from dvk.harness.transport.link import Garbled, Gone, Link
from dvk.records import Status, Task


class RunnerOrders:
    """One runner.

    Args:
        name: `candidate`, or the arm's.
        descriptor: this end of the link.
        pid: the runner's process.
        device: `cpu` or `cuda`.
    """

    def __init__(self, name: str, descriptor: int, pid: int, device: str):
        self.name, self.pid, self.device = name, pid, device
        self.link = Link(descriptor)
        control = process_memory.shared([process_memory.PAGE])
        self._control_mapping = process_memory.Mapping(control, [process_memory.PAGE])
        self._control = (ctypes.c_int64 * (process_memory.PAGE // 8)).from_address(
            self._control_mapping.addresses[0]
        )
        self._control_descriptor = control
        self._number = self._ran_stopped = 0
        self._received: list[torch.Tensor] = []
        self._out: Board | None = None
        self._earlier = RetainedOutputs()
        self.aliases: dict[str, str] = {}
        """Its module's other names of reference tensors: its names → the reference's."""
        self.trusted = name != "candidate"
        self.returned: list[Layout] = []
        """Layouts of the tensors that a checked call on the native inputs returned; timed calls are read with them."""
        self._held = PausedTree(pid, self.trusted)
        self._tells, self.footprint = False, Footprint()
        self._written: list[torch.Tensor] = []
        self.left: list[torch.Tensor] = []
        """Final values of the inputs that the reference writes, after the last timed call, if read; owned here."""
        self._sums: object = None
        """Checksums of those inputs that the runner made when the call was over."""
        self.told: tuple[list[Any], str] | None = None
        """Results other than tensors of the last timed call, and the text of its nesting; None if not requested."""

    def close(self) -> None:
        """Hang up; the runner then ends."""
        self.link.close()
        self._control_mapping.close()
        os.close(self._control_descriptor)
        if self._out is not None:
            self._out.close()

    # ------------------------------------------------------------ orders

    def ask(self, do: str, descriptors: tuple[int, ...] = (), **order: Any) -> dict[str, Any]:
        """Send an order, return its answer.

        Raises:
            CandidateFailed: the code under test raised.
            Interfered: the answer is malformed.
            Gone: the runner has ended.
        """
        self.tell(do, descriptors, **order)
        return self.answer()

    def tell(self, do: str, descriptors: tuple[int, ...] = (), **order: Any) -> None:
        """Send an order whose answer is taken later.

        Raises:
            Gone: the runner has ended.
        """
        self._held.wake()
        self.link.send({"do": do, **order}, descriptors)

    def answer(self) -> dict[str, Any]:
        """Return the answer to the last order; raises as `ask`."""
        answer = self._frame()
        if "failed" in answer:
            raise failure_told(answer)
        return answer

    def build(
        self,
        task: Task,
        source: str,
        board: Board,
        call: str,
        *,
        on_device: bool,
        training: bool,
        written: Sequence[int] = (),
    ) -> None:
        """Load the code and lend it its first inputs; call `answer` afterwards."""
        offer, descriptors = board.offer()
        role = self.name.split("#")[0]
        self.tell(
            "build",
            (self._control_descriptor, *descriptors),
            task=task.model_dump(mode="json"),
            role=role,
            source=source,
            inputs={"offer": offer, "call": call, "written": list(written)},
            on_device=on_device,
            training=training,
        )

    def load(self, weights: Board, names: Sequence[str], way: str = "load") -> list[str]:
        """Change its weights to those of a state_dict in a way of `weight_rewrites`; return names of the tensors without a match in the
        runner's module."""
        offer, descriptors = weights.offer()
        for layout, name in zip(offer["layouts"], names, strict=True):
            layout["name"] = name
        answer = self.ask("weights", descriptors, offer=offer, way=way)
        missing, called = answer.get("missing"), answer.get("names")
        if not isinstance(missing, list) or not isinstance(called, dict):
            raise Interfered("it wrote to the judge's line")
        self.aliases = {str(mine): str(name) for name, mine in called.items() if mine != name}
        return [name for name in names if name in missing or name not in called]

    def lend(
        self,
        board: Board,
        args: list[Any],
        kwargs: dict[str, Any],
        variant: str,
        written: Sequence[int] = (),
    ) -> None:
        """Lend other inputs; the reference writes those at the positions `written`."""
        offer, descriptors = board.offer()
        self.ask(
            "inputs",
            descriptors,
            offer=offer,
            call=call_template.empty(args, kwargs),
            variant=variant,
            written=list(written),
        )

    def call(self, seed: int, **order: Any) -> dict[str, Any]:
        """Make one untimed call; the runner is stopped afterwards, as between timed calls.

        Otherwise an OpenMP team spins after untimed calls of threaded kernels, for longer than the kernels took: 0.3 s per verdict of
        composed kernels on two cores.
        """
        answer = self.ask("call", seed=seed, **order)
        if self.device == "cpu":  # on a GPU its context may have to work for the next export
            self._held.stop()
        return answer

    def fetch(
        self,
        leaves: Sequence[dict[str, Any]],
        most_bytes: float = math.inf,
        earlier: bool = False,
        briefly: bool = False,
    ) -> list[Any]:
        """Return copies of the tensors an answer describes, with their claimed layout, and constants.

        Args:
            leaves: as `call` or `tensors` answered.
            most_bytes: larger claims are rejected before any allocation.
            earlier: read those of the earlier call that it holds.
            briefly: the copies are used before the next order only, so that a GPU needs one each.

        Raises:
            Interfered: an impossible layout or address.
        """
        claimed = [claimed_layout(leaf) if "address" in leaf else None for leaf in leaves]
        plain = [
            c is not None and leaf.get("layout") == "torch.strided" and comparable(dtype_of(c))
            for c, leaf in zip(claimed, leaves, strict=True)
        ]
        strided = [
            c for c, is_plain in zip(claimed, plain, strict=True) if c is not None and is_plain
        ]
        if sum(bytes_of(c) for c in strided) > most_bytes:
            raise CandidateFailed(
                Status.MISMATCH, "check", f"it returned more than {int(most_bytes) >> 20} MiB"
            )
        if self.device == "cuda" and any(
            leaf.get("device") == "cuda" for leaf in leaves if "address" in leaf
        ):
            copies = iter(self._export(strided, earlier, briefly))
        else:
            copies = iter(
                [
                    self._read(c, claimed_address(leaf))
                    for c, leaf, is_plain in zip(claimed, leaves, plain, strict=True)
                    if c is not None and is_plain
                ]
            )
        result: list[Any] = []
        for c, leaf, is_plain in zip(claimed, leaves, plain, strict=True):
            if c is None:
                result.append(leaf.get("value"))
            elif is_plain:
                result.append(values_of(next(copies), c))
            else:
                result.append({"object": f"tensor of {c['dtype']}, {str(leaf.get('layout'))[:40]}"})
        return result

    # ------------------------------------------------------------ parts

    def _read(self, layout: Layout, address: int) -> torch.Tensor:
        tensor = empty_of(layout)
        try:
            process_memory.read_into(self.pid, address, tensor.data_ptr(), bytes_of(layout))
        except process_memory.UnreadableMemory as error:
            raise self._unread(error) from None
        return tensor

    def _unread(self, error: process_memory.UnreadableMemory) -> Exception:
        """Return why outputs cannot be read; a process killed between answer and reading, e.g. for memory, has not interfered."""
        return (
            Gone()
            if process_memory.ended(self.pid)
            else Interfered(f"its outputs cannot be read ({error})")
        )

    def _export(
        self, layouts: Sequence[Layout], earlier: bool, briefly: bool
    ) -> list[torch.Tensor]:
        self._place(layouts)
        board = self._blank()
        self.ask("export", earlier=earlier)
        return list(board.tensors) if briefly else [copied(tensor) for tensor in board.tensors]

    def _blank(self) -> Board:
        """Return the board for outputs, cleared and without readers."""
        assert self._out is not None
        self._out.poison()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return self._out

    def _place(self, layouts: Sequence[Layout]) -> None:
        plain = [{key: layout[key] for key in ("dtype", "shape", "strides")} for layout in layouts]
        if self._out is not None and self._out.layouts == plain:
            return
        before, self._out = self._out, Board(plain, self.device)
        offer, descriptors = self._out.offer()
        try:
            self.ask("board", descriptors, offer=offer)
        finally:
            if (
                before is not None
            ):  # not sooner: device memory must not be freed while another process has it mapped
                before.close()

    def _expect(self, byte: bytes) -> None:
        if (got := self.link.wait()) != byte:
            if got == b"e":
                raise failure_told(self._frame())
            raise Interfered("it answers out of turn")

    def _frame(self) -> dict[str, Any]:
        try:
            return self.link.receive()
        except Garbled:
            raise Interfered("it wrote to the judge's line") from None
