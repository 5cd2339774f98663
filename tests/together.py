"""Run a function in several processes that meet through gloo, as a launcher would start them."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

PRELOADED = ["tests.together_preloaded"]


def together(
    function: Callable[..., Any],
    *arguments: Any,
    folder: Path,
    size: int = 2,
    limit_s: float = 60.0,
    preloaded: list[str] = PRELOADED,
) -> list[Any]:
    """Results of `function(*arguments)` in each process, or its exit code if it returned nothing; by rank.

    Args:
        function: at a module's top level.
        folder: an empty one, for the results.
        limit_s: processes that take longer are killed; their exit code says so.
        preloaded: modules that they are forked with, if they are the first of this process.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preloaded)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        context.Process(
            target=_child, args=(rank, size, port, str(folder), function, arguments, limit_s)
        )
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(limit_s)
        if process.is_alive():
            process.kill()
            process.join()
    found = []
    for rank, process in enumerate(processes):
        path = folder / f"{rank}.pickle"
        found.append(pickle.loads(path.read_bytes()) if path.exists() else process.exitcode)
    return found


def _child(
    rank: int,
    size: int,
    port: int,
    folder: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    limit_s: float,
) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        OMP_NUM_THREADS="1",
    )
    with (Path(folder) / f"{rank}.err").open("w") as errors:
        os.dup2(errors.fileno(), 2)
    faulthandler.dump_traceback_later(limit_s - 5)  # where it hangs
    found = function(*arguments)
    if found is not None:
        (Path(folder) / f"{rank}.pickle").write_bytes(pickle.dumps(found))
