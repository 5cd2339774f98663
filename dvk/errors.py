"""Errors other than a bad kernel, each with a hint for the user.

A bad kernel is data: it becomes a `Verdict`. A broken machine, a malformed file or an impossible
request is a `DvkError`. The command line prints `message`, then `hint: …`, and exits with 2;
any other exception that reaches it is our bug and keeps its traceback.

    DvkError
    ├── UsageError        an argument or option that cannot be honoured
    ├── TaskError         the user's model file cannot be made into a task
    │   └── Exhausted     … within the time, memory and processes that there were
    ├── LibraryError      the skill library or a skill file is unusable
    ├── RunFolderError    a run folder is used, missing or damaged
    ├── ModelError        the language model of a search cannot be asked any more
    └── MachineError      this computer lacks something: a compiler, a GPU, memory, disk
"""

from __future__ import annotations


class DvkError(Exception):
    """Base of every error a user can act on; `hint` is one sentence that says how."""

    def __init__(self, message: str, hint: str):
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"

    def __reduce__(self) -> tuple[type[DvkError], tuple[str, str]]:
        return type(self), (self.message, self.hint)


class UsageError(DvkError):
    """An argument or option that cannot be honoured."""


class TaskError(DvkError):
    """The user's model file cannot be made into a task."""


class Exhausted(TaskError):
    """The file ran out of time, memory or processes, or was killed; other load on the machine may be the cause."""


class LibraryError(DvkError):
    """The skill library, or a skill brought to it, is unusable."""


class RunFolderError(DvkError):
    """A run folder is used, missing or damaged."""


class MachineError(DvkError):
    """This computer lacks something that was explicitly asked for."""


class ModelError(DvkError):
    """The language model of a search cannot be asked any more: its server refuses, or it failed. Earlier results stay."""
