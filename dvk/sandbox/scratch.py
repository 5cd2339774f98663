"""Removal of a session's folder, whatever its code left in it.

`shutil.rmtree` fails on folders without permissions, and on deep ones: it raises RecursionError, or runs out of descriptors. Here folders
are moved up until none contains a folder, so depth has no cost. The module is also cheap enough for a warden to import.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 1 << 30
"""Most bytes in a session's folder: extensions and their objects take some megabytes, caches some tens."""
MOST_FILES = 1 << 17
LONGEST = 3800
"""Longest path used, of the 4096 characters that system calls take; deeper folders are reached through a descriptor on the way."""
MOST_STEPS = 100
"""Most such descriptors."""


def full(path: str, besides: int = 0) -> bool:
    """Whether the folder and `besides` bytes of deleted files exceed the limit."""
    steps: list[int] = []
    try:
        return _full(path, besides, steps)
    finally:
        for step in steps:
            os.close(step)


def _full(path: str, size: int, steps: list[int]) -> bool:
    count = 0
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            if len(folder) > LONGEST:
                if len(steps) == MOST_STEPS:
                    return True
                steps.append(
                    os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                )
                folder = f"/proc/self/fd/{steps[-1]}"
            if not os.access(folder, os.R_OK | os.X_OK):
                _mend(folder)
            for num_bytes in _sizes(folder, waiting):
                count, size = count + 1, size + num_bytes
                if size > MOST_BYTES or count > MOST_FILES:
                    return True
        except OSError:
            continue
    return size > MOST_BYTES


def _sizes(folder: str, waiting: list[str]) -> Iterator[int]:
    """Bytes of each entry; folders, of 0, are added to `waiting`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
                yield 0
            else:
                yield entry.stat(follow_symlinks=False).st_blocks * 512


def _mend(folder: str) -> None:
    """Restore permissions, so that an ordinary user's warden can read the folder."""
    if (opened := _open(folder, None)) is not None:
        os.close(opened)


def remove(path: str) -> None:
    """Delete the folder and all below it; what cannot be deleted stays. Links are not followed."""
    top = _open(path, None)
    if top is None:
        return
    unused = f".{os.urandom(8).hex()}-"
    number = 0
    waiting = _without_files(top)
    while waiting:
        name = waiting.pop()
        folder = _open(name, top)
        if folder is None:
            continue
        for inner in _without_files(folder):
            number += 1
            if (movable := _open(inner, folder)) is not None:
                os.close(movable)
                try:
                    os.rename(inner, f"{unused}{number}", src_dir_fd=folder, dst_dir_fd=top)
                    waiting.append(f"{unused}{number}")
                except OSError:
                    pass
        os.close(folder)
        try:
            os.rmdir(name, dir_fd=top)
        except OSError:
            pass
    os.close(top)
    try:
        os.rmdir(path)
    except OSError:
        pass


def _open(name: str, parent: int | None) -> int | None:
    """Return a folder's descriptor, with permissions restored; None if it is not a folder, or not ours."""
    try:
        handle = os.open(
            name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent
        )
    except OSError:
        return None
    try:
        place = f"/proc/self/fd/{handle}"  # the folder itself, even if its name is reused meanwhile
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(place, 0o700)
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    finally:
        os.close(handle)


def _without_files(folder: int) -> list[str]:
    """Delete everything except folders; return their names."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    os.unlink(entry.name, dir_fd=folder)
            except OSError:
                pass
    return folders
