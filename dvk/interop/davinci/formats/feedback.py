"""Speedups of a trajectory's rounds, from the judge's JSON in its user turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dvk.learn.messages import text

_DECODER = json.JSONDecoder()
_TELLING = {"speedup", "correctness", "compiled"}
"""Keys of which a feedback object has at least two."""


def round_speedups(messages: tuple[dict[str, Any], ...]) -> tuple[float | None, ...]:
    """One for every user turn after an answer, oldest first; 0 if that round was not correct, null if unknown.

    The answer that ends a conversation has no feedback after it, and so no entry.
    """
    result, answered = [], False
    for message in messages:
        if message["role"] == "assistant":
            answered = True
        elif message["role"] == "user" and answered:
            result.append(speedup(text(message)))
            answered = False
    return tuple(result)


def speedup(feedback: str) -> float | None:
    """The speedup that a feedback message reports; 0 unless the round was correct and no decoy, null if it reports nothing."""
    told = _object(feedback)
    if not told:
        return None
    value = told.get("speedup")
    failed = (
        told.get("correctness") is False
        or told.get("compiled") is False
        or told.get("decoy_kernel") is True
    )
    if (
        failed
        or isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 < value < float("inf")
    ):
        return 0.0
    return float(value)


def known(told: Sequence[float | None], answers: int) -> tuple[float | None, ...]:
    """The rounds of an example with so many answers, null if one was not correct; empty if one before the last is unknown.

    Args:
        told: a round, 0 or less if it was not correct, null if unknown.
    """
    if len(told) < answers - 1 or None in told[: answers - 1]:
        return ()
    return tuple(
        value if value is not None and value > 0 else None for value in [*told, None][:answers]
    )


def _object(text: str) -> dict[str, Any]:
    """The first JSON object in `text` that looks like a judge's answer, also one level down; else an empty one."""
    at = text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        for candidate in [value, *value.values()]:
            if isinstance(candidate, dict) and len(_TELLING & set(candidate)) >= 2:
                return candidate
        at = text.find("{", end)
    return {}
