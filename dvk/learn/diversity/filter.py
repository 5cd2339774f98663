"""Quality test of one example, independent of the others: the first reason against it.

Tests are cheap and go in a natural order: was it executed, is it fast, has it a sensible size, is it
real work, do its names exist. `slower_than_best` alone compares rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from dvk.learn.diversity.rows import ExampleRow
from dvk.learn.examples import Example

NEAR_BEST = 0.8
"""Plain policy answers below this share of the task's best known speedup are left out, since they teach the wrong choice; differences
within a fifth have other causes."""
MIN_CHARS = 16
"""Shortest answer in characters: nothing shorter is a kernel or a tool call."""
MAX_CHARS = 120_000
"""Longest example in characters: about the reference's 32,768 tokens."""

PLAYS = ("policy", "policy_with_skills")

MIN_SPEEDUP = {"policy": 0.8, "policy_with_skills": 0.0, "selection": 1.0, "summary": 1.2}
"""Least speedup worth learning from, by kind of example. Where nothing wins, launch overhead makes an honest kernel about 0.9×. A given
skill that does not pay is worth showing; a choice of skills that made a task slower is not. daVinci summarises episodes from 1.2×."""

_PLACEHOLDER = re.compile(
    r"(?:#|//)\s*(?:\.\.\.|…|(?:your|the) (?:code|kernel|implementation)(?: goes)? here|implementation (?:omitted|here)|"
    r"(?:rest|remainder) of (?:the )?(?:code|kernel|file|class)|same as (?:before|above)|(?:code )?unchanged\b|omitted for brevity)"
    r"|\braise NotImplementedError",
    re.I,
)
"""Phrases of placeholder code."""
_HINTS = (
    "...",
    "…",
    " here",
    "omitted",
    "rest of",
    "remainder of",
    "same as",
    "unchanged",
    "notimplemented",
)
"""All of those contain one of these; searching for them first takes a tenth of the time."""
_KERNELS = {"triton": "@triton.jit", "cuda": "__global__", "cpp": "#include"}
"""Text that every whole file in this back end contains."""
_EVASIVE = re.compile(
    r"\b(?:fall(?:ing)? back (?:to|on) (?:plain |eager |native )?(?:py)?torch|(?:just |simply )?use (?:torch\.compile|cublas|cudnn) instead"
    r"|(?:do not|don't|no need to|avoid) writ(?:e|ing) (?:a |any |custom )*(?:cuda |triton )?kernels?\b"
    r"|(?:skip|omit|drop|bypass|eliminate)(?:ping|ting|ing)? (?:the |entire )*(?:computation|kernel entirely|operator entirely)"
    r"|return (?:a )?(?:cached|constant|precomputed) (?:output|result))",
    re.I,
)
"""Advice against doing the work."""


def reason(
    example: Example, known_skills: Collection[str] | None = None, *, vouched: bool = False
) -> tuple[str, str] | None:
    """(reason, detail) why the example is refused; None when it is not.

    Args:
        known_skills: names that exist; None if no library was given: then only the candidates shown count.
        vouched: a like row was executed, so this one need not be executed or measured.
    """
    return (
        _not_executed(example, vouched)
        or _slow(example, vouched)
        or _size(example)
        or _lazy(example)
        or _unknown_skill(example, known_skills)
    )


def slower_than_best(rows: Sequence[ExampleRow]) -> dict[int, tuple[str, str]]:
    """Plain policy rows far below the best known speedup of their task and back end: position → (reason, detail).

    Rows that follow a given skill are left alone: they may show that the skill did not help.
    """
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.speedup is not None and row.kind in PLAYS:
            key = (row.task, row.backend)
            best[key] = max(best.get(key, 0.0), row.speedup)
    result = {}
    for position, row in enumerate(rows):
        top = best.get((row.task, row.backend), 0.0)
        if row.kind == "policy" and row.speedup is not None and row.speedup < NEAR_BEST * top:
            result[position] = ("below_best", f"{row.speedup:.3g}× where {top:.3g}× is known")
    return result


def _not_executed(example: Example, vouched: bool) -> tuple[str, str] | None:
    if not vouched and not example.verified:
        return "not_verified", f"from {example.origin}, never executed here"
    return None


def _slow(example: Example, vouched: bool) -> tuple[str, str] | None:
    if example.kind not in PLAYS and not example.chosen:
        return None  # a slow episode teaches that nothing was worth choosing or keeping
    least = MIN_SPEEDUP[example.kind]
    if example.speedup is None:
        return ("no_speedup", "nothing was measured") if not vouched and least > 0 else None
    if example.speedup < least:
        return "slow", f"{example.speedup:.3g}× is below {least:g}×"
    return None


def _size(example: Example) -> tuple[str, str] | None:
    answer = example.answer()
    # Roles answer in a word or two (`select none`); the parser of the answer decides what is too short for them.
    if len(answer.strip()) < (MIN_CHARS if example.kind in PLAYS else 1):
        return "too_short", f"{len(answer.strip())} characters are answered"
    whole = len(answer) + sum(
        len(str(message.get("content") or ""))
        for message in example.messages
        if message["role"] != "assistant"
    )
    if whole > MAX_CHARS:
        return "too_long", f"{whole} characters"
    return None


def _lazy(example: Example) -> tuple[str, str] | None:
    if example.kind in PLAYS:
        lower = example.code.lower()
        if any(hint in lower for hint in _HINTS) and (match := _PLACEHOLDER.search(example.code)):
            return "lazy", f"placeholder: {match.group(0)[:60].strip()}"
        kernel = _KERNELS.get(example.backend)
        # A test for whole files only; compact texts have no decorators.
        if kernel and "class ModelNew" in example.code and kernel not in example.code:
            return "lazy", f"no {kernel} in a {example.backend} answer"
    elif example.kind == "summary" and (match := _EVASIVE.search(example.answer())):
        return "lazy", f"evasive: {match.group(0)[:60]}"
    return None


def _unknown_skill(
    example: Example, known_skills: Collection[str] | None
) -> tuple[str, str] | None:
    if example.kind != "selection":
        return None
    if not example.chosen and not example.skills:
        return "unknown_skill", "picks none of none"
    for name in example.chosen:
        if example.skills and name not in example.skills:
            return "unknown_skill", f"{name} is not among the candidates"
        if known_skills is not None and name not in known_skills:
            return "unknown_skill", f"{name} is not in the library"
    if not example.skills and known_skills is None:
        return "unknown_skill", "no candidates and no library to look its picks up in"
    return None
