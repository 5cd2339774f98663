"""`python -m dvk.api.captured_script FOLDER CLASSES SCRIPT …`: run a script as `python SCRIPT …` does and save its modules' calls."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType

from dvk.api.calls import Calls
from dvk.errors import DvkError, UsageError


def run_script(folder: str, only: Sequence[str], script: str, arguments: Sequence[str]) -> None:
    """Run a Python script and save the calls of all its modules at its end: normal, by an error, by Ctrl-C or by SIGTERM.

    Raises:
        UsageError: no such script; or it ended normally, and there is nothing to save.
        BaseException: what the script raised, after what was found is saved.
    """
    path = Path(script)
    if not path.is_file():
        raise UsageError(f"no such file: `{script}`", "give the path of a Python script")
    sys.argv = [script, *arguments]
    sys.path[0] = str(path.resolve().parent)
    main = ModuleType("__main__")
    main.__file__ = str(path.resolve())
    sys.modules["__main__"] = main  # its classes are looked up there when they are written
    mine = os.getpid()
    ended: BaseException | None = None
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)
    with Calls(None, only) as calls:
        try:
            exec(compile(path.read_text(encoding="utf-8"), main.__file__, "exec"), main.__dict__)
        except BaseException as error:  # noqa: BLE001 - whatever ends it; raised again below
            if not isinstance(error, SystemExit) or error.code not in (None, 0):
                ended = error
    if os.getpid() == mine:  # not a child that the script forked
        if signal.getsignal(signal.SIGTERM) is _exit:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends anyway, once all is saved
        _save(calls, Path(folder), ended)
    if ended is not None:
        raise ended


def _exit(number: int, _: FrameType | None) -> None:
    """Handle SIGTERM; a second one, as from `dvk capture` and a process group, does not disturb the saving."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _save(calls: Calls, folder: Path, ended: BaseException | None) -> None:
    """Save the calls; what prevents it is raised only where the script itself raised nothing."""
    place, number = folder, 1
    while place.exists() and (not place.is_dir() or any(place.iterdir())):
        number += 1
        place = folder.with_name(f"{folder.name}-{number}")
    if place != folder:
        print(f"`{folder}` was filled meanwhile; tasks go to `{place}`", file=sys.stderr)
    try:
        calls.save(place)
    except Exception as problem:  # the error of the script goes first, whatever this one is
        if ended is None:
            raise
        why = problem.message if isinstance(problem, DvkError) else str(problem)
        print(f"no tasks are written: {why}", file=sys.stderr)
    else:
        print(f"tasks: {place}; dvk eval {place}", file=sys.stderr)


if __name__ == "__main__":
    where, chosen, file, *rest = sys.argv[1:]
    try:
        run_script(where, [one for one in chosen.split(",") if one], file, rest)
    except DvkError as problem:
        print(f"error: {problem.message}\nhint: {problem.hint}", file=sys.stderr)
        sys.exit(2)
