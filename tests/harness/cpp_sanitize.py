"""C++ candidates under AddressSanitizer and UndefinedBehaviorSanitizer: out-of-bounds accesses are reported by line.

A wrapper stands before the real compiler, in $CXX and on PATH, and adds the flags; the sanitizer's runtime is loaded before Python starts,
so that PyTorch's allocations have red zones as well. Needs g++; a candidate with a compiled library, or one that calls a compiler by its
full path, is not instrumented. Runs are several times slower, and their times are meaningless.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from dvk import resources
from dvk.errors import MachineError

FLAGS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
    "-O1",
)
"""At -O1 lines are right and most inlining is off; the last -O on the command line counts, so these flags come last."""
NAMES = ("g++", "c++", "gcc", "cc", "clang++", "clang")
"""Compiler names that candidates use; each stands for the installed g++."""
INSTALL = "install g++ with its sanitizers (apt-get install g++)"
MAX_CHARS = 1500

_UNDEFINED = re.compile(r"^(?P<place>\S+:\d+(?::\d+)?): runtime error: (?P<what>.*)$", re.MULTILINE)
_ADDRESS = re.compile(r"^==\d+==ERROR: AddressSanitizer: (?P<what>\S+)", re.MULTILINE)
_ACCESS = re.compile(r"^(?:READ|WRITE) of size \d+", re.MULTILINE)
_FRAME = re.compile(
    r"^\s*#\d+ 0x[0-9a-f]+ in (?P<name>.+?) (?P<place>\S+:\d+)(?::\d+)?\s*$", re.MULTILINE
)


def sanitizer_env(folder: Path | None = None) -> dict[str, str]:
    """Return the environment of a runner with instrumented C++; a separate zygote, since the runtime is loaded at its start.

    Args:
        folder: where the wrappers go; default: `$DVK_HOME/cache/sanitizers`.

    Raises:
        MachineError: there is no g++, or it came without sanitizers.
    """
    compiler = _real()
    runtimes = [_runtime(compiler, name) for name in ("asan", "ubsan")]
    folder = folder or resources.home() / "cache" / "sanitizers"
    folder.mkdir(parents=True, exist_ok=True)
    text = f'#!/bin/sh\nunset LD_PRELOAD\nexec {shlex.quote(compiler)} "$@" {shlex.join(FLAGS)}\n'
    for name in NAMES:
        _write(folder / name, text)
    return {
        "CXX": str(folder / "g++"),
        "CC": str(folder / "gcc"),
        "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "LD_PRELOAD": " ".join(runtimes),
        # Python and torch never free all memory; and a report must not depend on a clean exit.
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=99:detect_odr_violation=0:malloc_context_size=6:print_legend=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=98",
        # Python's allocator returns parts of large blocks, which have no red zones.
        "PYTHONMALLOC": "malloc",
    }


def report(log: str) -> str | None:
    """Return the first finding in a sanitized process's output, with file and line; None if there is none."""
    undefined, address = _UNDEFINED.search(log), _ADDRESS.search(log)
    if undefined and (not address or undefined.start() < address.start()):
        return f"{undefined['place']}: {undefined['what']}"[:MAX_CHARS]
    if address is None:
        return None
    rest = log[address.start() :]
    access, frame = _ACCESS.search(rest), _FRAME.search(rest)
    where = f"{frame['place']}: in {frame['name']}: " if frame else ""
    how = f", {access[0].lower()}" if access else ""
    return f"{where}{address['what']}{how}"[:MAX_CHARS]


def _real() -> str:
    result = shutil.which("g++")
    if result is None:
        raise MachineError("the C++ compiler `g++` was not found", INSTALL)
    return result


def _runtime(compiler: str, name: str) -> str:
    """Return the path of a sanitizer's shared runtime; a compiler without it returns the bare name."""
    asked = f"lib{name}.so"
    found = subprocess.run(
        [compiler, f"-print-file-name={asked}"], capture_output=True, text=True
    ).stdout.strip()
    if found == asked or not os.path.exists(found):
        raise MachineError(f"`{compiler}` has no {asked}", INSTALL)
    return os.path.realpath(found)


def _write(path: Path, text: str) -> None:
    if path.is_file() and path.read_text() == text:
        return
    handle, aside = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(aside, 0o755)
    os.replace(aside, path)
