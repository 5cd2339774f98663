"""Rows of earlier steps, which `objective.replay` mixes into the next updates. A resumed run reads them from its episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dvk.learn.assign import rows
from dvk.learn.rows import TrainingRow
from dvk.records import Episode
from dvk.runs import RunFolder


class ReplayBuffer:
    """The rows of the last steps.

    Args:
        run: the run, with the episodes of its steps.
        num_steps: steps whose rows are kept.
        step: steps made so far.
    """

    def __init__(self, run: RunFolder, num_steps: int, step: int):
        self._steps: deque[list[TrainingRow]] = deque(maxlen=num_steps)
        for number in range(max(0, step - num_steps), step):
            path = run.path / episodes_of(number)
            lines = path.read_text().splitlines() if path.exists() else ()
            self.add([Episode.model_validate_json(line) for line in lines])

    def add(self, episodes: Sequence[Episode]) -> None:
        """Keep a step's rows."""
        self._steps.append([row for episode in episodes for row in rows(episode)])

    def rows(self) -> list[TrainingRow]:
        """All rows kept, the oldest first."""
        return [row for step in self._steps for row in step]


def episodes_of(step: int) -> str:
    """The file of a step's episodes, in the run's folder."""
    return f"episodes/step_{step:06d}.jsonl"
