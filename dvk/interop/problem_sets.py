"""Tasks as other trainers take them: a name, the split, the text of the task file, and the first question to the policy.

    generated[:COUNT]   the generator's tasks; without COUNT they never end
    a folder            its task files; those below a folder `heldout` are held out
    a file              one task file

Nothing is executed. A generated task's split is that of its sequence of operators (`dvk.taskgen.split`), so no held-out sequence
occurs in a training task.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from dvk import backends, tasks
from dvk.agents import dialects
from dvk.agents.task_context import TaskContext
from dvk.config import AgentsConfig
from dvk.errors import DvkError, UsageError
from dvk.records import BackendName, Device, Task
from dvk.taskgen import Split, generate
from dvk.taskgen.dice import derived

GENERATED = "generated"
ENTRY = "Model"
ENDLESS = 1 << 40
"""Count of a source that never ends."""
SPLITS: tuple[Split, ...] = get_args(Split)
Part = Literal["train", "heldout", "any"]


@dataclass(frozen=True)
class Problem:
    """One task, as a row.

    Attributes:
        name: letters, digits and underscores.
        split: train or heldout.
        task: Python text with the class `Model`.
        prompt: the policy's first question.
    """

    name: str
    split: Split
    task: str
    prompt: str


class ProblemSet:
    """The tasks of a source by position, in a fixed order.

    Args:
        source: see the module.
        seed: of the generator.
        backend: what answers are to be written in: auto, triton, cuda or cpp; `auto` is the device's.
        device: what tasks run on, and the sizes of generated ones are for; None: cuda if there is a GPU.

    Attributes:
        left_out: why files were left out, once they are read.

    Raises:
        UsageError: no such source, back end or device; no task file in the folder.
    """

    def __init__(
        self,
        source: str | Path = GENERATED,
        *,
        seed: int = 0,
        backend: BackendName = "auto",
        device: Device | None = None,
    ):
        self.seed, self.device = seed, device or backends.default_device()
        self.backend = backends.default(self.device) if backend == "auto" else backend
        backends.check_device(self.backend, self.device)
        self.left_out: list[str] = []
        name, colon, count = str(source).partition(":")
        self._files: list[tuple[Split, Task]] | None = None
        self._count = ENDLESS
        if name != GENERATED:
            self._files = _files(Path(source), self.left_out)
        elif colon:
            if not re.fullmatch(r"[1-9]\d*", count):
                raise UsageError(f"`{source}` has no number", f"write {GENERATED}:100")
            self._count = int(count)

    def count(self, part: Part) -> int:
        """Number of tasks of a split, or of all.

        Raises:
            UsageError: no such split.
        """
        return self._count if self._files is None else len(self._of(part))

    def at(self, part: Part, index: int) -> Problem:
        """One task.

        Raises:
            IndexError: there are not so many.
            UsageError: no such split.
        """
        known = self._of(part)
        if not 0 <= index < (self._count if self._files is None else len(known)):
            raise IndexError(index)
        if self._files is not None:
            split, task = known[index]
        else:
            seed = derived("problem", self.seed, index)
            (made,) = generate(seed, 1, split=part, device=self.device)
            split, task = made.split, tasks.of_text(made.source, ENTRY, made.name)
        subject = TaskContext(task.model_copy(update={"device": self.device}), None, self.backend)
        asked = dialects.get("chat").policy(subject, (), AgentsConfig())
        question = str(asked.messages[-1]["content"])
        return Problem(task.name, split, task.source, question)

    def all(self, part: Part) -> Iterator[Problem]:
        """The tasks of a split, or all, in order.

        Raises:
            UsageError: no such split.
        """
        return (self.at(part, index) for index in range(self.count(part)))

    def _of(self, part: Part) -> list[tuple[Split, Task]]:
        if part not in (*SPLITS, "any"):
            raise UsageError(f"unknown split: `{part}`", "choose train, heldout or any")
        return [one for one in self._files or () if part in (one[0], "any")]


def split_of_file(path: Path) -> Split:
    """The side of a task file: that of the folders that it is in."""
    return "heldout" if "heldout" in path.resolve().parent.parts else "train"


def _files(source: Path, left_out: list[str]) -> list[tuple[Split, Task]]:
    files = [source] if source.is_file() else sorted(source.rglob("*.py"))
    files = [path for path in files if not path.name.startswith("_")]
    if not files:
        raise UsageError(
            f"no task files in `{source}`",
            f"give a folder of files in KernelBench's format, or {GENERATED}:100",
        )
    found: list[tuple[Split, Task]] = []
    taken: set[str] = set()
    for path in files:
        try:
            task = tasks.unexamined(str(path))
        except DvkError as error:
            left_out.append(error.message)
            continue
        if "def get_inputs" not in task.source:
            left_out.append(f"`{path}` has no get_inputs()")
            continue
        plain = re.sub(r"\W+", "_", task.name).strip("_")
        names = (plain if number == 1 else f"{plain}_{number}" for number in itertools.count(1))
        taken.add(name := next(name for name in names if name not in taken))
        text = task.source
        if task.entry != ENTRY:  # the name by which trainers' rows are judged
            text = f"{text.rstrip()}\n\n\n{ENTRY} = {task.entry}\n"
        found.append((split_of_file(path), tasks.of_text(text, ENTRY, name)))
    return found
