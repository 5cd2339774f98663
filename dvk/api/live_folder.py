"""The folder of a live object's task file: made once for the same contents, and read by the file that lies in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dvk.records import content_hash
from dvk.resources import home

KEEP_S = 30 * 24 * 3600.0
VALUES = "values"
"""A separate folder: candidates may read folders that a file puts on its path, but not other files next to it."""
FOLDER = "DVK_FOLDER"
"""Start of the line of a task file that gives the folder of its other files."""


@dataclass
class Draft:
    """A task file under construction, its folder left open."""

    stem: str
    entry: str
    text: str
    files: dict[str, bytes]
    how: str


def keep(drafts: Sequence[Draft]) -> Path:
    """Return the folder with the files, written if it is missing."""
    parts = [
        part
        for one in drafts
        for part in (
            one.stem,
            one.text,
            *(f"{name} {_digest(held)}" for name, held in one.files.items()),
        )
    ]
    live = home() / "live"
    folder = live / content_hash(*parts)
    if folder.is_dir():
        os.utime(folder)
        return folder
    live.mkdir(parents=True, exist_ok=True)
    for old in live.iterdir():
        if time.time() - old.stat().st_mtime > KEEP_S:
            shutil.rmtree(old, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(dir=live, prefix="making-"))
    (aside / VALUES).mkdir()
    for one in drafts:
        (aside / f"{one.stem}.py").write_text(
            placed(one.text, repr(str(folder / VALUES))), encoding="utf-8"
        )
        for name, held in one.files.items():
            (aside / VALUES / name).write_bytes(held)
    aside.chmod(0o755)
    try:
        aside.rename(folder)
    except OSError:  # another process was quicker
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _digest(held: bytes) -> str:
    return hashlib.sha256(held).hexdigest()


def placed(text: str, folder: str) -> str:
    """Return the text of a task file or drop-in, with an expression for the folder of its other files."""
    return "\n".join(
        f"{FOLDER} = {folder}" if line.startswith(f"{FOLDER} = ") else line
        for line in text.split("\n")
    )
