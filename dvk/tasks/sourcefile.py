"""Execution of source text as a module backed by a file on disk, and the location of its exceptions.

`inspect.getsource` and Triton's `@jit` read a module's file, so there always is one: the user's file if it still has this text, else a
copy. The given text runs, never the file's. Files next to the user's file can be imported (`beside`), and shadow nothing. Child side only,
without protection: the code may do anything to this process.
"""

from __future__ import annotations

import importlib.machinery
import linecache
import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from dvk.crashes import text_of
from dvk.errors import Exhausted, TaskError
from dvk.records import content_hash
from dvk.tasks import beside
from dvk.tasks.beside import PREFIX
from dvk.tasks.sourcetext import read_source

_LACKS = re.compile(
    r"(out of|can't allocate|cannot allocate) memory|can't start new thread", re.IGNORECASE
)
"""Phrases of torch, CUDA and Python for exhausted resources."""


def execute(
    source: str,
    *,
    path: str | None = None,
    texts: beside.Texts = (),
    package: str = "",
    role: str = "reference",
) -> ModuleType:
    """Run `source` as a module with a unique name, registered in `sys.modules`.

    Args:
        source: Python text.
        path: file that the text was read from; its folder becomes importable.
        texts: texts of files that it imports from there.
        package: package that the file is a module of.
        role: a word in the module's name, for readers of tracebacks.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the text is not a program.
        BaseException: any exception of the text, SystemExit included.
    """
    stem = f"{PREFIX}{role}_{content_hash(source)}"
    name, count = stem, 1
    while name in sys.modules:
        name, count = f"{stem}_{count}", count + 1
    place = beside.settle(path, texts, package) if path else None
    file = _backing_file(source, path, name, place)
    code = compile(source, file, "exec", dont_inherit=True)
    module = ModuleType(name)
    module.__file__ = file
    loader = importlib.machinery.SourceFileLoader(name, file)
    module.__spec__ = importlib.machinery.ModuleSpec(name, loader, origin=file)
    module.__loader__ = loader
    # An entry without a time stamp is never checked against the disk, so tracebacks show the text that runs.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[name] = module
    before, sys.dont_write_bytecode = (
        sys.dont_write_bytecode,
        True,
    )  # no __pycache__ next to the user's files
    try:
        exec(code, module.__dict__)
    except BaseException:  # a file may raise anything, SystemExit too
        sys.modules.pop(name, None)
        raise
    finally:
        sys.dont_write_bytecode = before
    from dvk.tasks.trees import take_apart  # it loads torch, as the text has by now

    take_apart(module.__dict__)
    return module


def blame(error: BaseException) -> str:
    """Return `Kind: message` of `error`, and the last line of an executed source that it passed."""
    kind = type(error).__name__
    text = " ".join(text_of(error).split())
    what = f"{kind}: {text[:600]}" if text else kind
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if str(frame.f_globals.get("__name__", "")).startswith(PREFIX):
            file, function = frame.f_code.co_filename, frame.f_code.co_name
            where = "" if function == "<module>" else f", in {function}"
            code = linecache.getline(file, line).strip()
            return f"{what}\n  {os.path.basename(file)}, line {line}{where}" + (
                f": {code}" if code else ""
            )
    return what


def fault(what: str, error: BaseException, hint: str) -> TaskError:
    """Return an error for the user: `what` happened because their code raised `error`."""
    if isinstance(error, SystemExit):
        hint = "guard the call of exit with `if __name__ == '__main__':`, or remove it"
    lacks = isinstance(error, MemoryError) or _LACKS.search(text_of(error))
    return (Exhausted if lacks else TaskError)(f"{what}: {blame(error)}", hint)


def _backing_file(source: str, path: str | None, name: str, place: Path | None) -> str:
    if path is not None:
        try:
            if read_source(Path(path)) == source:
                return str(Path(path).resolve())
        except (OSError, UnicodeDecodeError):
            pass
    # Under its file name, for readers of tracebacks, in a folder that no import searches.
    file = (place or beside.copy_folder()) / name / os.path.basename(path or f"{name}.py")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    return str(file)
