"""The processes of one run: what one finds all are told, and nobody waits forever for one that is gone.

`torchrun` and `accelerate launch` start them and say in the environment who is who; alone, nothing here costs anything. What
is exchanged are facts, through gloo on the processor; gradients between GPUs go through NCCL and are the learner's business.
The first process is the chief: it alone prints results and writes the run's folder, which all must be able to read.

A process that fails says so before it leaves. The others find out when they next exchange something, and leave without a
word: one error is shown, that of the one which failed. Of one that was killed, or no longer answers, the first to notice tells.
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
"""Where a process that fails says so."""

KEPT: list[Any] = []
"""Groups that were left. A model wrapped for several processes outlives its run by a moment; were it the last to hold the group,
it would wait for gloo's threads with Python's lock, which they wait for."""


class ProcessLost(DvkError):
    """Another process of the run has ended, or no longer answers."""


class ProcessGroup:
    """See the module. `ProcessGroup()` is one process alone; `ProcessGroup.join` what the environment says. Use as a context manager.

    Attributes:
        rank: which process this is, from 0.
        size: how many there are.
        local: which it is on this machine: the number of its GPU.
    """

    def __init__(self, rank: int = 0, size: int = 1, local: int = 0, store: Any = None):
        self.rank, self.size, self.local = rank, size, local
        self._store = store

    @classmethod
    def join(cls, patience_s: float) -> ProcessGroup:
        """Meet the others; alone where no launcher has started this process.

        Args:
            patience_s: how long a process waits for the others before it gives up.

        Raises:
            UsageError: there are fewer GPUs than processes.
            ProcessLost: they do not come.
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
            raise UsageError(problem, "start as many processes as there are GPUs: torchrun --nproc-per-node")
        if on_gpu:
            torch.cuda.set_device(local)
            torch.cuda.init()
            torch.cuda.device_count()  # which is kept from now on
            machine.confine(local)  # judges and whatever else is started here
        limit = timedelta(seconds=patience_s)
        try:
            store, rank, size = next(distributed.rendezvous("env://", timeout=limit))
            backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
            distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
        except (RuntimeError, ValueError) as error:
            problem = f"the processes of this run cannot meet: {_first_line(error)}"
            raise ProcessLost(problem, "start them with torchrun or accelerate launch") from None
        if rank:  # results are printed once
            sys.stdout = open(os.devnull, "w")
        return cls(rank, size, local, store)

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave; where another process has failed first, with exit code 2 and without a word."""
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
        """This process writes what the run leaves on disk."""
        return self.rank == 0

    def shard(self, values: Sequence[T]) -> list[T]:
        """What falls to this process of something that all know: every `size`-th."""
        return list(values[self.rank :: self.size])

    def gather(self, result: Sequence[T]) -> list[T]:
        """Every process's results for its `share`, one a value, in the order of the values; the same list everywhere.

        Raises:
            ProcessLost: another process has ended or does not answer.
        """
        if self._store is None:
            return list(result)
        parts: list[Any] = [None] * self.size
        self._exchange(lambda distributed: distributed.all_gather_object(parts, list(result)))
        return [parts[i % self.size][i // self.size] for i in range(sum(map(len, parts)))]

    def broadcast(self, value: T) -> T:
        """What the chief has, everywhere.

        Raises:
            ProcessLost: as `gather`.
        """
        if self._store is None:
            return value
        box: list[Any] = [value if self.is_main else None]
        self._exchange(lambda distributed: distributed.broadcast_object_list(box, src=0))
        return box[0]

    def barrier(self) -> None:
        """Until all have come here.

        Raises:
            ProcessLost: as `gather`.
        """
        self.gather([None])

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """The others do the same when the chief has done it, and find what it made.

        Raises:
            ProcessLost: as `gather`.
        """
        if not self.is_main:
            self.barrier()
        yield
        if self.is_main:
            self.barrier()

    def folder(self, path: Path | None, *, resume: bool, **rest: Any) -> RunFolder:
        """The run's folder: opened by the chief, looked at by the others; arguments of `RunFolder.open`.

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
            hint = "go on with --resume; what the last step had found is lost"
            raise ProcessLost(f"another process of this run has ended or does not answer: {_first_line(error)}", hint) from None

    def _claim(self, error: BaseException) -> bool:
        """Say that this process fails; False where another has said so before."""
        mine = f"process {self.rank}: {type(error).__name__}: {error}"
        try:
            said: bytes = self._store.compare_set(FAILED, "", mine)
        except RuntimeError:  # who keeps the store is gone: nobody else can tell
            return True
        return said.decode(errors="replace") == mine


def launched() -> int:
    """How many processes a launcher has started for this run; 1 where none has."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
