"""Opening of a workspace: the judge's folder first, then the agent's, which can be written again."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk import backends, resources, tasks
from dvk.agents import selection
from dvk.agents.task_context import TaskContext
from dvk.composer import CannotCompose, capture
from dvk.composer.codegen.base import takes_time_loops
from dvk.config import Config
from dvk.errors import TaskError, UsageError
from dvk.pipelines.workspace import copies, texts
from dvk.pipelines.workspace.places import (
    COMMAND,
    OPENED,
    SKILLS,
    TASK,
    Opened,
    Place,
    digest,
    place_of,
)
from dvk.records import Device, Skill, Task
from dvk.runs import RunFolder
from dvk.sandbox.variables import without_secrets
from dvk.skills import Library
from dvk.tasks.packages import base_of
from dvk.tasks.sourcetext import read_source

JUDGED = "task"
"""Folder of the task's files, in both folders."""
NUM_SKILLS = 8
"""Skills in the agent's folder at most, the best ranked."""


@dataclass(frozen=True, kw_only=True)
class WorkspaceRequest:
    """The command line's request."""

    spec: str
    folder: Path
    inputs: tuple[str, ...] = ()
    init: tuple[str, ...] = ()
    eval_mode: bool = False
    train: bool = False
    dtype: str | None = None
    device: Device | None = None
    backend: str = "auto"
    baselines: tuple[str, ...] = ()
    require_kernels: bool = False
    library: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()


def open_workspace(request: WorkspaceRequest, config: Config) -> dict[str, Any]:
    """Make both folders; returns what `--json` prints.

    Raises:
        DvkError: the user can fix it.
    """
    if config.remote.judge is not None or config.remote.engine is not None:
        raise UsageError("a workspace is judged on this machine", "leave remote.* out")
    device, backend = backends.timed(request.backend, request.device)
    place = place_of(request.folder)
    full = Path(os.path.abspath(request.folder))
    known = _checked(request, place, full)
    Library.open(request.library).close()
    if known is None:
        known, subject = _opened(request, config, place, full, device, backend)
    else:
        subject = _subject(known.task, known.config, known.opened.backend)
    skills = known.skills
    _write(full, known.opened, subject, skills)
    return {
        "folder": str(full),
        "judge": str(place),
        "task": subject.task.name,
        "task_hash": known.opened.task,
        "backend": known.opened.backend,
        "device": known.opened.device,
        "skills": [one.name for one in skills],
        "trials": len(known.turns),
    }


def _checked(request: WorkspaceRequest, place: Path, folder: Path) -> Place | None:
    """The workspace that is to be resumed; None if a new one is to be opened.

    Raises:
        UsageError: one of the folders is used.
    """
    if (place / OPENED).is_file():
        if not request.resume:
            raise UsageError(
                f"`{request.folder}` is a workspace already, or was one",
                f"add --resume to write its files again, choose another folder, or remove `{place}` with its trials",
            )
        known = Place(place)
        before, now = known.opened.asked, _asked(request)
        if others := [name for name, value in now.items() if before.get(name) != value]:
            raise UsageError(
                f"`{request.folder}` was opened with another {', '.join(others)}",
                "ask as before, or choose another folder",
            )
        return known
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"`{request.folder}` is a file", "name a new or empty folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"`{request.folder}` is not empty", "name a new or empty folder")
    return None


def _asked(request: WorkspaceRequest) -> dict[str, Any]:
    """The options that say what is judged, as they are compared and kept."""
    how = ("folder", "library", "resume", "argv")
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(request).items()
        if name not in how
    }


def _opened(
    request: WorkspaceRequest,
    config: Config,
    place: Path,
    folder: Path,
    device: Device,
    backend: str,
) -> tuple[Place, TaskContext]:
    """Make the judge's folder; `workspace.json` comes last, so that a killed opening leaves none."""
    how: dict[str, Any] = {
        "inputs": request.inputs,
        "init": request.init,
        "eval_mode": request.eval_mode,
        "train": request.train,
        "dtype": request.dtype,
        "device": device,
        "limits": config.limits,
    }
    original = tasks.load(request.spec, **how)
    shutil.rmtree(place, ignore_errors=True)  # of an opening that was killed: it has no trials
    place.mkdir(parents=True)
    place.chmod(0o700)
    try:
        with RunFolder.open(
            place,
            command=COMMAND,
            name=original.name,
            argv=request.argv,
            config=config,
            resume=True,
        ) as run:
            subject = _subject(_copied(run, original, how), config, backend)
            with Library.open(request.library) as library:
                skills = selection.candidates(subject, library, config.agents)[:NUM_SKILLS]
            run.write_text(TASK, subject.task.model_dump_json() + "\n")
            run.write_text(SKILLS, "".join(one.model_dump_json() + "\n" for one in skills))
            opened = _record(request, folder, subject)
            run.write_text(OPENED, opened.model_dump_json(indent=2) + "\n")
    except BaseException:  # Ctrl-C, too, must leave no place half made
        shutil.rmtree(place, ignore_errors=True)
        raise
    return Place(place), subject


def _record(request: WorkspaceRequest, folder: Path, subject: TaskContext) -> Opened:
    backend = subject.backend
    if backend not in backends.BACKENDS:  # path/to/file.py:Name
        file, _, name = backend.rpartition(":")
        backend = f"{Path(file).resolve()}:{name}"
    return Opened(
        folder=str(folder),
        asked=_asked(request),
        task=digest(subject.task),
        device=subject.task.device,
        backend=backend,
        only=request.backend != "auto",
        baselines=tuple(b for b in request.baselines if b != "eager"),
        require_kernels=request.require_kernels,
        python=sys.executable,
        environment=without_secrets(os.environ),
        at=time.time(),
    )


def _copied(run: RunFolder, task: Task, how: dict[str, Any]) -> Task:
    """The task as its copy in the judge's folder gives it.

    Raises:
        TaskError: it depends on more than the files that it imports from next to it.
    """
    assert task.path is not None, "it was loaded from a file"
    for name, text in files_of(task).items():
        run.write_text(f"{JUDGED}/{name}", text)
    copy = run.path.resolve() / JUDGED / main_file(task)
    hint = "put what it reads next to it as Python modules, or into its own text"
    try:
        again = tasks.load(f"{copy}:{task.entry}", **how)
    except TaskError as error:
        raise TaskError(
            f"`{Path(task.path).name}` cannot be judged from a copy: {error.message}", hint
        ) from None
    outside = [one for one in again.folders if not Path(one).is_relative_to(run.path.resolve())]
    if again.id != task.id or outside:
        why = f"it imports from {outside[0]}" if outside else "it imports other files there"
        raise TaskError(f"`{Path(task.path).name}` cannot be judged from a copy: {why}", hint)
    return again.model_copy(update={"name": task.name})


def main_file(task: Task) -> str:
    """The task's file, relative to the folder that its imports start from."""
    assert task.path is not None, "it was loaded from a file"
    path = Path(task.path)
    return str(path.relative_to(base_of(path, task.package)))


def files_of(task: Task) -> dict[str, str]:
    """The texts of the task's file and of those that it imports, by path from the folder that imports start from."""
    assert task.path is not None, "it was loaded from a file"
    return {**dict(task.beside), main_file(task): read_source(Path(task.path))}


def _subject(task: Task, config: Config, backend: str) -> TaskContext:
    """The task with its graph, if it has one."""
    try:
        captured = capture(task, config.limits, takes_time_loops(backend))
        return TaskContext(task, captured, backend)
    except CannotCompose as error:
        return TaskContext(task, None, backend, error)


def _write(folder: Path, opened: Opened, subject: TaskContext, skills: Sequence[Skill]) -> None:
    """Write the agent's folder.

    Raises:
        UsageError: it cannot be written.
    """
    task = subject.task
    read = texts.folder_texts(subject, opened, f"{JUDGED}/{main_file(task)}", skills)
    read |= {f"{JUDGED}/{name}": text for name, text in files_of(task).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        copies.write_all(folder, read)
        copies.write_all(folder, texts.scripts(folder, resources.home()), copies.EXECUTABLE)
    except OSError as error:
        raise UsageError(
            f"cannot write `{folder}`: {error.strerror or error}", "choose another folder"
        ) from None
