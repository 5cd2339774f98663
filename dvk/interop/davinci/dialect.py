"""The prompt format of daVinci-kernel's training, reworded.

As `Chat`, except for the task in KernelBench's form, skills as its block of front matter before the last sentence, feedback as its server's
JSON, and a summary's material: first and best version with their speedups, no feedback. Its tool calls are parsed by `reading`, its
schemas are those of `tools`. Its other material (the reward, rows of a profile without end) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dvk.agents import task_context, tools
from dvk.agents.bounds import Bounds
from dvk.agents.dialects import chat
from dvk.agents.dialects.examples import RULES, TITLES, worked
from dvk.agents.feedback import FEEDBACK_TOKENS, complaint
from dvk.agents.task_context import (
    CHARS_PER_TOKEN,
    NEW_SKILL_TOKENS,
    SKILLS_TOKENS,
    SUMMARY_TOKENS,
    TASK_TOKENS,
    TaskContext,
)
from dvk.agents.turns import speedup
from dvk.backbone import Conversation
from dvk.config import AgentsConfig
from dvk.interop.kernelgym.answers import result_of
from dvk.records import Skill, Status, Timing, Trace, Turn, Verdict

BLOCK = "[Skill Library]"
"""Heading of its block of skills, by which importers of its data recognise it."""
JOINT = "\n\n"
"""Between skills, as in its training."""

_TASK = """\
You write custom {backend} kernels to replace the pytorch operators in the given architecture to get speedups. You may replace several \
operators by one kernel, change the algorithm, and leave other operators as they are. {rules}

Here is an example. The given architecture applies `relu(x + bias)`; the new architecture with custom {backend} kernels is:

```python
{example}```

You are given the following architecture:

```python
{source}
```

"""
_WISH = """\
Optimize the architecture named {entry} with custom {backend} kernels! Name your optimized output architecture ModelNew. Analyse first, \
then output the new code in one python codeblock: real code that compiles and works, no testing code."""
_SKILLS = """\
{block} Potentially Relevant Optimization Techniques

These are optional references: use what applies to this task, and leave the rest.

{bodies}

Correctness comes first; do not use a technique whose conditions are not met.

"""
_FEEDBACK = """\
Now you have received the server feedback for your last implementation:

{found}

Based on it, think step by step and write an improved implementation. Name it ModelNew and output it in one python codeblock."""


class DaVinciDialect(chat.ChatDialect):
    """See the module."""

    def selection(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        system = chat.SELECT.format(backend=TITLES[subject.backend], most=settings.num_chosen)
        asked = (
            f"## Task\n\n{task(subject)}{wish(subject)}\n\n## Candidate Skills\n\n{task_context.headers(skills)}\n\n"
            f"Call `select_skills` with at most {settings.num_chosen} of these names."
        )
        return chat.conversation(system, asked, tools.select_skills(settings.num_chosen))

    def policy(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        given = _SKILLS.format(block=BLOCK, bodies=bodies(skills, SKILLS_TOKENS)) if skills else ""
        return chat.conversation(None, f"{task(subject)}{given}{wish(subject)}")

    def feedback(
        self,
        verdict: Verdict | None,
        malformed: str | None,
        best: Timing | None,
        settings: AgentsConfig,
        bounds: Bounds | None = None,
    ) -> str:
        if verdict is None:
            found = {
                "status": "failed",
                "compiled": False,
                "correctness": False,
                "error_message": malformed or "no code was found",
            }
        else:
            found = answered(verdict, FEEDBACK_TOKENS)
        return _FEEDBACK.format(found=json.dumps(found, indent=2, ensure_ascii=False))

    def summary(
        self, subject: TaskContext, trace: Trace, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        system = chat.SUMMARISE.format(
            backend=TITLES[subject.backend], most=settings.num_new_skills, length=NEW_SKILL_TOKENS
        )
        given = bodies(skills, SUMMARY_TOKENS // 4) if skills else "None were given."
        speeds = [speedup(turn) for turn in trace.turns]
        first, best = trace.turns[0], trace.turns[speeds.index(max(speeds))]
        fixed = f"## Task\n\n{task(subject)}\n\n## Skills Given\n\n{given}"
        left = SUMMARY_TOKENS - len(fixed) // CHARS_PER_TOKEN
        codes = task_context.fit([_code(first), _code(best)], max(left, SUMMARY_TOKENS // 4))
        asked = (
            f"{fixed}\n\n## Turn 1\n\nSpeedup: {speeds[0]:.2f}x\n\n{codes[0]}\n\n## Best Turn\n\nSpeedup: {max(speeds):.2f}x\n\n"
            f"{codes[1]}\n\nCall `update_skill_library` with at most {settings.num_new_skills} new skills."
        )
        return chat.conversation(system, asked, tools.update_skill_library(settings.num_new_skills))


def task(subject: TaskContext) -> str:
    """The task in KernelBench's form, up to the last sentence."""
    source = task_context.cut(subject.task.source.strip(), TASK_TOKENS)
    return _TASK.format(
        backend=TITLES[subject.backend],
        rules=RULES[subject.backend],
        example=worked(subject.backend)[0].candidate,
        source=source,
    )


def wish(subject: TaskContext) -> str:
    """The last sentence, after the skills."""
    return _WISH.format(entry=subject.task.entry, backend=TITLES[subject.backend])


def bodies(skills: Sequence[Skill], num_tokens: int) -> str:
    """Skills in full, in the form of the library file's own block."""
    return JOINT.join(
        task_context.fit([task_context.full_text(skill) for skill in skills], num_tokens)
    )


def answered(verdict: Verdict, num_tokens: int) -> dict[str, object]:
    """A verdict in its server's format, within a budget."""
    fields = (
        "status",
        "compiled",
        "correctness",
        "decoy_kernel",
        "reference_runtime",
        "kernel_runtime",
        "speedup",
        "error_code",
    )
    found: dict[str, object] = result_of("", verdict).model_dump(include=set(fields))
    ordered = {name: found[name] for name in fields}
    wrong = (
        None if verdict.status is Status.OK else task_context.cut(complaint(verdict), num_tokens)
    )
    return {**ordered, "error_message": wrong}


def _code(turn: Turn) -> str:
    return (
        f"```python\n{turn.candidate.source.strip()}\n```"
        if turn.candidate is not None
        else turn.completion.strip()
    )
