"""The score of a model's answer: parse it, and after the judge, reward and feedback. Pure functions of a task, a text and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dvk.agents import dialects, policy
from dvk.agents.task_context import TaskContext
from dvk.backbone import Completion
from dvk.config import Config
from dvk.records import BackendName, Candidate, Task, Turn, Verdict
from dvk.rewards import rewarded


@dataclass(frozen=True)
class Scored:
    """The score of one answer.

    Attributes:
        reward: weighted sum of the terms (`rewards.weights`).
        terms: each term's value, by name.
        feedback: what was found, in words for the next turn; it names no reward.
        verdict: the judge's; None if the answer has no readable code.
        malformed: why it has none.
    """

    reward: float
    terms: Mapping[str, float]
    feedback: str
    verdict: Verdict | None = field(default=None, repr=False)
    malformed: str | None = None

    @property
    def right(self) -> bool:
        """The candidate passed every check."""
        return self.verdict is not None and self.verdict.status.value == "ok"

    @property
    def speedup(self) -> float | None:
        """Reference time / candidate time; None if it was not timed."""
        timing = self.verdict.timing if self.verdict is not None else None
        return None if timing is None else timing.speedup.value


def candidate(task: Task, backend: BackendName, text: str) -> Candidate | str:
    """The candidate in an answer, or why there is none.

    Args:
        task: what was asked.
        backend: what the code is written in.
        text: the whole answer, thinking included.
    """
    answer = Completion(text=text, finish="stop")
    subject = TaskContext(task, None, backend)
    return policy.read(dialects.get("chat"), subject, answer, "user", (), "")


def scored(
    config: Config, text: str, verdict: Verdict | None, malformed: str | None = None
) -> Scored:
    """The score, given what the judge said.

    Args:
        config: `rewards` and `agents` settings.
        text: the whole answer.
        verdict: of its candidate; None if it is malformed.
        malformed: why there is no candidate.
    """
    turn = Turn(completion=text, finish="stop", verdict=verdict, malformed=malformed)
    found = rewarded(turn, config.rewards)
    said = dialects.get("chat").feedback(verdict, malformed, None, config.agents)
    assert found.reward is not None, "it was computed"
    return Scored(found.reward, found.reward_terms, said, verdict, malformed)
