"""Files written into a folder that an agent may have changed: links in it are replaced, not followed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

READ_ONLY = 0o444
EXECUTABLE = 0o755


def write(folder: Path, name: str, text: str, mode: int = READ_ONLY) -> None:
    """Write a file whole, to a temporary name and then renamed.

    Args:
        folder: the agent's folder.
        name: `best.py` or `task/model.py`; folders on the way are made, and must be no links.

    Raises:
        OSError: it cannot be written: a folder is missing, a link, or not a folder.
    """
    *parts, last = Path(name).parts
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=descriptor)
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        aside = f".{last}.{secrets.token_hex(4)}.tmp"
        made = os.open(
            aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=descriptor
        )
        try:
            with open(made, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as out:
                out.write(text)
                os.fchmod(out.fileno(), mode)
            os.replace(aside, last, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        except OSError:
            with suppress(OSError):
                os.unlink(aside, dir_fd=descriptor)
            raise
    finally:
        os.close(descriptor)


def write_all(folder: Path, texts: Mapping[str, str], mode: int = READ_ONLY) -> None:
    """Write several files.

    Raises:
        OSError: see `write`.
    """
    for name, text in texts.items():
        write(folder, name, text, mode)
