"""Dialects between agents and a backbone: one file a dialect, one line in the table. A backbone names the one it understands.

A dialect writes the three agents' prompts and parses their answers; it decides nothing. It returns what the model
wrote: `selection` and `summary` check counts, unknown names and duplicates, for both dialects alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from dvk import registry
from dvk.agents.bounds import Bounds
from dvk.agents.briefs import Brief, ReviewAdvice
from dvk.agents.task_context import TaskContext
from dvk.backbone import Completion, Conversation
from dvk.config import AgentsConfig
from dvk.records import Candidate, Role, Skill, Timing, Trace, Turn, Verdict

DIALECTS = {
    "chat": "dvk.agents.dialects.chat:ChatDialect",
    "compact": "dvk.agents.dialects.nano:CompactDialect",
    "plan": "dvk.agents.dialects.plan:PlanDialect",
    "davinci": "dvk.interop.davinci.dialect:DaVinciDialect",
}


class Dialect(Protocol):
    """Pure: equal arguments, equal prompts. All `read_` methods raise `reading.MalformedAnswer` with the reason, and nothing else."""

    reads_graph: bool
    """Whether it shows tasks as operator graphs: a task without one cannot be played."""
    longest: Mapping[Role, int]
    """Tokens that the longest sensible answer of a role takes; an upper bound even if the configuration would allow more."""

    def selection(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        """Ask which of `skills`, numbered from 1, to write the kernel with."""

    def read_selection(
        self, answer: Completion, names: Sequence[str], settings: AgentsConfig
    ) -> list[str]:
        """Names as answered, `names` being those offered, in order."""

    def write_selection(self, names: Sequence[str], reasons: Mapping[str, str], think: str) -> str:
        """The answer that chooses the keys of `reasons`, of `names` offered: the inverse of `read_selection`, for training data."""

    def policy(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        """Ask for a first candidate, with `skills` or without any."""

    def read_policy(self, subject: TaskContext, answer: Completion) -> Candidate:
        """The candidate in an answer."""

    def write_policy(self, text: str) -> str:
        """The answer that gives `text`, a whole file or a compact text."""

    def feedback(
        self,
        verdict: Verdict | None,
        malformed: str | None,
        best: Timing | None,
        settings: AgentsConfig,
        bounds: Bounds | None = None,
    ) -> str:
        """Feedback on the policy's last answer; one of `verdict` and `malformed` is given.

        Args:
            best: timing of the fastest earlier attempt.
            bounds: what bounds the task's time, for dialects with prose.
        """

    def summary(
        self, subject: TaskContext, trace: Trace, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        """Ask for the lessons of a policy's conversation, which was given `skills`."""

    def read_summary(
        self, subject: TaskContext, answer: Completion, trace: Trace, settings: AgentsConfig
    ) -> list[dict[str, Any]]:
        """Proposed skills as fields of `Skill` (name, description, scope, tags, body), unchecked."""

    def write_summary(self, skills: Sequence[Skill], think: str) -> str:
        """The answer that proposes `skills`."""


@runtime_checkable
class ProseDialect(Dialect, Protocol):
    """Dialect of models that read and write prose: versions side by side, a review, a running summary."""

    def revise(
        self, subject: TaskContext, skills: Sequence[Skill], brief: Brief, settings: AgentsConfig
    ) -> Conversation:
        """Ask for another candidate given earlier ones; parsed by `read_policy`."""

    def advise(
        self, subject: TaskContext, turn: Turn, tried: Sequence[str], settings: AgentsConfig
    ) -> Conversation:
        """Ask for exactly one change of a judged version, other than those `tried`: a repair, or if it is right a speed-up."""

    def read_advice(self, answer: Completion) -> ReviewAdvice:
        """The one change in a reviewer's answer."""

    def digest(
        self,
        subject: TaskContext,
        before: str,
        turns: Sequence[Turn],
        num_tokens: int,
        settings: AgentsConfig,
    ) -> Conversation:
        """Ask for the running summary `before` to be brought up to date with `turns`, in about `num_tokens` tokens."""

    def read_digest(self, answer: Completion, num_tokens: int) -> str:
        """The summary in an answer."""

    def idea(self, answer: Completion) -> str:
        """One line on what the candidate's answer says it changes; empty if it says nothing. Raises nothing."""


def get(name: str) -> Dialect:
    """The dialect `name`, or the class `Name` of `path/to/file.py:Name`.

    Raises:
        UsageError: there is none.
    """
    dialect: Dialect = registry.resolve(name, DIALECTS, "dialect")()
    return dialect
