"""Become an ordinary user, then run the rest of the command line. For root only, in a separate process.

Where root keeps Python or the package in folders that others may not enter, they are shown to this process (in a mount
namespace) at the same place below folders that may be.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from dvk.sandbox import namespaces
from dvk.sandbox.syscalls import syscall

USER = 54321


def hidden_by(path: Path) -> Path | None:
    """The uppermost folder on the way to `path` that others may not enter."""
    return next(
        (folder for folder in [*reversed(path.parents), path] if not folder.stat().st_mode & 1),
        None,
    )


def show(paths: list[Path]) -> None:
    hidden = {path: folder for path in paths if (folder := hidden_by(path)) is not None}
    if not namespaces.own_mounts():
        raise SystemExit("no mount namespace")
    staged = {path: tempfile.mkdtemp() for path in hidden}
    for path, place in staged.items():
        syscall(
            "mount",
            str(path).encode(),
            place.encode(),
            None,
            namespaces.MS_BIND | namespaces.MS_REC,
            None,
        )
    for folder in sorted(set(hidden.values())):
        syscall("mount", b"none", str(folder).encode(), b"tmpfs", 0, b"mode=755")
    for path, place in staged.items():
        path.mkdir(parents=True, exist_ok=True)
        syscall(
            "mount",
            place.encode(),
            str(path).encode(),
            None,
            namespaces.MS_BIND | namespaces.MS_REC,
            None,
        )
        syscall("umount2", place.encode(), 2)
        os.rmdir(place)


if __name__ == "__main__":
    show([Path(sys.base_prefix), Path(sys.prefix), Path(__file__).resolve().parents[2]])
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    os.execve(
        sys.executable, [sys.executable, *sys.argv[1:]], {**os.environ, "HOME": "/nonexistent"}
    )
