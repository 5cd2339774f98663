"""The fence: how it reports exceptions, and which it lets through."""

from __future__ import annotations

import errno
import pickle

import pytest

from dvk.crashes import Crashed, crashed, ends_the_run, run_guarded, summary_of, verdict
from dvk.errors import LibraryError, MachineError, TaskError, UsageError
from dvk.records import Status


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_exception_becomes_one_line_with_its_traceback_kept() -> None:
    def work(number: int) -> int:
        return number // 0

    found = run_guarded("composing it", work, 3)
    assert isinstance(found, Crashed)
    assert found.message.startswith("dvk failed while composing it: ZeroDivisionError: ")
    assert "in work" in found.traceback and "ZeroDivisionError" in found.traceback
    told = verdict(found, "search")
    assert (
        told.status is Status.BROKEN_TASK
        and told.error == found.message
        and told.traceback == found.traceback
    )
    assert pickle.loads(pickle.dumps(found)).traceback == found.traceback
    assert run_guarded("adding", sum, [1, 2]) == 3


def test_an_exception_without_words_is_named() -> None:
    assert summary_of(Wordless()) == "Wordless" and summary_of(KeyError("a")) == "KeyError: 'a'"
    assert summary_of(ValueError("\n\n one \n two")) == "ValueError: one"

    def work() -> None:
        raise Wordless

    found = run_guarded("judging it", work)
    assert (
        isinstance(found, Crashed) and "Wordless" in found.message and "in work" in found.traceback
    )


@pytest.mark.parametrize(
    "error",
    [
        MachineError("no compiler", "install one"),
        UsageError("a", "b"),
        LibraryError("a", "b"),
        OSError(errno.ENOSPC, "full"),
    ],
)
def test_what_every_task_would_meet_ends_the_run(error: Exception) -> None:
    def work() -> None:
        raise error

    assert ends_the_run(error)
    with pytest.raises(type(error)):
        run_guarded("judging it", work)


def test_a_tasks_own_fault_is_no_bug_of_ours() -> None:
    found = crashed(TaskError("it holds NaN", "draw finite values"), "loading it")
    assert (found.message, found.traceback) == ("it holds NaN", "")
    assert not ends_the_run(OSError(errno.ENOENT, "gone")) and not ends_the_run(MemoryError())
