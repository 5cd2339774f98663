"""The dialect of general language models: the reference as source, a whole file in one fenced block, tool calls for the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dvk.agents import feedback, reading, task_context, tools
from dvk.agents.bounds import Bounds
from dvk.agents.briefs import Brief, ReviewAdvice
from dvk.agents.dialects import opening, searching
from dvk.agents.dialects.examples import TITLES
from dvk.agents.evidence.offered import shown
from dvk.agents.feedback import FEEDBACK_TOKENS
from dvk.agents.task_context import (
    NEW_SKILL_TOKENS,
    SEPARATOR,
    SUMMARY_TOKENS,
    TASK_TOKENS,
    TaskContext,
)
from dvk.agents.turns import speedup
from dvk.backbone import Completion, Conversation
from dvk.config import AgentsConfig
from dvk.records import Candidate, Role, Skill, Timing, Trace, Turn, Verdict

SELECT = """\
You choose techniques for an expert who writes fast {backend} kernels. You see a PyTorch task and a numbered list of skills \
from a library, by name, scope, tags and description only.

First think, in `think`: what bounds the task's time (memory traffic, arithmetic, launches), and what would lower it. Then \
choose at most {most} skills that apply to this very task, matter for its time, and go well together. A skill whose \
condition the task's sizes do not meet costs more than it brings. Skills that avoid writing a kernel, or that merely \
sound impressive, are wrong. Several such choices are made independently: a good choice need not be the obvious one.

Answer with one call of `select_skills`, in English."""

SUMMARISE = """\
You keep a library of skills about writing fast {backend} kernels. You see one attempt at a task from beginning to end: the \
reference, the skills that were given, every version with what a judge measured of it.

Find out what made the fastest version faster than the first, and write at most {most} skills that would help with *other* \
tasks. A good skill is general, can be acted upon, and is not obvious; it says when it pays and when it does not, and names \
pitfalls (numerics, races, odd sizes, cliffs in speed). Its content is Markdown of at most {length} tokens with the sections \
## Motivation, ## Key Idea, ## When it pays, ## Example, ## Pitfalls.

Not worth keeping: remarks about this task's sizes, advice to leave the work to a library or a compiler, to skip work, or to \
lower precision, and whatever the given skills say already. No skill is better than a useless one.

Answer with one call of `update_skill_library`, in English."""

_AGAIN = """\
The judge's findings on your last version:

{found}

{wish} Answer with the whole improved file, again in one fenced block ```python that defines `ModelNew`."""


class ChatDialect:
    """See the module."""

    reads_graph = False
    longest: Mapping[Role, int] = {"selection": 4096, "policy": 32768, "summary": 8192}

    # ------------------------------------------------------------ selection

    def selection(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        system = SELECT.format(backend=TITLES[subject.backend], most=settings.num_chosen)
        listed = task_context.headers(skills, [shown(subject, skill) for skill in skills])
        asked = (
            f"## Task\n\n{task_context.task(subject, TASK_TOKENS)}\n\n## Skills\n\n{listed}\n\n"
            f"Call `select_skills` with at most {settings.num_chosen} of these names."
        )
        return conversation(system, asked, tools.select_skills(settings.num_chosen))

    def read_selection(
        self, answer: Completion, names: Sequence[str], settings: AgentsConfig
    ) -> list[str]:
        tool = tools.select_skills(settings.num_chosen)
        chosen = reading.arguments(answer.text, answer.tool_calls, tool)["selected_skills"]
        found = [item.get("name") if isinstance(item, Mapping) else item for item in chosen]
        if not all(isinstance(name, str) for name in found):
            raise reading.MalformedAnswer("a selected skill without a name")
        return [str(name).strip() for name in found]

    def write_selection(self, names: Sequence[str], reasons: Mapping[str, str], think: str) -> str:
        return _call(
            tools.SELECT,
            think=think,
            selected_skills=[{"name": name, "reason": why} for name, why in reasons.items()],
        )

    # ------------------------------------------------------------ policy

    def policy(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        most = settings.prompt_tokens * 2 // 3  # the rest is for earlier attempts
        return conversation(None, opening.question(subject, skills, most))

    def read_policy(self, subject: TaskContext, answer: Completion) -> Candidate:
        return Candidate(
            source=reading.code(answer.text, answer.finish != "length"), backend=subject.backend
        )

    def write_policy(self, text: str) -> str:
        return f"```python\n{text.strip()}\n```"

    def feedback(
        self,
        verdict: Verdict | None,
        malformed: str | None,
        best: Timing | None,
        settings: AgentsConfig,
        bounds: Bounds | None = None,
    ) -> str:
        if verdict is None:
            found = searching.NOTHING_READ.format(why=malformed or "it is empty")
            return _AGAIN.format(
                found=task_context.cut(found, FEEDBACK_TOKENS), wish="Give the code."
            )
        wish = (
            "Make it faster." if verdict.status.value == "ok" else "Find the cause and repair it."
        )
        return _AGAIN.format(
            found=feedback.describe(verdict, FEEDBACK_TOKENS, best, bounds), wish=wish
        )

    # ------------------------------------------------------------ summary

    def summary(
        self, subject: TaskContext, trace: Trace, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        system = SUMMARISE.format(
            backend=TITLES[subject.backend], most=settings.num_new_skills, length=NEW_SKILL_TOKENS
        )
        given = task_context.skill_texts(skills, SUMMARY_TOKENS // 4) if skills else "None."
        fixed = (
            f"## Task\n\n{task_context.task(subject, TASK_TOKENS)}\n\n## Skills given\n\n{given}"
        )
        left = SUMMARY_TOKENS - len(fixed) // task_context.CHARS_PER_TOKEN
        told = [
            searching.attempt(f"### Version {number}", turn, subject.bounds)
            for number, turn in enumerate(trace.turns, 1)
        ]
        played = SEPARATOR.join(task_context.fit(told, max(left, SUMMARY_TOKENS // 4)))
        speeds = [speedup(turn) for turn in trace.turns]
        fastest = (
            f"The fastest is version {1 + speeds.index(max(speeds))}."
            if any(speeds)
            else "None was right."
        )
        wish = f"{fastest} Call `update_skill_library` with at most {settings.num_new_skills} new skills."
        asked = f"{fixed}\n\n## What was tried\n\n{played}\n\n{wish}"
        return conversation(system, asked, tools.update_skill_library(settings.num_new_skills))

    def read_summary(
        self, subject: TaskContext, answer: Completion, trace: Trace, settings: AgentsConfig
    ) -> list[dict[str, Any]]:
        tool = tools.update_skill_library(settings.num_new_skills)
        proposed = reading.arguments(answer.text, answer.tool_calls, tool)["new_skills"]
        if not all(isinstance(item, Mapping) for item in proposed):
            raise reading.MalformedAnswer("a new skill that is not an object")
        kept = ("name", "description", "scope", "tags", "when", "do")
        return [
            {**{key: item[key] for key in kept if key in item}, "body": item.get("content")}
            for item in proposed
        ]

    def write_summary(self, skills: Sequence[Skill], think: str) -> str:
        items = [
            {
                "name": s.name,
                "description": s.description,
                "scope": s.scope,
                "tags": list(s.tags),
                "content": s.body,
                **({"when": s.when, "do": s.do} if s.do is not None else {}),
            }
            for s in skills
        ]
        return _call(tools.UPDATE, think=think, new_skills=items)

    # ------------------------------------------------------------ searching

    def revise(
        self, subject: TaskContext, skills: Sequence[Skill], brief: Brief, settings: AgentsConfig
    ) -> Conversation:
        return searching.revise(
            self.policy(subject, skills, settings), brief, settings, subject.bounds
        )

    def advise(
        self, subject: TaskContext, turn: Turn, tried: Sequence[str], settings: AgentsConfig
    ) -> Conversation:
        return searching.advise(subject, turn, tried, settings)

    def read_advice(self, answer: Completion) -> ReviewAdvice:
        return searching.read_advice(answer)

    def digest(
        self,
        subject: TaskContext,
        before: str,
        turns: Sequence[Turn],
        num_tokens: int,
        settings: AgentsConfig,
    ) -> Conversation:
        return searching.digest(subject, before, turns, num_tokens)

    def read_digest(self, answer: Completion, num_tokens: int) -> str:
        return searching.read_digest(answer, num_tokens)

    def idea(self, answer: Completion) -> str:
        return searching.idea(answer.text)


def _call(tool: str, **arguments: Any) -> str:
    """A tool call in Qwen's XML form, values that are not text as JSON."""
    values = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in arguments.items()
    }
    parameters = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items()
    )
    return f"<tool_call>\n<function={tool}>\n{parameters}</function>\n</tool_call>"


def conversation(system: str | None, user: str, *schemas: Mapping[str, Any]) -> Conversation:
    """A question with the tools that it is answered by."""
    messages = [{"role": "system", "content": system}] if system else []
    return Conversation(
        messages=(*messages, {"role": "user", "content": user}),
        tools=tuple(dict(schema) for schema in schemas),
    )
