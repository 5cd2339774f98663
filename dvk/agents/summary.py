"""The summary agent: turns a conversation that made code faster into skills for the library."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from dvk.agents import notes
from dvk.agents.dialects import Dialect
from dvk.agents.reading import MalformedAnswer
from dvk.agents.task_context import CHARS_PER_TOKEN, NEW_SKILL_TOKENS, TaskContext
from dvk.agents.turns import speedup
from dvk.backbone import Completion
from dvk.config import AgentsConfig
from dvk.records import Skill, Trace
from dvk.skills.markdown import REQUIRED

OVER_FIRST = 1.2
"""Speedup of the best turn over a right first turn from which a summary is due."""
OVER_EAGER = 1.2
"""Speedup of the best turn over eager PyTorch that a summary needs, too."""

MAX_DESCRIPTION = 200
"""Characters; 120 are asked for."""


@dataclass(frozen=True)
class SummaryProposals:
    """A parsed summary answer."""

    skills: tuple[Skill, ...] = ()
    """Well-formed ones; empty also if the model found nothing worth keeping."""
    refused: tuple[str, ...] = ()
    """The others, each with the reason."""
    malformed: str | None = None
    """The parse error; null if there was none."""


def due(trace: Trace) -> bool:
    """Whether one policy conversation is worth a summary: its first turn was right, and a later one much faster.

    best ≥ OVER_FIRST · first and best ≥ OVER_EAGER, speedups of this very conversation (daVinci-kernel §5.1, whose keys mix
    up the rollouts of a scheme).
    """
    speeds = [speedup(turn) for turn in trace.turns]
    if len(speeds) < 2 or speeds[0] <= 0:
        return False
    best = max(speeds)
    return best >= OVER_FIRST * speeds[0] and best >= OVER_EAGER


def best(traces: Sequence[Trace]) -> Trace | None:
    """The policy conversation worth a summary with the highest speedup; the first of equals."""
    worthy = [trace for trace in traces if trace.role == "policy" and due(trace)]
    return max(worthy, key=lambda trace: max(speedup(turn) for turn in trace.turns), default=None)


def read(
    dialect: Dialect,
    subject: TaskContext,
    answer: Completion,
    trace: Trace,
    settings: AgentsConfig,
    provenance: Mapping[str, Any],
) -> SummaryProposals:
    """The skills that an answer proposes; each is well-formed, or refused with the reason.

    Args:
        trace: the policy conversation that was summarised.
        provenance: the skills' origin: task, step, scheme, rollout, summary.
    """
    try:
        drafts = dialect.read_summary(subject, answer, trace, settings)
    except MalformedAnswer as error:
        return SummaryProposals(malformed=str(error))
    skills: dict[str, Skill] = {}
    refused = []
    for draft in drafts:
        label = str(draft.get("name"))[:60]
        if len(skills) == settings.num_new_skills:
            refused.append(f"{label}: more than {settings.num_new_skills}")
            continue
        try:
            skill = _skill(draft, provenance)
        except MalformedAnswer as error:
            refused.append(f"{label}: {error}")
            continue
        if skill.name in skills:
            refused.append(f"{label}: named twice")
        skills.setdefault(skill.name, skill)
    if drafts and not skills:
        return SummaryProposals(refused=tuple(refused), malformed=f"no usable skill: {refused[0]}")
    return SummaryProposals(tuple(skills.values()), tuple(refused))


def _skill(draft: Mapping[str, Any], provenance: Mapping[str, Any]) -> Skill:
    """A library entry from a draft.

    Raises:
        MalformedAnswer: something is missing, empty, too long or of the wrong kind.
    """
    name, description, body = (_text(draft, key) for key in ("name", "description", "body"))
    snake = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    if not snake:
        raise MalformedAnswer("a name without letters")
    if len(description) > MAX_DESCRIPTION:
        raise MalformedAnswer(f"a description of {len(description)} characters")
    if len(body) > 2 * NEW_SKILL_TOKENS * CHARS_PER_TOKEN:
        raise MalformedAnswer(
            f"a body of {len(body)} characters, more than twice what was asked for"
        )
    parts = notes.sections(body)
    if missing := [heading for heading in REQUIRED if heading not in parts]:
        raise MalformedAnswer(f"no section `## {missing[0]}`")
    tags = draft.get("tags") or []
    tags = tags.split(",") if isinstance(tags, str) else tags
    if not isinstance(tags, (list, tuple)) or not all(isinstance(tag, str) for tag in tags):
        raise MalformedAnswer("tags are not a list of words")
    plain = tuple(
        dict.fromkeys(
            word for tag in tags if (word := " ".join(re.sub(r"[\[\],]", " ", tag).split()))
        )
    )
    try:
        return Skill(
            name=snake,
            description=description,
            scope=_scope(draft),
            tags=plain,
            body=body,
            when=_optional(draft, "when"),
            do=_optional(draft, "do"),
            provenance=dict(provenance),
        )
    except ValidationError as error:
        first = error.errors()[0]
        why = first["msg"].removeprefix("Value error, ")
        raise MalformedAnswer(f"bad {first['loc'][0]}: {why}") from None


def _text(draft: Mapping[str, Any], key: str) -> str:
    value = draft.get(key)
    if not isinstance(value, str) or not value.strip():
        raise MalformedAnswer(f"no {'content' if key == 'body' else key}")
    return value.strip() if key == "body" else " ".join(value.split())


def _optional(draft: Mapping[str, Any], key: str) -> str | None:
    value = draft.get(key)
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _scope(draft: Mapping[str, Any]) -> str:
    value = draft.get("scope")
    scope = " ".join(value.split()) if isinstance(value, str) else ""
    return scope if re.fullmatch(r"general|task_specific/[\w-]+", scope) else "general"
