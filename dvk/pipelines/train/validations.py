"""Results of each validation task, as kept in a run.

validation/step_000010.jsonl    a task a line: task (id), name, status, correct, speedup, lo
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean, stdev
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


def preferred(run: Path) -> int | None:
    """The validated step whose answers are fastest, by log-speedup with a wrong one as fast as eager. It is 0, the beginning, unless that
    step gains more than the standard error of its gain; None if the beginning or every later step was not validated."""
    files = sorted((run / FOLDER).glob("step_*.jsonl"), key=step_of)
    if len(files) < 2 or step_of(files[0]):
        return None
    first, *others = [{one.task: _log(one) for one in read(path)} for path in files]
    best, reached = 0, 0.0
    for path, found in zip(files[1:], others, strict=True):
        gains = [found[task] - first[task] for task in first if task in found]
        gain = fmean(gains) if gains else 0.0
        error = stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
        if gain > max(reached, error):
            best, reached = step_of(path), gain
    return best


def _log(one: TaskOutcome) -> float:
    return math.log(one.speedup) if one.correct and one.speedup else 0.0


def read(path: Path) -> list[TaskOutcome]:
    """One validation's outcomes."""
    return [outcome(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def step_of(path: Path) -> int:
    """`step_000010.jsonl` → 10."""
    return int(path.stem.removeprefix("step_"))
