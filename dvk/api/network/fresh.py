"""Times of a patched model in fresh processes, each of which builds the model again.

Several processes build and warm up at once, as memory and cores admit, since imports and first calls take many times as long as the timing.
Then one at a time measures while the others wait: nothing else runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dvk import machine
from dvk.api.network import examples, patching, verifying
from dvk.api.network.building import ModelSource, build
from dvk.api.network.verifying import Timed
from dvk.config import Config
from dvk.errors import MachineError
from dvk.sandbox import Death, RequestChannel, SandboxSession, proctree

CONTEXT_BYTES = 3 << 29
"""What a process takes besides weights: libraries, a CUDA context, activations."""
BUILDING_BYTES = 8
"""Bytes of a parameter while a process builds: float32, then its dtype, and what kernels derive from it."""
TRUTH_BYTES = 12
"""Bytes of a parameter that the comparison with float64 takes in the parent meanwhile."""
FREE_SHARE = 0.8
"""Share of the free memory that may be planned with."""
SESSION_S = 86400.0
"""Longest life of a process. It waits for comparisons in the parent, of any length; each answer has its own limit."""


@dataclass(frozen=True, kw_only=True)
class FreshTiming:
    """What each process is to build and time."""

    source: ModelSource
    package: Path
    config: Config
    compiled: bool
    train: bool = False


class FreshProcesses:
    """Processes that build the model at once; `timed` then lets one after another measure.

    Args:
        wall_s: seconds that the parent waits for an answer.
    """

    def __init__(self, timing: FreshTiming, sessions: Sequence[SandboxSession], wall_s: float):
        self.timing, self.sessions, self.wall_s = timing, list(sessions), wall_s

    def built(self) -> None:
        """Wait until each has built its model.

        Raises:
            MachineError: a process ended.
        """
        for one in self.sessions:
            self._answer(one)

    def warmed(self, only: Sequence[str]) -> None:
        """Have all of them patch the model that they built with these blocks, and call it; returns once all have.

        Raises:
            MachineError: a process ended.
        """
        judge = self.timing.config.judge
        request = {
            "package": str(self.timing.package.absolute()),  # the child has another working folder
            "seconds": judge.claim_s,
            "pairs": judge.claim_pairs,
            "settled": judge.settled,
            "only": list(only),
            "compiled": self.timing.compiled,
            "train": self.timing.train,
        }
        for one in self.sessions:
            one.send(request)
        for one in self.sessions:
            self._answer(one)

    def timed(self) -> Timed:
        """Let the next process measure, and end it.

        Raises:
            MachineError: the process ended.
        """
        with self.sessions.pop(0) as one:
            one.send({})
            return Timed(**self._answer(one))

    def _answer(self, session: SandboxSession) -> dict[str, Any]:
        answer = session.receive(self.wall_s)
        if isinstance(answer, Death):
            lines = [line for line in answer.log.splitlines() if not line.startswith("hint:")]
            problem = f"a process that timed the whole model ended: {answer.reason}"
            if lines:
                problem += f" ({lines[-1].strip()})"
            hint = "raise limits.memory_bytes or limits.wall_s, and add --resume"
            raise MachineError(problem, hint)
        return dict(answer.value)


@contextmanager
def processes(timing: FreshTiming, count: int) -> Iterator[FreshProcesses]:
    """Start so many processes, which begin to build."""
    wall_s = timing.config.limits.wall_s * count  # they share the cores
    limits = timing.config.limits.model_copy(update={"wall_s": max(SESSION_S, wall_s)})
    with ExitStack() as stack:
        sessions = []
        for _ in range(count):
            one = stack.enter_context(SandboxSession("dvk.api.network.fresh:child", limits))
            one.send(asdict(timing.source.absolute()))
            sessions.append(one)
        yield FreshProcesses(timing, sessions, wall_s)


def at_once(model: nn.Module, device: str, *, comparing: bool) -> int:
    """How many processes may build this model at the same time; at least 1 unless `comparing`.

    Args:
        comparing: this process compares the outputs with float64 meanwhile.
    """
    parameters = sum(one.numel() for one in [*model.parameters(), *model.buffers()])
    if device == "cuda":
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
    else:
        free = min(machine.memory_bytes(), proctree.available_bytes())
    each = BUILDING_BYTES * parameters + CONTEXT_BYTES
    taken = TRUTH_BYTES * parameters if comparing else 0
    room = int((FREE_SHARE * free - taken) // each)
    return max(0 if comparing else 1, min(room, machine.num_cores()))


def child(channel: RequestChannel) -> None:
    """Build; warm up after the names of the blocks arrive; measure on request."""
    source: Any = channel.receive()
    network = build(ModelSource(**{**source, "inputs": tuple(source["inputs"])}))
    call = examples.draw(network, 0)
    with torch.no_grad():
        network.model(*call[0], **call[1])
    channel.send({"built": True})
    if (request := channel.receive()) is None:
        return

    def ready() -> None:
        channel.send({"ready": True})
        channel.receive()

    measured = verifying.measure(
        network.model,
        patching.load(Path(request["package"])),
        call,
        seconds=request["seconds"],
        pairs=request["pairs"],
        settled=request["settled"],
        only=request["only"],
        with_compile=request["compiled"],
        train=request["train"],
        ready=ready,
    )
    channel.send(asdict(measured))
