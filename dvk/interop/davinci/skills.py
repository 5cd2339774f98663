"""The skills that a daVinci-kernel checkpoint bundles, as a library."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dvk import resources
from dvk.errors import LibraryError
from dvk.records import content_hash
from dvk.skills import Library, jsonl


def imported(file: Path) -> Path:
    """The library made of a JSONL file, under `$DVK_HOME/davinci`: made once, named by its content, so that evidence about its skills
    stays with them.

    Raises:
        LibraryError: it cannot be read.
    """
    skills, problems = jsonl.read(file)
    target = (
        resources.home()
        / "davinci"
        / f"{content_hash(file.read_text(encoding='utf-8', errors='replace'))}.db"
    )
    if target.is_file():
        return target
    for problem in problems:
        print(f"skipped: {problem}", file=sys.stderr)
    if problems and not skills:
        raise LibraryError(
            f"no skill can be read from `{file}`",
            "download the checkpoint again, or name another --library",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_suffix(f".{os.getpid()}.tmp")
    with Library.open(aside, create=True) as library:
        library.add_all(skills, taken="keep")
    os.replace(aside, target)
    return target
