"""How good the policy is now: the same held-out tasks each time, greedy, one turn, with the library as it stands.

    validation/step_000010.jsonl    a task a line: task (id), name, status, correct, speedup, lo
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dvk.agents import play_many
from dvk.agents.judging import Docket
from dvk.config import Config
from dvk.pipelines.train.draw import Draw
from dvk.pipelines.train.state import State
from dvk.records import Status, Task, Turn
from dvk.rewards import scores
from dvk.rewards.scores import Outcome
from dvk.runs import RunFolder

FOLDER = "validation"


def validate(run: RunFolder, step: int, draw: Draw, state: State, config: Config, judging: Docket[Any]) -> dict[str, Any]:
    """fast_p and the geometric mean speedup on the validation tasks, as `val_…`; what became of each task stays in the run.

    Args:
        run: an open run.
        step: steps made.
        draw: knows the tasks.
        state: weights and library.
        config: `rollout`, `train`, and the judge's settings.
        judging: where candidates are judged.
    """
    greedy = config.rollout.model_copy(update={"schemes": 1, "null_scheme": False, "rollouts": 1, "turns": 1, "summaries": 0,
                                               "temperature": 0.0})
    played = config.model_copy(update={"rollout": greedy})
    rows = []
    for episode in play_many(draw.validation(), state.backbone, state.library, played, judging=judging, step=step):
        turns = [turn for trace in episode.traces if trace.role == "policy" for turn in trace.turns]
        rows.append(judged(episode.task, turns[0] if turns else None))
    rows.sort(key=lambda row: row["name"])
    run.write_text(f"{FOLDER}/step_{step:06d}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    found = scores.summary([outcome(row) for row in rows])
    figures = {f"val_fast_{threshold}": share for threshold, share in found["fast_p"].items()}
    return {**figures, "val_speedup": found["geomean_kept"], "val_tasks": len(rows)}


def judged(task: Task, turn: Turn | None) -> dict[str, Any]:
    """A task's line; no turn at all is a failure."""
    verdict = turn.verdict if turn is not None else None
    interval = verdict.timing.speedup if verdict is not None and verdict.timing is not None else None
    return {
        "task": task.id, "name": task.name, "status": verdict.status.value if verdict is not None else "unread",
        "correct": verdict is not None and verdict.status is Status.OK,
        "speedup": interval.value if interval else None, "lo": interval.lo if interval else None,
    }  # fmt: skip


def outcome(row: dict[str, Any]) -> Outcome:
    """A line as what scores are made of."""
    return Outcome(row["task"], row["correct"], row["speedup"], row["lo"])


def last(run: Path) -> tuple[int, list[Outcome]]:
    """The last validation of a run and the step it was made after; -1 and nothing where there is none."""
    found = sorted((run / FOLDER).glob("step_*.jsonl"))
    return (step_of(found[-1]), read(found[-1])) if found else (-1, [])


def first(run: Path) -> list[Outcome]:
    """The validation before the first step; nothing where there is none."""
    path = run / FOLDER / "step_000000.jsonl"
    return read(path) if path.is_file() else []


def read(path: Path) -> list[Outcome]:
    """One validation's outcomes."""
    return [outcome(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def step_of(path: Path) -> int:
    """`step_000010.jsonl` → 10."""
    return int(path.stem.removeprefix("step_"))
