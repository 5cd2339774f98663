"""The policy agent: task and skills → candidate, then better ones from the judge's feedback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dvk import crashes
from dvk.agents.briefs import Brief
from dvk.agents.dialects import Dialect, ProseDialect
from dvk.agents.feedback import FEEDBACK_TOKENS
from dvk.agents.reading import MalformedAnswer, visible
from dvk.agents.task_context import CHARS_PER_TOKEN, TaskContext, cut
from dvk.agents.turns import best_timing, turns_in_budget
from dvk.backbone import Completion, Conversation
from dvk.config import AgentsConfig
from dvk.records import Candidate, Skill, Turn


def build_prompt(
    dialect: Dialect,
    subject: TaskContext,
    skills: Sequence[Skill],
    turns: Sequence[Turn],
    settings: AgentsConfig,
) -> Conversation:
    """The prompt for the turn after `turns`: the task, then attempts with their verdicts, the feedback on the last at the end.

    Of many attempts the last, the best and the latest others are shown, in their order: `settings.kept_attempts`, fewer if
    they would exceed `settings.prompt_tokens`. An only attempt that is too long by itself is cut. Thinking is not shown again. An
    answer from a list is one that was not tried.
    """
    opening = dialect.policy(subject, skills, settings)
    left = settings.prompt_tokens * CHARS_PER_TOKEN - sum(
        len(str(message["content"])) for message in opening.messages
    )
    for most in range(settings.kept_attempts, 0, -1):
        shown = [
            _shown(dialect, subject, turns, position, settings)
            for position in turns_in_budget(turns, most)
        ]
        if sum(len(answer) + len(found) for answer, found in shown) <= left or most == 1:
            break
    messages: list[dict[str, Any]] = list(opening.messages)
    for answer, found in shown:
        answer = (
            cut(answer, max(left - len(found), FEEDBACK_TOKENS) // CHARS_PER_TOKEN)
            if len(shown) == 1
            else answer
        )
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": found}]
    tried = {turn.completion for turn in turns}
    untried = tuple(text for text in opening.choices if text not in tried) or opening.choices
    return opening.model_copy(update={"messages": tuple(messages), "choices": untried})


def revise(
    dialect: Dialect,
    subject: TaskContext,
    skills: Sequence[Skill],
    brief: Brief,
    settings: AgentsConfig,
) -> Conversation:
    """The prompt for a version given others; a dialect without prose shows them as attempts of one conversation."""
    if isinstance(dialect, ProseDialect):
        return dialect.revise(subject, skills, brief, settings)
    return build_prompt(dialect, subject, skills, brief.shown, settings)


def _shown(
    dialect: Dialect,
    subject: TaskContext,
    turns: Sequence[Turn],
    position: int,
    settings: AgentsConfig,
) -> tuple[str, str]:
    """An attempt and its verdict, as shown in the next prompt."""
    turn = turns[position]
    best = best_timing(turns[:position])
    found = dialect.feedback(turn.verdict, turn.malformed, best, settings, subject.bounds)
    return visible(turn.completion).strip() or "(no answer)", found


class Reply(Completion):
    """A parsed answer to the task of this id."""

    task: str
    found: Candidate | str
    shown: int | None = None
    """See `reading.MalformedAnswer`."""


def has_no_candidate(answer: Completion) -> bool:
    """A reply holds no candidate."""
    return isinstance(answer, Reply) and isinstance(answer.found, str)


def parse_reply(dialect: Dialect, subject: TaskContext, answer: Completion) -> Completion:
    """The parsed answer; unchanged if the backbone failed."""
    return answer if answer.finish == "error" else _read(dialect, subject, answer)


def read(
    dialect: Dialect,
    subject: TaskContext,
    answer: Completion,
    proposer: str,
    skills: Sequence[Skill],
    title: str,
) -> Candidate | str:
    """The candidate in an answer, or the parse error."""
    result = _read(dialect, subject, answer).found
    if isinstance(result, str):
        return result
    return result.model_copy(
        update={
            "proposer": proposer,
            "skills": tuple(s.name for s in skills),
            "title": title or result.title,
        }
    )


def _read(dialect: Dialect, subject: TaskContext, answer: Completion) -> Reply:
    if (
        isinstance(answer, Reply) and answer.task == subject.task.id
    ):  # another task may have the same prompt
        return answer
    said = {name: getattr(answer, name) for name in Completion.model_fields}
    try:
        return Reply(**said, task=subject.task.id, found=dialect.read_policy(subject, answer))
    except MalformedAnswer as error:
        return Reply(**said, task=subject.task.id, found=str(error), shown=error.shown)
    except Exception as error:  # noqa: BLE001 - whatever a model wrote costs that answer and no more
        return Reply(
            **said, task=subject.task.id, found=crashes.crashed(error, "reading it").message
        )
