"""Prompts of search strategies for general language models, in addition to the three agents' conversations: see `briefs`.

`revise` asks for another version given earlier ones, `advise` has a reviewer name one change, `digest` keeps a
running summary. Operations follow EvoEngineer (arXiv 2510.03760: mutation, crossover), CUDA-L1 (2507.14111: comparison before
code), CudaForge (2511.01884: one change at a time, repair before speed) and POLCA (2603.14769: the summary).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from dvk.agents import feedback, notes, reading, task_context, tools
from dvk.agents.bounds import Bounds, profile_words, words
from dvk.agents.briefs import Brief, Operation, ReviewAdvice
from dvk.agents.dialects.examples import TITLES
from dvk.agents.feedback import FEEDBACK_TOKENS
from dvk.agents.task_context import (
    CHARS_PER_TOKEN,
    SEPARATOR,
    SUMMARY_TOKENS,
    TASK_TOKENS,
    TaskContext,
)
from dvk.backbone import Completion, Conversation
from dvk.config import AgentsConfig
from dvk.records import Status, Turn, show_ratio

NOTHING_READ = "Nothing could be read from your answer: {why}."
MAX_CHANGE = 1200
"""Characters of an advised change: a paragraph with a line or two of code. Longer ones are cut."""

_VERSIONS = """\
Versions that exist, each with what a judge found when it checked and timed it:

{versions}
{lessons}
{wish}"""

_LESSONS = """
What has been learnt about this task so far:

{lessons}
"""

_IDEA = "one line `Idea: …` that says in one sentence what you do differently and why it takes less time"

_WISHES: dict[Operation, str] = {
    "improve": "{which} Begin your answer with " + _IDEA + ", then give the whole file.",
    "combine": "Write one version that is faster than all of these: decide what in each of them saves time, and bring that together. "
    "Begin your answer with " + _IDEA + ", then give the whole file.",
    "contrast": "First compare these versions in words: what each does differently, which of that explains the difference in speed, "
    "and what none of them has tried. Then write "
    + _IDEA
    + ". Only then give the whole file of a version that is faster than all.",
    "change": "Make exactly this change to the version above, and no other; whatever it does not touch stays as it is:\n\n{change}\n\n"
    "Answer with the whole changed file.",
}

_REPAIR = """\
You review {backend} kernels. You see a PyTorch task, a version of it that is not right, and what a judge found. Say nothing \
about speed: a version that is wrong has none.

Find the one fault that explains what was found, and name exactly one change, the smallest that removes it. Its author \
sees the same file and your words, and does nothing else: name the function, the line, the expression.

Answer with one call of `advise`, in English."""

_SPEED_UP = """\
You review {backend} kernels. You see a PyTorch task, a correct version of it, and what a judge measured.

Find what takes most of its time by the figures given (memory traffic, arithmetic, launches, occupancy, spills, work left to \
PyTorch), and name exactly one change that lowers it most. It must leave the results as they are. The author of the change \
sees the same file and your words, and does nothing else: be concrete, say where and how, with sizes.

Answer with one call of `advise`, in English."""

_DIGEST = """\
You keep the notebook of a search for a faster version of this PyTorch module, written with {backend} kernels:

{task}

The notebook so far:

{before}

New attempts, each with what a judge found:

{versions}

Rewrite the notebook in at most {words} words for those who write the next versions: which ideas paid and by how much, which \
cost or broke something and why, what has not been tried. Keep what stays true, drop what was refuted. Sentences or short \
lists, no code; answer with the notebook and nothing else."""

_IDEA_LINE = re.compile(r"^[ \t>#*_-]*idea\b[*_]*\s*:[ \t*_]*(\S.*)$", re.I | re.M)
_LISTED = re.compile(r"^[ \t]*(?:\d+[.)]|[-*•])[ \t]+\S", re.M)
_FENCED = re.compile(r"^(```|~~~).*?(?:^\1\s*$|\Z)", re.M | re.S)


# ---------------------------------------------------------------- writing


def revise(
    opening: Conversation, brief: Brief, settings: AgentsConfig, bounds: Bounds | None = None
) -> Conversation:
    """The question for one more version: the policy's opening, then the versions and the wish, in one message.

    Args:
        opening: the policy's first question.
        brief: the operation and its versions.
        settings: versions are cut, the longest first, if all exceed `prompt_tokens`.
        bounds: what bounds the task's time.
    """
    *before, last = opening.messages
    lessons = _LESSONS.format(lessons=brief.lessons.strip()) if brief.lessons.strip() else ""
    wish = _WISHES[brief.operation].format(which=_which(brief.shown), change=brief.change)
    left = (
        settings.prompt_tokens
        - (len(str(last["content"])) + len(lessons) + len(wish)) // CHARS_PER_TOKEN
    )
    told = [
        attempt(_heading(number, turn), turn, bounds) for number, turn in enumerate(brief.shown, 1)
    ]
    versions = SEPARATOR.join(task_context.fit(told, max(left, FEEDBACK_TOKENS)))
    text = f"{last['content']}\n\n{_VERSIONS.format(versions=versions, lessons=lessons, wish=wish)}"
    return opening.model_copy(update={"messages": (*before, {**last, "content": text})})


def idea(text: str) -> str:
    """The idea that an answer begins with, on one line; empty if it states none."""
    match = _IDEA_LINE.search(_FENCED.sub("", reading.visible(text)))
    return notes.line(match[1].rstrip("*_ ")) if match else ""


def attempt(heading: str, turn: Turn, bounds: Bounds | None = None) -> str:
    """One version with its verdict, under a heading."""
    if turn.verdict is not None:
        found = feedback.describe(turn.verdict, FEEDBACK_TOKENS, bounds=bounds)
    else:
        found = NOTHING_READ.format(why=turn.malformed or "it is empty")
    source = (
        f"```python\n{turn.candidate.source.strip()}\n```"
        if turn.candidate is not None
        else task_context.cut(turn.completion.strip(), 500)
    )
    return f"{heading}\n\n{source}\n\nThe judge: {found}"


def _heading(number: int, turn: Turn) -> str:
    verdict = turn.verdict
    if verdict is None or verdict.status is not Status.OK:
        return f"### Version {number}: not right"
    if verdict.timing is None:
        return f"### Version {number}: right, not timed"
    return f"### Version {number}: {show_ratio(verdict.timing.speedup.value)} the speed of PyTorch"


def _which(shown: Sequence[Turn]) -> str:
    """Request for the last version."""
    if not shown:
        return ""
    verdict = shown[-1].verdict
    right = verdict is not None and verdict.status is Status.OK
    others = " What the others show may help." if len(shown) > 1 else ""
    wanted = (
        "Make version {} faster."
        if right
        else "Version {} is not right: find the cause and repair it."
    )
    return wanted.format(len(shown)) + others


# ---------------------------------------------------------------- reviewing


def advise(
    subject: TaskContext, turn: Turn, tried: Sequence[str], settings: AgentsConfig
) -> Conversation:
    """Ask a reviewer for exactly one change: a repair while the version is wrong, else a speedup.

    Args:
        turn: the version, judged.
        tried: changes made to this version before, each with its outcome.
    """
    right = turn.verdict is not None and turn.verdict.status is Status.OK
    system = (_SPEED_UP if right else _REPAIR).format(backend=TITLES[subject.backend])
    fixed = f"## Task\n\n{task_context.task(subject, TASK_TOKENS)}\n\n"
    left = settings.prompt_tokens - len(fixed) // CHARS_PER_TOKEN
    version = task_context.cut(
        attempt("## The version", turn, subject.bounds), max(left, FEEDBACK_TOKENS)
    )
    if right and subject.bounds is not None:
        known = (words(subject.bounds), profile_words(subject.bounds))
        version += "\n\n## What bounds the task\n\n" + "\n".join(text for text in known if text)
    elif right and (moved := task_context.traffic(subject)):
        version += f"\n\nInputs, weights and results, once each, are {moved / 1e6:.3g} MB"
        timing = turn.verdict.timing if turn.verdict is not None else None
        version += (
            f": it moves them at {moved / timing.candidate_ms / 1e6:.3g} GB/s."
            if timing is not None
            else "."
        )
    refuted = (
        "\n\n## Changes of it that were tried\n\n" + "\n".join(f"- {line}" for line in tried)
        if tried
        else ""
    )
    wish = "\n\nCall `advise` with one change" + (", none of those tried." if tried else ".")
    messages = (
        {"role": "system", "content": system},
        {"role": "user", "content": fixed + version + refuted + wish},
    )
    return Conversation(messages=messages, tools=(tools.advise(),))


def read_advice(answer: Completion) -> ReviewAdvice:
    """The change in a reviewer's answer.

    Raises:
        MalformedAnswer: none, or several.
    """
    found = reading.arguments(answer.text, answer.tool_calls, tools.advise())
    changes = _several(str(found.get("change", "")).strip())
    if len(changes) != 1:
        raise reading.MalformedAnswer(
            f"it names {len(changes)} changes instead of one" if changes else "it names no change"
        )
    change = changes[0] if len(changes[0]) <= MAX_CHANGE else f"{changes[0][: MAX_CHANGE - 1]}…"
    return ReviewAdvice(problem=" ".join(str(found.get("problem", "")).split()), change=change)


def _several(text: str) -> list[str]:
    """The changes in a text: the items of a JSON list, or of a list that makes up the whole text."""
    if text.startswith("["):
        try:
            return [str(item).strip() for item in json.loads(text) if str(item).strip()]
        except (ValueError, TypeError, RecursionError):
            pass
    prose = _FENCED.sub("", text)
    starts = [match.start() for match in _LISTED.finditer(prose)]
    if len(starts) > 1 and not prose[: starts[0]].strip():
        return [prose[a:b].strip() for a, b in zip(starts, [*starts[1:], len(prose)])]
    return [text] if text else []


# ---------------------------------------------------------------- remembering


def digest(
    subject: TaskContext, before: str, turns: Sequence[Turn], num_tokens: int
) -> Conversation:
    """Ask for an update of the running summary `before` with the outcomes of `turns`."""
    told = [
        attempt(_heading(number, turn), turn, subject.bounds)
        for number, turn in enumerate(turns, 1)
    ]
    asked = _DIGEST.format(
        backend=TITLES[subject.backend],
        task=task_context.task(subject, TASK_TOKENS),
        before=before or "(empty)",
        versions=SEPARATOR.join(task_context.fit(told, SUMMARY_TOKENS)),
        words=num_tokens * CHARS_PER_TOKEN // 6,
    )
    return Conversation(messages=({"role": "user", "content": asked},))


def read_digest(answer: Completion, num_tokens: int) -> str:
    """The new summary, at most that long; code in it is dropped.

    Raises:
        MalformedAnswer: nothing is left.
    """
    text = _FENCED.sub("", reading.visible(answer.text)).strip()
    if not text:
        raise reading.MalformedAnswer("an empty summary")
    return task_context.cut(text, num_tokens)
