"""Tracebacks of exceptions inside dvk: a file for each task in the run folder, and a line on stderr with their number."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dvk.records import Episode
from dvk.runs import RunFolder

FOLDER = "tracebacks"


def file_of(name: str) -> str:
    """Folder of a task's tracebacks, inside the run folder."""
    return f"{FOLDER}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', name).lstrip('.') or 'task'}.txt"


def keep(run: RunFolder, name: str, texts: Iterable[str]) -> bool:
    """Append a task's tracebacks to its file; returns whether there are any."""
    place = run.path / file_of(name)
    before = place.read_text(encoding="utf-8", errors="replace") if place.is_file() else ""
    fresh = [text for text in dict.fromkeys(texts) if text and text not in before]
    if fresh:
        run.write_text(file_of(name), "\n".join([*([before] if before else []), *fresh]))
    return bool(fresh or before)


def of_episode(episode: Episode) -> list[str]:
    """Tracebacks in its verdicts."""
    return [
        turn.verdict.traceback
        for trace in episode.traces
        for turn in trace.turns
        if turn.verdict is not None
    ]


def count(run: RunFolder) -> int:
    """Tasks with tracebacks."""
    folder = run.path / FOLDER
    return sum(1 for _ in folder.glob("*.txt")) if folder.is_dir() else 0


def stderr_line(run: RunFolder, what: str = "task") -> str | None:
    """A line for stderr; null if there are none."""
    number = count(run)
    if not number:
        return None
    return f"{number} {what}{'s' * (number != 1)} ended with an error inside dvk; the tracebacks are in {run.path / FOLDER}"
