"""Per-task exception boundary: an exception of dvk or of a library becomes that task's result.

A bug met while one of hundreds of tasks is captured, composed or judged must not end the run. It stays visible: the result
names the exception and where it was raised, the traceback is kept in the run folder, and the end of the run counts them.

Errors that are no task's fault still end a run: what the user can fix for all tasks at once (`DvkError`), an exhausted machine, an
interrupt.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from dvk.errors import DvkError, TaskError
from dvk.records import Status, Tier, Verdict

P = ParamSpec("P")
T = TypeVar("T")
EXHAUSTED = (
    None,
    errno.EAGAIN,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EMFILE,
    errno.ENFILE,
    errno.EROFS,
)
"""Errno values of OSErrors that would fail every other task, too."""
LONGEST = 300
"""Characters of an exception's text in a reason."""


class Crashed(TaskError):
    """A task that ended with an exception; `traceback` is its text."""

    def __init__(
        self,
        message: str,
        hint: str = "this is a bug in dvk: report the traceback in the run folder",
        traceback: str = "",
    ):
        super().__init__(message, hint)
        self.traceback = traceback

    def __reduce__(self) -> tuple[type[Crashed], tuple[str, ...]]:  # type: ignore[override]
        return type(self), (self.message, self.hint, self.traceback)


def ends_the_run(error: Exception) -> bool:
    """Whether every other task would fail the same way, so that the run ends with `error`."""
    if isinstance(error, OSError):
        return error.errno in EXHAUSTED
    return isinstance(error, DvkError) and not isinstance(error, TaskError)


def text_of(error: BaseException) -> str:
    """`str(error)`; empty where that raises itself, as a user's exception class may."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - see above
        return ""


def summary_of(error: BaseException) -> str:
    """`Kind: message`, the first line of it."""
    text = next((line.strip() for line in text_of(error).splitlines() if line.strip()), "")
    kind = type(error).__name__
    return f"{kind}: {text[:LONGEST]}" if text else kind


def crashed(error: BaseException, doing: str) -> Crashed:
    """Describe `error` as the result of the task it ended.

    Args:
        error: caught where `ends_the_run` is false.
        doing: what was done to the task, e.g. `composing it`.
    """
    if isinstance(error, Crashed):
        return error
    if isinstance(error, TaskError):
        return Crashed(error.message, error.hint)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{Path(__file__).parent}/" in frame.filename] or list(
        frames
    )
    where = (
        f" ({'/'.join(Path(ours[-1].filename).parts[-2:])}, line {ours[-1].lineno})" if ours else ""
    )
    return Crashed(
        f"dvk failed while {doing}: {summary_of(error)}{where}", traceback=traceback_text(error)
    )


def traceback_text(error: BaseException) -> str:
    """The traceback as text."""
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:  # noqa: BLE001 - the exception's own text, or its notes, may raise
        return "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__


def run_guarded(doing: str, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T | Crashed:
    """Return the result of `work(*arguments)`, or the crash that ended it; `doing` as in `crashed`.

    Raises:
        DvkError, OSError: see `ends_the_run`.
    """
    try:
        return work(*args, **named)
    except Exception as error:  # the fence: see dvk.crashes
        if ends_the_run(error):
            raise
        return crashed(error, doing)


def verdict(crash: Crashed, tier: Tier) -> Verdict:
    """Return the crash as a verdict: it says nothing about the candidate."""
    return Verdict(
        status=Status.BROKEN_TASK,
        tier=tier,
        stage="static",
        error=crash.message,
        traceback=crash.traceback,
    )
