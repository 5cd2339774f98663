"""Process group for distributed runs: all-gather with timeouts and failure propagation.

`torchrun` and `accelerate launch` start the processes and set the environment variables; a single process pays nothing. The group
exchanges Python objects through gloo on the CPU; the learner exchanges gradients between GPUs through NCCL. The first process is the
chief: it alone prints results and writes the run folder, which all must be able to read.

A process that fails reports it before it exits. The others see the report at their next exchange and exit silently, so that one error
is shown: that of the failed process. If a process was killed or no longer answers, the first to notice reports it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from dvk import machine
from dvk.errors import DvkError, UsageError
from dvk.runs import RunFolder

T = TypeVar("T")
FAILED = "dvk/failed"
"""Key under which a failing process reports its error."""

KEPT: list[Any] = []
"""Groups that were left. A model wrapped for several processes outlives its run briefly; as the last holder of the group it would wait
for gloo's threads while holding the GIL, for which they wait."""


class ProcessLost(DvkError):
    """Another process of the run has ended or no longer answers."""


class ProcessGroup:
    """The process group of a run. `ProcessGroup()` is one process alone; `ProcessGroup.join` reads the environment. Use as a context
    manager.

    Attributes:
        rank: index of this process, from 0.
        size: number of processes.
        local: index on this machine, which is the index of its GPU.
    """

    def __init__(self, rank: int = 0, size: int = 1, local: int = 0, store: Any = None):
        self.rank, self.size, self.local = rank, size, local
        self._store = store

    @classmethod
    def join(cls, patience_s: float) -> ProcessGroup:
        """Join the group; a process without a launcher is alone.

        Args:
            patience_s: how long a process waits for the others, in seconds.

        Raises:
            UsageError: there are fewer GPUs than processes.
            ProcessLost: the others do not arrive.
        """
        size = launched()
        if size <= 1:
            return cls()
        import torch
        from torch import distributed

        local = int(os.environ.get("LOCAL_RANK", "0"))
        on_gpu = torch.cuda.is_available()
        if on_gpu and torch.cuda.device_count() <= local:
            problem = f"process {local} on this machine, which has {torch.cuda.device_count()} GPUs"
            raise UsageError(
                problem, "start as many processes as there are GPUs: torchrun --nproc-per-node"
            )
        if on_gpu:
            torch.cuda.set_device(local)
            torch.cuda.init()
            torch.cuda.device_count()  # cached from now on
            machine.confine(local)  # judges and other children are started here
        limit = timedelta(seconds=patience_s)
        try:
            store, rank, size = next(distributed.rendezvous("env://", timeout=limit))
            backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
            distributed.init_process_group(
                backend, store=store, rank=rank, world_size=size, timeout=limit
            )
        except (RuntimeError, ValueError) as error:
            problem = f"the processes of this run cannot meet: {_first_line(error)}"
            raise ProcessLost(problem, "start them with torchrun or accelerate launch") from None
        if rank:  # results are printed once
            sys.stdout = open(os.devnull, "w")
        return cls(rank, size, local, store)

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave; if another process failed first, exit with code 2 and print nothing."""
        if self._store is None:
            return
        if error is not None and not self._claim(error):
            raise SystemExit(2) from None
        from torch import distributed

        if error is None and distributed.is_initialized():
            KEPT.append(distributed.group.WORLD)
            distributed.destroy_process_group()

    @property
    def is_main(self) -> bool:
        """Whether this process writes the run's files."""
        return self.rank == 0

    def shard(self, values: Sequence[T]) -> list[T]:
        """Return this process's part of `values`, which all processes have: every `size`-th."""
        return list(values[self.rank :: self.size])

    def gather(self, result: Sequence[T]) -> list[T]:
        """Return every process's results for its `share`, one per value, in the order of the values; the same list everywhere.

        Raises:
            ProcessLost: another process has ended or does not answer.
        """
        if self._store is None:
            return list(result)
        parts: list[Any] = [None] * self.size
        self._exchange(lambda distributed: distributed.all_gather_object(parts, list(result)))
        return [parts[i % self.size][i // self.size] for i in range(sum(map(len, parts)))]

    def broadcast(self, value: T) -> T:
        """Return the chief's value in every process.

        Raises:
            ProcessLost: as `gather`.
        """
        if self._store is None:
            return value
        box: list[Any] = [value if self.is_main else None]
        self._exchange(lambda distributed: distributed.broadcast_object_list(box, src=0))
        return box[0]

    def barrier(self) -> None:
        """Wait until all processes arrive.

        Raises:
            ProcessLost: as `gather`.
        """
        self.gather([None])

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Run the body in the chief first, then in the others, which find what it made.

        Raises:
            ProcessLost: as `gather`.
        """
        if not self.is_main:
            self.barrier()
        yield
        if self.is_main:
            self.barrier()

    def folder(self, path: Path | None, *, resume: bool, **rest: Any) -> RunFolder:
        """Open the run folder in the chief, read it in the others; arguments as for `RunFolder.open`.

        Raises:
            RunFolderError: the chief cannot open it.
            ProcessLost: as `gather`.
        """
        run = RunFolder.open(path, resume=resume, **rest) if self.is_main else None
        where = self.broadcast(str(run.path.absolute()) if run is not None else "")
        return run if run is not None else RunFolder.beside(Path(where))

    def _exchange(self, do: Any) -> None:
        from torch import distributed

        try:
            do(distributed)
        except RuntimeError as error:
            hint = "continue with --resume; the results of the last step are lost"
            raise ProcessLost(
                f"another process of this run has ended or does not answer: {_first_line(error)}",
                hint,
            ) from None

    def _claim(self, error: BaseException) -> bool:
        """Report that this process fails; False if another has already reported."""
        mine = f"process {self.rank}: {type(error).__name__}: {error}"
        try:
            said: bytes = self._store.compare_set(FAILED, "", mine)
        except RuntimeError:  # the process with the store has ended: no other can report it
            return True
        return said.decode(errors="replace") == mine


def launched() -> int:
    """Return how many processes a launcher started for this run; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
