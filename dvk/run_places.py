"""Where runs lie: a fresh folder, the newest one of a command, its start record and its lock."""

from __future__ import annotations

import fcntl
import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from dvk.errors import RunFolderError

MANIFEST = "run.json"
LOCK = ".lock"


def unwritable(path: Path, error: OSError) -> RunFolderError:
    reason = error.strerror or str(error)
    return RunFolderError(
        f"cannot write run folder `{path}`: {reason}", "choose a writable folder with --out"
    )


def _prefix(command: str, name: str) -> str:
    """Return `command-name` as a folder name of at most 80 plain characters."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", f"{command}-{name}")[:80]


def fresh(command: str, name: str) -> Path:
    """Create and return a new folder under `runs/`."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        path = Path("runs") / (
            f"{_prefix(command, name)}-{stamp}" + (f"-{number}" if number > 1 else "")
        )
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            continue
        except OSError as error:
            raise unwritable(path, error) from None
    raise RunFolderError("a thousand runs began here in this second", "choose another --out")


def newest(command: str, name: str) -> Path | None:
    """Return the latest run of this command and name under `runs/`."""
    runs: list[tuple[str, Path]] = []
    for path in Path("runs").glob(f"{_prefix(command, name)}-*"):
        try:
            manifest = read_manifest(path)
        except RunFolderError:  # another run's damaged folder is not reported
            continue
        if manifest is not None and (manifest["command"], manifest["name"]) == (command, name):
            runs.append((manifest["started"], path))
    return max(runs)[1] if runs else None


def is_empty(path: Path) -> bool:
    """Whether the folder holds only what a run killed before its first record leaves."""
    return all(entry.name == LOCK or entry.name.endswith(".tmp") for entry in path.iterdir())


def read_manifest(path: Path) -> dict[str, Any] | None:
    file = path / MANIFEST
    if not file.exists():
        return None
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        if {"command", "name", "status", "started"} <= set(manifest):
            return dict(manifest)
    except (OSError, ValueError, TypeError):
        pass
    raise RunFolderError(f"damaged run folder: `{file}` cannot be read", "choose another --out")


def locked(path: Path) -> int:
    """Return a file descriptor that locks the folder for this process; children do not inherit a POSIX lock."""
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise RunFolderError(
            f"another process is writing `{path}`", "wait for it, or choose another --out"
        ) from None
    except OSError:  # a file system without locks: an unlocked run is better than none
        pass
    return lock
