"""The turns of one task: each answer is scored, and its feedback is the next turn's message."""

from __future__ import annotations

from dvk.agents.scored import Scored
from dvk.environments import shared_scorer
from dvk.errors import UsageError


class Episode:
    """One conversation about one task.

    Args:
        task: a task file's text, or its path.
        turns: most answers.

    Attributes:
        scores: of all answers so far.
    """

    def __init__(self, task: str, turns: int = 1):
        if turns < 1:
            raise UsageError(f"an episode of {turns} turns", "let it have one or more")
        self.task, self.turns = task, turns
        self.scores: list[Scored] = []

    def answer(self, text: str) -> Scored:
        """Score the model's next answer: its text, or code alone.

        Raises:
            UsageError: the episode has ended.
            DvkError: the task cannot be used, or the machine cannot judge.
        """
        if self.done:
            raise UsageError(f"the episode had its {self.turns} turns", "start the next one")
        self.scores.append(shared_scorer().score(self.task, text))
        return self.scores[-1]

    @property
    def done(self) -> bool:
        """All turns are used."""
        return len(self.scores) >= self.turns

    @property
    def best(self) -> Scored | None:
        """The score with the largest reward; the first of equals, None before the first answer."""
        return max(self.scores, key=lambda one: one.reward, default=None)

    @property
    def reward(self) -> float:
        """The largest reward; 0 before the first answer."""
        return 0.0 if self.best is None else self.best.reward

    def metrics(self) -> dict[str, float]:
        """Numbers of the episode for a trainer's log: `right`, `speedup` of the best answer (0: none), `turns`."""
        best = self.best
        return {
            "right": float(best is not None and best.right),
            "speedup": (best.speedup or 0.0) if best is not None and best.right else 0.0,
            "turns": float(len(self.scores)),
        }
