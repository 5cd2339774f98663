"""Files → task contexts: every task examined and captured, several at a time, with a cache on disk.

Examining runs the reference in a separate child. Capturing shares children, since most of its seconds are imports, and needs
no GPU. Both results depend only on the file's text, the files it imports from its folder, the device and the versions, so a
folder that is measured repeatedly (an evaluation's) is prepared once a machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import dvk
from dvk import crashes, machine, resources, tasks
from dvk.agents.task_context import TaskContext
from dvk.composer import CannotCompose, CapturedGraph
from dvk.composer.capture.batch import capture_many
from dvk.composer.codegen.base import takes_time_loops
from dvk.config import Config, Limits
from dvk.errors import DvkError
from dvk.records import BackendName, Device, Task, content_hash
from dvk.tasks import beside, packages
from dvk.tasks.sourcetext import read_source

VERSION = 7
"""Raise this number when examining or capturing changes its result for the same file."""
PER_CHILD = 24
"""Captures a child at most: its start, three seconds of imports, is shared, and the first of them is not delayed long."""
CAPTURE_S = 120.0
GPU_SHARE = 2
"""Cores for each child on a GPU's machine: all cores would be busy with later tasks while the first ones wait to be judged."""


def prepare(
    paths: Sequence[Path],
    device: Device,
    backend: BackendName,
    config: Config,
    *,
    workers: int | None = None,
    kept: bool = False,
    eval_mode: bool = False,
    train: bool = False,
) -> Iterator[TaskContext | DvkError]:
    """A task context for every file, or its error, in their order.

    Args:
        paths: task files.
        device: the device that the tasks run on.
        backend: the back end that candidates are written in.
        config: `limits`.
        workers: children at a time; null takes the cores, and half of them on a GPU, where candidates are judged meanwhile.
        eval_mode: call .eval() on the modules.
        train: a call is forward and backward.
        kept: use and extend the cache of earlier calls, under `$DVK_HOME/cache/tasks`.
    """
    workers = workers or max(1, machine.num_cores() // (GPU_SHARE if device == "cuda" else 1))
    places = [
        cache_folder(path, device, eval_mode, train, takes_time_loops(backend)) if kept else None
        for path in paths
    ]
    known = [
        restored(where, path, backend) if where is not None else None
        for where, path in zip(places, paths)
    ]
    wanted = [number for number, subject in enumerate(known) if subject is None]
    fresh = _fresh(
        [paths[number] for number in wanted], device, backend, config, workers, eval_mode, train
    )
    for subject, where in zip(known, places):
        if subject is not None:
            yield subject
            continue
        made = next(fresh)
        if (
            where is not None
            and isinstance(made, TaskContext)
            and not (made.cannot is not None and made.cannot.traceback)
        ):
            _keep(where, made)
        yield made


def _fresh(
    paths: Sequence[Path],
    device: Device,
    backend: BackendName,
    config: Config,
    workers: int,
    eval_mode: bool,
    train: bool,
) -> Iterator[TaskContext | DvkError]:
    examined: list[Task | DvkError] = []

    def examine(path: Path) -> Task | DvkError:
        try:
            return crashes.run_guarded(
                "loading it",
                tasks.load,
                str(path),
                device=device,
                eval_mode=eval_mode,
                train=train,
                limits=config.limits,
            )
        except DvkError as error:
            return error

    def usable(threads: ThreadPoolExecutor) -> Iterator[Task]:
        for found in threads.map(examine, paths):
            examined.append(found)
            if isinstance(found, Task):
                yield found

    limits: Limits = config.limits.model_copy(update={"wall_s": CAPTURE_S})
    given = 0
    with ThreadPoolExecutor(workers) as threads:
        per_child = max(1, min(PER_CHILD, -(-len(paths) // workers)))
        for _, captured in capture_many(
            usable(threads),
            limits,
            num_workers=workers,
            per_child=per_child,
            rolls=takes_time_loops(backend),
        ):
            while isinstance(found := examined[given], DvkError):
                yield found
                given += 1
            yield (
                TaskContext(found, None, backend, captured)
                if isinstance(captured, CannotCompose)
                else TaskContext(found, captured, backend)
            )
            given += 1
    for rest in examined[given:]:
        assert isinstance(rest, DvkError)
        yield rest


# ---------------------------------------------------------------- cache


def cache_folder(
    path: Path, device: Device, eval_mode: bool = False, train: bool = False, rolls: bool = True
) -> Path | None:
    """Cache folder of a file's findings; null if the file cannot be read."""
    try:
        source = read_source(path)
    except (OSError, UnicodeDecodeError):
        return None
    mode = ["eval"] * eval_mode + ["train"] * train + ["every step"] * (not rolls)
    key = content_hash(
        dvk.__version__, str(VERSION), machine.fingerprint(device), device, path.stem, source, *mode
    )
    return resources.home() / "cache" / "tasks" / f"{key}.json"


def restored(where: Path, path: Path, backend: BackendName) -> TaskContext | None:
    """Cached findings about the file's current content; null if there are none or they are damaged."""
    try:
        stored = json.loads(where.read_text())
        task = Task.model_validate({**stored["task"], "path": str(path.resolve())})
        captured = (
            None if stored["captured"] is None else CapturedGraph.model_validate(stored["captured"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    cannot = CannotCompose(stored.get("cannot", "")) if captured is None else None
    return (
        TaskContext(task, captured, backend, cannot)
        if beside.has_files(packages.base_of(path, task.package), task.beside)
        else None
    )


def _keep(where: Path, subject: TaskContext) -> None:
    captured = subject.captured.model_dump(mode="json") if subject.captured is not None else None
    aside = where.with_suffix(f".{os.getpid()}")
    text = json.dumps(
        {
            "task": subject.task.model_dump(mode="json"),
            "captured": captured,
            "cannot": str(subject.cannot or ""),
        }
    )
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text)
        aside.rename(where)
    except OSError:  # a full disk: the next evaluation prepares it again
        with suppress(OSError):
            aside.unlink()
