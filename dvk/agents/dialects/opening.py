"""The first question to a general model, in sections that are cut by priority where they exceed the budget.

What is the same for all tasks comes first (the rules, worked examples), so that servers find it in their prefix caches; then the task:
its source, the captured operators, what bounds its time, the profile of PyTorch, skills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dvk.agents import bounds, task_context
from dvk.agents.dialects.examples import RULES, TITLES, WorkedExample, worked
from dvk.agents.task_context import (
    CHARS_PER_TOKEN,
    GRAPH_TOKENS,
    SKILLS_TOKENS,
    TASK_TOKENS,
    TaskContext,
    cut,
)
from dvk.records import Skill

LEAST_SOURCE = 400
"""Tokens of the task's source that stay, whatever the budget is."""

_INTRO = """\
You write {backend} kernels that make PyTorch code faster. You are given a reference; you write a version that computes the same and \
takes less time.

Your answer holds, after any reasoning, one fenced block ```python with the whole file. Rules:

- The file defines `ModelNew`, which takes the constructor arguments of the reference, has parameters and buffers of the same names and \
shapes, and has a `forward` with the same arguments and results: values, dtypes, shapes, strides.
- {rules}
- Sums are accumulated in float32 or wider. Lowered precision is found out.
- It is checked on fresh inputs and weights of several kinds and shapes, and timed against the reference. Sizes need not be multiples of \
a block; weights are loaded after construction, so read them in `forward`.
- Results kept from earlier calls, work left undone and calls of the reference's own computation are found out."""

_EXAMPLE = """\
Example: {shows}. The reference:

```python
{reference}```

A correct answer:

```python
{candidate}```"""

_SKILLS = """\
From the skill library. These techniques may fit; use what applies to this task and leave the rest:

{bodies}"""


@dataclass(frozen=True)
class Section:
    """A part of the question.

    Attributes:
        text: its text.
        rank: those of the highest rank are cut first; 0 is never cut.
        least: tokens to which it may be cut; 0: it is left out instead.
    """

    text: str
    rank: int = 0
    least: int = 0


def question(subject: TaskContext, skills: Sequence[Skill], num_tokens: int) -> str:
    """The question for a first candidate in about `num_tokens` tokens at most."""
    title = TITLES[subject.backend]
    known = subject.bounds
    short, *longer = [_example(one) for one in worked(subject.backend)]
    listing = task_context.operators(subject, GRAPH_TOKENS)
    bodies = task_context.skill_texts(skills, SKILLS_TOKENS) if skills else ""
    sections = [
        Section(_INTRO.format(backend=title, rules=RULES[subject.backend])),
        Section(short, rank=4),
        *(Section(text, rank=6) for text in longer),
        Section(
            "The task:\n\n" + task_context.task(subject, TASK_TOKENS), rank=1, least=LEAST_SOURCE
        ),
        Section(f"Its operators, as captured:\n\n{listing}" if listing else "", rank=5),
        Section(bounds.words(known) if known is not None else ""),
        Section(bounds.profile_words(known) if known is not None else "", rank=2),
        Section(_SKILLS.format(bodies=bodies) if bodies else "", rank=3, least=LEAST_SOURCE),
        Section(
            f"Write the fastest correct `ModelNew` for `{subject.task.entry}` with {title} kernels."
        ),
    ]
    return "\n\n".join(s.text for s in fitted(sections, num_tokens) if s.text)


def fitted(sections: Sequence[Section], num_tokens: int) -> list[Section]:
    """The sections, those of the highest rank cut or left out until all together fit."""
    result = list(sections)
    for rank in sorted({section.rank for section in sections if section.rank}, reverse=True):
        for at, section in enumerate(result):
            over = sum(len(one.text) + 2 for one in result) - num_tokens * CHARS_PER_TOKEN
            if section.rank != rank or not section.text or over <= 0:
                continue
            kept = max(section.least, (len(section.text) - over) // CHARS_PER_TOKEN - _MARK)
            result[at] = replace(section, text=cut(section.text, kept) if section.least else "")
    return result


_MARK = 15
"""Tokens of the text that marks a cut."""


def _example(one: WorkedExample) -> str:
    return _EXAMPLE.format(
        shows=one.shows,
        reference=one.reference.partition("\n\n\ndef get_inputs")[0] + "\n",
        candidate=one.candidate,
    )
