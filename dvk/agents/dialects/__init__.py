"""How agents and a backbone talk: one file a dialect, one line in the table. A backbone says which one it understands.

A dialect writes the three agents' prompts and reads their answers; it decides nothing. What it returns is as the model
wrote it: counts, unknown names and duplicates are looked at by `selection` and `summary`, for both dialects alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from dvk import registry
from dvk.agents.briefs import Advice, Brief
from dvk.agents.task_context import Subject
from dvk.backbone import Completion, Conversation
from dvk.config import Agents
from dvk.records import Candidate, Role, Skill, Timing, Trace, Turn, Verdict

DIALECTS = {
    "chat": "dvk.agents.dialects.chat:Chat",
    "compact": "dvk.agents.dialects.nano:Compact",
    "davinci": "dvk.interop.davinci.dialect:DaVinci",
}


class Dialect(Protocol):
    """Pure: equal arguments, equal prompts. All `read_` methods raise `reading.Malformed` with the reason, and nothing else."""

    reads_graph: bool
    """It shows tasks as operator graphs: a task without one cannot be played."""
    longest: Mapping[Role, int]
    """Tokens that the longest sensible answer of a role takes; asked for even where the configuration would allow more."""

    def selection(self, subject: Subject, skills: Sequence[Skill], settings: Agents) -> Conversation:
        """Ask which of `skills`, numbered from 1, to write the kernel with."""

    def read_selection(self, answer: Completion, names: Sequence[str], settings: Agents) -> list[str]:
        """Names as answered, `names` being those offered, in order."""

    def write_selection(self, names: Sequence[str], reasons: Mapping[str, str], think: str) -> str:
        """The answer that chooses the keys of `reasons`, of `names` offered: what training data says, and `read_selection` reads."""

    def policy(self, subject: Subject, skills: Sequence[Skill], settings: Agents) -> Conversation:
        """Ask for a first candidate, under `skills` or under none."""

    def read_policy(self, subject: Subject, answer: Completion) -> Candidate:
        """The candidate in an answer."""

    def write_policy(self, text: str) -> str:
        """The answer that gives `text`, a whole file or a compact text."""

    def feedback(self, verdict: Verdict | None, malformed: str | None, best: Timing | None, settings: Agents) -> str:
        """What the policy is told of its last answer; one of `verdict` and `malformed` is given."""

    def summary(self, subject: Subject, trace: Trace, skills: Sequence[Skill], settings: Agents) -> Conversation:
        """Ask what there is to learn from a policy's conversation, which was given `skills`."""

    def read_summary(self, subject: Subject, answer: Completion, trace: Trace, settings: Agents) -> list[dict[str, Any]]:
        """Proposed skills as fields of `Skill` (name, description, scope, tags, body), unchecked."""

    def write_summary(self, skills: Sequence[Skill], think: str) -> str:
        """The answer that proposes `skills`."""


@runtime_checkable
class Prose(Dialect, Protocol):
    """A dialect whose models can be told and asked in words: versions side by side, a review, a running summary."""

    def revise(self, subject: Subject, skills: Sequence[Skill], brief: Brief, settings: Agents) -> Conversation:
        """Ask for another candidate in the light of earlier ones; read by `read_policy`."""

    def advise(self, subject: Subject, turn: Turn, tried: Sequence[str], settings: Agents) -> Conversation:
        """Ask for exactly one change of a judged version, other than those `tried`: a repair, or if it is right a speed-up."""

    def read_advice(self, answer: Completion) -> Advice:
        """The one change."""

    def digest(self, subject: Subject, before: str, turns: Sequence[Turn], num_tokens: int, settings: Agents) -> Conversation:
        """Ask for the running summary `before` to be brought up to date with `turns`, in about `num_tokens` tokens."""

    def read_digest(self, answer: Completion, num_tokens: int) -> str:
        """The summary."""

    def idea(self, answer: Completion) -> str:
        """What a candidate's answer says it does differently, on one line; empty where it says nothing. Raises nothing."""


def get(name: str) -> Dialect:
    """The dialect `name`, or the class `Name` of `path/to/file.py:Name`.

    Raises:
        UsageError: there is none.
    """
    dialect: Dialect = registry.resolve(name, DIALECTS, "dialect")()
    return dialect
