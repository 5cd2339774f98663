"""Traces of the selftest's attacks on the machine: marked files, marked processes, a deleted honeypot.

The red team's files mark their traces with `dvk-redteam-ID`, so that they can be found, reported and removed.
"""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dvk.resources import home

MARK = "dvk-redteam-"
SEGMENTS = {"N03": 0x0D5B0003}
"""Keys of System V shared memory that attacks use."""
_IPC_RMID = 0


def honeypot() -> Path:
    """A folder that cleaners must not follow a link to; case N10 knows its name."""
    return Path("/tmp") / f"{MARK}honeypot-{os.getuid()}"


class LeftoverWatch:
    """Searches for traces that were not there before."""

    def __init__(self) -> None:
        self.precious = honeypot() / "precious"

    def found(self, ids: set[str]) -> dict[str, str]:
        """Traces by attack."""
        traces = {}
        for name in ids:
            files = [
                path
                for folder in _folders()
                for path in glob.glob(os.path.join(glob.escape(folder), f"{MARK}{name}*"))
            ]
            left = [
                *dict.fromkeys(os.path.realpath(path) for path in files),
                *_processes(name),
                *_segments(name),
            ]
            if name == "N10" and not self.precious.is_file():
                left.append("an empty honeypot")
            if left:
                traces[name] = ", ".join(left)
        return traces


@contextmanager
def watched() -> Iterator[LeftoverWatch]:
    """Create the honeypot; afterwards remove it and every marked file and segment."""
    shutil.rmtree(honeypot(), ignore_errors=True)
    honeypot().mkdir(mode=0o777)
    watch = LeftoverWatch()
    watch.precious.write_text("not yours\n")
    try:
        yield watch
    finally:
        for folder in _folders():
            for path in glob.glob(os.path.join(glob.escape(folder), f"{MARK}*")):
                try:
                    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(
                        path
                    ) else os.unlink(path)
                except OSError:
                    pass
        for name in SEGMENTS:
            _segments(name, remove=True)


def _folders() -> list[str]:
    """Places where attacks try to leave files."""
    user, package = os.path.expanduser("~"), str(Path(__file__).resolve().parent.parent)
    below = (
        (),
        (".cache",),
        (".cache", "*"),
        (".cache", "dvk", "*"),
        (".triton", "*"),
        (".nv", "*"),
    )
    code = [
        os.path.join(base, *parts)
        for base in (package, *_packages())
        for parts in ((), ("__pycache__",), ("*", "__pycache__"))
    ]
    patterns = [
        tempfile.gettempdir(),
        "/tmp",
        "/tmp/*",
        "/var/tmp",
        "/dev/shm",
        os.getcwd(),
        str(home()),
        sys.prefix + "/lib",
    ]
    patterns += [os.path.join(user, *parts) for parts in below] + code
    return list(dict.fromkeys(folder for pattern in patterns for folder in glob.glob(pattern)))


def _packages() -> list[str]:
    """Folders of torch and json, found without importing the former."""
    return [
        folder
        for path in sys.path
        for name in ("torch", "json")
        if os.path.isdir(folder := os.path.join(path, name))
    ]


def _processes(name: str) -> list[str]:
    result = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/comm") as file:
                if file.read().startswith(f"{MARK}{name}"[:15]):
                    result.append(f"process {entry}")
        except OSError:
            continue
    return result


def _segments(name: str, remove: bool = False) -> list[str]:
    if name not in SEGMENTS:
        return []
    libc = ctypes.CDLL(None)
    number = libc.shmget(SEGMENTS[name], 0, 0)
    if number >= 0 and remove:
        libc.shmctl(number, _IPC_RMID, None)
    return [f"shared memory segment {number}"] if number >= 0 else []
