"""daVinci-kernel's skill library files: `skill_library.jsonl` in a checkpoint, `skill_library/global_step_N.jsonl` in a run.

A file holds the whole library (see `jsonl`). Its training loads the largest step that is not past its own.
"""

from __future__ import annotations

import re
from pathlib import Path

BUNDLED = "skill_library.jsonl"
FOLDER = "skill_library"


def find(path: Path, step: int | None = None) -> Path | None:
    """The library file of a checkpoint, a run or a folder of snapshots; None if there is none.

    Args:
        path: a folder; of one inside a run (`RUN/global_step_N/actor/huggingface`), the run's snapshot of that step.
        step: the latest training step to consider; None takes the path's own, else the last.
    """
    path = path.resolve()
    steps = [
        number for number, part in enumerate(path.parts) if re.fullmatch(r"global_step_\d+", part)
    ]
    if (path / BUNDLED).is_file():
        return path / BUNDLED
    if not steps:
        return newest(path, step) or newest(path / FOLDER, step)
    run, own = (
        Path(*path.parts[: steps[-1]]),
        int(path.parts[steps[-1]].removeprefix("global_step_")),
    )
    bundled = run / BUNDLED
    return newest(run / FOLDER, own if step is None else step) or (
        bundled if bundled.is_file() else None
    )


def newest(folder: Path, step: int | None = None) -> Path | None:
    """The snapshot with the largest number, not above `step`; None if there is none."""
    files = []
    for file in folder.glob("global_step_*.jsonl") if folder.is_dir() else ():
        number = file.stem.removeprefix("global_step_")
        if number.isdigit() and (step is None or int(number) <= step):
            files.append((int(number), file))
    return max(files)[1] if files else None


def name(step: int) -> str:
    """The file of a step."""
    return f"global_step_{step}.jsonl"
