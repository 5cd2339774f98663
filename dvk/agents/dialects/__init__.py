"""How agents and a backbone talk: one file a dialect, one line in the table. A backbone says which one it understands.

A dialect writes the three agents' prompts and reads their answers; it decides nothing. What it returns is as the model
wrote it: counts, unknown names and duplicates are looked at by `selection` and `summary`, for both dialects alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dvk import registry
from dvk.agents.showing import Subject
from dvk.backbone import Completion, Conversation
from dvk.config import Agents
from dvk.records import Candidate, Role, Skill, Timing, Trace, Verdict

DIALECTS = {
    "chat": "dvk.agents.dialects.chat:Chat",
    "compact": "dvk.agents.dialects.compact:Compact",
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


def get(name: str) -> Dialect:
    """The dialect `name`, or the class `Name` of `path/to/file.py:Name`.

    Raises:
        UsageError: there is none.
    """
    dialect: Dialect = registry.resolve(name, DIALECTS, "dialect")()
    return dialect
