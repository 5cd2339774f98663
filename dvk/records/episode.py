"""What happened for one task: an `Episode` of `Trace`s, one a role and conversation, of judged `Turn`s."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from dvk.records.candidate import Candidate
from dvk.records.record import Record
from dvk.records.skill import Skill
from dvk.records.task import Task
from dvk.records.verdict import Status, Verdict


class Tokens(Record):
    """A model's prompt and answer as its own tokens, which the learner scores again."""

    prompt: tuple[int, ...] = Field(description="Token ids of the rendered conversation.")
    completion: tuple[int, ...] = Field(
        description="Token ids sampled, the stop token included where one ended it."
    )
    logprobs: tuple[float, ...] = Field(
        (), description="Log-probability of each completion token under the sampling distribution."
    )

    given: tuple[int, ...] = Field(
        (),
        description="Positions of completion tokens that were given, not sampled: those that close a thought over its budget. They "
        "are not learned, and their log-probability is 0.",
    )

    @model_validator(mode="before")
    @classmethod
    def _without_allowed(cls, row: Any) -> Any:
        """Read rows of an older dvk: where `allowed` has ids, each log-probability is among those ids only, so that they are left out."""
        if not isinstance(row, dict) or "allowed" not in row:
            return row
        kept = {name: value for name, value in row.items() if name != "allowed"}
        return {**kept, "logprobs": ()} if row["allowed"] else kept

    @model_validator(mode="after")
    def _paired(self) -> Tokens:
        if self.logprobs and len(self.logprobs) != len(self.completion):
            raise ValueError(
                f"{len(self.logprobs)} log-probabilities for {len(self.completion)} tokens"
            )
        return self


class Turn(Record):
    """One attempt and its result."""

    messages: tuple[dict[str, Any], ...] = Field(
        (), description="What the model was shown; empty for the composer."
    )
    completion: str = Field("", description="What the model answered; empty for the composer.")
    tokens: Tokens | None = Field(
        None, description="The same as token ids; null where the backbone does not tell them."
    )
    finish: Literal["stop", "length", "error"] | None = Field(
        None,
        description="Why the model stopped: by itself, at the token limit, or because its server failed; null for the composer.",
    )
    forced: bool = Field(
        False,
        description="Its answer was given instead of sampled: the selection of an explored scheme.",
    )
    redrawn: int = Field(
        0, description="Answers before this one that could not be read and were drawn again."
    )
    malformed: str | None = Field(
        None,
        description="Why the answer, or a part of it, could not be used; null when all of it was.",
    )
    chosen: tuple[str, ...] = Field(
        (), description="Names of the skills that a selection answer picked."
    )
    candidate: Candidate | None = Field(None, description="What was read from the answer.")
    verdict: Verdict | None = Field(None, description="What the judge said of it.")
    reward_terms: dict[str, float] = Field(
        default_factory=dict, description="Named parts of the reward."
    )
    reward: float | None = Field(None, description="Weighted sum of the terms.")
    advantage: float | None = Field(None, description="Credit after comparison with peers.")
    elapsed_s: float = Field(
        0.0, description="Seconds since the episode began when the verdict came."
    )


Role = Literal["selection", "policy", "summary"]


class Trace(Record):
    """One role's conversation."""

    role: Role = Field(description="Which of the three agents spoke.")
    scheme: int | None = Field(
        None,
        description="Which selection of skills this is or was given, from 0; null for the null scheme.",
    )
    rollout: int = Field(
        0, description="Which of the conversations under equal conditions this is, from 0."
    )
    peer_group: str = Field("", description="Traces that are compared with each other share this.")
    skills: tuple[str, ...] = Field(
        (), description="Names of the skills given; to a selection, of those it could choose from."
    )
    turns: tuple[Turn, ...] = Field((), description="In the order they were played.")

    @property
    def broken(self) -> bool:
        """Whether the backbone or the judge failed in it, so that its reward is unknown."""
        return any(
            t.finish == "error" or t.verdict is not None and t.verdict.status is Status.BROKEN_TASK
            for t in self.turns
        )


class Episode(Record):
    """All traces of one task."""

    task: Task = Field(description="What was to be made faster.")
    step: int = Field(0, description="Training step, 0 outside training.")
    traces: tuple[Trace, ...] = Field((), description="One a role and conversation.")
    proposed_skills: tuple[Skill, ...] = Field(
        (), description="What the summary role would add to the library."
    )
