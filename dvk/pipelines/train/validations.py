"""Results of each validation task, as kept in a run.

validation/step_000010.jsonl    a task a line: task (id), name, status, correct, speedup, lo
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dvk.records import Status, Task, Turn
from dvk.stats.fast_p import TaskOutcome

FOLDER = "validation"


def outcome_line(task: Task, turn: Turn | None) -> dict[str, Any]:
    """A task's line; no turn at all is a failure."""
    verdict = turn.verdict if turn is not None else None
    interval = (
        verdict.timing.speedup if verdict is not None and verdict.timing is not None else None
    )
    return {
        "task": task.id,
        "name": task.name,
        "status": verdict.status.value if verdict is not None else "unread",
        "correct": verdict is not None and verdict.status is Status.OK,
        "speedup": interval.value if interval else None,
        "lo": interval.lo if interval else None,
    }


def outcome(row: dict[str, Any]) -> TaskOutcome:
    """A line as input of the scores."""
    return TaskOutcome(row["task"], row["correct"], row["speedup"], row["lo"])


def latest(run: Path) -> tuple[int, list[TaskOutcome]]:
    """The last validation of a run and its step; -1 and nothing if there is none."""
    files = sorted((run / FOLDER).glob("step_*.jsonl"))
    return (step_of(files[-1]), read(files[-1])) if files else (-1, [])


def initial(run: Path) -> list[TaskOutcome]:
    """The validation before the first step; nothing if there is none."""
    path = run / FOLDER / "step_000000.jsonl"
    return read(path) if path.is_file() else []


def read(path: Path) -> list[TaskOutcome]:
    """One validation's outcomes."""
    return [outcome(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def step_of(path: Path) -> int:
    """`step_000010.jsonl` → 10."""
    return int(path.stem.removeprefix("step_"))
