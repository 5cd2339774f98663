"""`--davinci PATH`: one flag for a daVinci-kernel checkpoint, its dialect, and the skills that were learned beside it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dvk import resources
from dvk.errors import LibraryError, UsageError
from dvk.interop.davinci.backbone import model_folder
from dvk.records import content_hash
from dvk.skills import Library, jsonl, snapshots

if TYPE_CHECKING:
    from dvk.pipelines.optimize import Request


def with_checkpoint(request: Request, path: Path) -> Request:
    """The request with the checkpoint's model as its backbone, and its bundled skills as its library unless another was named.

    Raises:
        UsageError: no model there, or another backbone was asked for.
        LibraryError: the skills cannot be read.
    """
    if request.backbone is not None:
        raise UsageError("--davinci brings its own backbone", "drop --backbone, or --davinci")
    folder = model_folder(path.expanduser())
    library = request.library
    if library is None and (file := snapshots.find(folder) or snapshots.find(path.expanduser())) is not None:
        library = imported(file)
    elif library is None:
        print(f"`{folder}` bundles no skill library: the default one is used", file=sys.stderr)
    return replace(request, backbone=f"davinci:{folder}", library=library)


def imported(file: Path) -> Path:
    """The library made of a JSONL file, under `$DVK_HOME/davinci`: made once, named by its content, so that what is learned of its skills
    stays beside them.

    Raises:
        LibraryError: it cannot be read.
    """
    skills, problems = jsonl.read(file)
    target = resources.home() / "davinci" / f"{content_hash(file.read_text(encoding='utf-8', errors='replace'))}.db"
    if target.is_file():
        return target
    for problem in problems:
        print(f"skipped: {problem}", file=sys.stderr)
    if problems and not skills:
        raise LibraryError(f"no skill can be read from `{file}`", "download the checkpoint again, or name another --library")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_suffix(f".{os.getpid()}.tmp")
    with Library.open(aside, create=True) as library:
        library.add_all(skills, taken="keep")
    os.replace(aside, target)
    return target
