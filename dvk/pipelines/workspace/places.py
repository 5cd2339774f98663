"""Where the judge's folder of a workspace is, and what it holds. The agent's folder has no part in either."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from dvk import resources
from dvk.config import Config
from dvk.errors import RunFolderError, UsageError
from dvk.records import BackendName, Device, Record, Skill, Task, Turn, content_hash
from dvk.run_places import MANIFEST, read_manifest
from dvk.runs import RunFolder

R = TypeVar("R", bound=Record)
COMMAND = "workspace"
OPENED = "workspace.json"
TASK = "task.jsonl"
SKILLS = "skills.jsonl"
TURNS = "turns.jsonl"
SOCKET = "judge.sock"
LOG = "judge.log"


class Opened(Record):
    """What a workspace was opened with."""

    folder: str = Field(description="The agent's folder, absolute.")
    asked: dict[str, Any] = Field(description="The task and the options, as given.")
    task: str = Field(description="Hash of the judge's copy of the task.")
    device: Device = Field(description="Where reference and candidates run.")
    backend: BackendName = Field(description="What kernels are to be written in.")
    only: bool = Field(False, description="The back end was asked for: every candidate is of it.")
    baselines: tuple[str, ...] = Field((), description="Also timed when the best is confirmed.")
    require_kernels: bool = Field(
        False, description="Refuse candidates that leave the computing to PyTorch's operators."
    )
    python: str = Field(description="The Python that judges.")
    environment: dict[str, str] = Field(description="The judge's environment, without secrets.")
    at: float = Field(description="When it was opened, seconds since 1970.")


def place_of(folder: Path) -> Path:
    """The judge's folder for an agent's folder, which need not exist.

    Raises:
        UsageError: the agent's folder is a link: what it leads to may change.
    """
    full = Path(os.path.abspath(folder))
    if full.is_symlink():
        raise UsageError(f"`{folder}` is a link", "name the folder itself")
    where = full.parent.resolve() / full.name
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", where.name)[:40] or "root"
    return resources.home() / "workspaces" / f"{name}-{content_hash(str(where))}"


class Place:
    """The judge's folder of an opened workspace, for reading.

    Args:
        path: the judge's folder.

    Raises:
        RunFolderError: it is damaged.
    """

    def __init__(self, path: Path):
        self.path = path
        self._run = RunFolder.beside(path)
        try:
            self.opened = Opened.model_validate_json((path / OPENED).read_bytes())
        except (OSError, ValidationError):
            raise _damaged(path / OPENED) from None

    @classmethod
    def of(cls, folder: Path) -> Place:
        """The place of an agent's folder.

        Raises:
            UsageError: the folder is no workspace.
            RunFolderError: the judge's folder is damaged.
        """
        path = place_of(folder)
        if not (path / OPENED).is_file():
            raise UsageError(
                f"no workspace: `{folder}`", f"open one: dvk workspace model.py {folder}"
            )
        return cls(path)

    @property
    def config(self) -> Config:
        """The settings that it was opened with."""
        manifest: dict[str, Any] = read_manifest(self.path) or {}
        if "config" not in manifest:
            raise _damaged(self.path / MANIFEST)
        return Config.model_validate(manifest["config"])

    @property
    def task(self) -> Task:
        """The judge's copy of the task.

        Raises:
            RunFolderError: it is not what was opened.
        """
        found = self._records(TASK, Task)
        if len(found) != 1 or digest(found[0]) != self.opened.task:
            raise _damaged(self.path / TASK)
        return found[0]

    @property
    def turns(self) -> list[Turn]:
        """Every trial so far, oldest first.

        Raises:
            RunFolderError: a line is no trial.
        """
        turns = self._records(TURNS, Turn)
        if not all(turn.candidate and turn.verdict for turn in turns):
            raise _damaged(self.path / TURNS)
        return turns

    @property
    def skills(self) -> list[Skill]:
        """Those that the agent was given."""
        return self._records(SKILLS, Skill)

    def _records(self, file: str, kind: type[R]) -> list[R]:
        try:
            return [kind.model_validate(row) for row in self._run.read(file)]
        except ValidationError:
            raise _damaged(self.path / file) from None


def digest(task: Task) -> str:
    """Hash of everything that a task's record says."""
    return content_hash(task.model_dump_json())


def _damaged(file: Path) -> RunFolderError:
    return RunFolderError(f"`{file}` was changed or is damaged", "open a new workspace")
