"""Answers of the teachers of daVinci's two skill roles: generated skills and selections, one JSON object a line.

A line holds the conversation in `input_messages` and the answer as a raw tool call; only `status: ok` is used.
A selection that names a skill outside its candidates is imported as it is, and the diversity filter rejects it.
"""

from __future__ import annotations

from typing import Any

from dvk.interop.davinci.formats import operators
from dvk.interop.davinci.formats.trajectories import task
from dvk.learn import messages
from dvk.learn.examples import Example

_SKILL = {key: {"type": "string"} for key in ("name", "description", "scope", "content")} | {
    "tags": {"type": "array", "items": {"type": "string"}}
}
_PICK = {"name": {"type": "string"}, "reason": {"type": "string"}}


def summary(row: dict[str, Any]) -> Example:
    """A line of `generated_skills*.jsonl`, made with or without retrieved skills.

    Raises:
        ValueError: not ok, or not such a row.
    """
    said = _conversation(row)
    return _example(
        row,
        said,
        "summary",
        "update_skill_library",
        "new_skills",
        _SKILL,
        messages.names(row.get("retrieved_skills")),
    )


def selection(row: dict[str, Any]) -> Example:
    """A line of `selected_skill_data.jsonl`; the candidates of retrieval are its given skills.

    Raises:
        ValueError: not ok, or not such a row.
    """
    said = _conversation(row)
    return _example(
        row,
        said,
        "selection",
        "select_skills",
        "selected_skills",
        _PICK,
        messages.names(row.get("bm25_candidates")),
    )


def _conversation(row: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    if row.get("status") != "ok":
        raise ValueError(f"status is {row.get('status')!r}, not ok")
    raw = row.get("tool_call_raw")
    if not isinstance(raw, dict):
        raise ValueError("tool_call_raw is not an object")
    asked = messages.listed(row.get("input_messages"), "input_messages")
    answer = {"role": "assistant", "content": row.get("content") or "", "tool_calls": [raw]}
    return messages.conversation([*asked, answer])


def _example(
    row: dict[str, Any],
    said: tuple[dict[str, Any], ...],
    kind: str,
    tool: str,
    key: str,
    item: dict[str, Any],
    given: tuple[str, ...],
) -> Example:
    origin = row.get("source_record") if isinstance(row.get("source_record"), dict) else {}
    assert isinstance(origin, dict)
    prompt = messages.first_user(said)
    entry = str(origin.get("entry_point") or "Model")
    source = origin.get("original_python_code") or messages.reference(prompt, entry)
    speedups = tuple(messages.positive(value) for value in origin.get("round_speedups") or ())
    known = [value for value in speedups if value is not None]
    return Example.new(
        kind=kind,
        messages=said,
        tools=(schema(tool, key, item),),
        task=task(source, prompt, entry),
        signature=operators.signature(source or "", entry),
        skills=given,
        chosen=messages.named(said, key),
        speedup=messages.positive(origin.get("final_speedup")) or (max(known) if known else None),
        round_speedups=speedups,
        quality={"uuid": row["uuid"]} if row.get("uuid") is not None else {},
        origin="import:skills" if kind == "summary" else "import:selection",
    )


def schema(tool: str, key: str, item: dict[str, Any]) -> dict[str, Any]:
    """A tool of two required parameters, `think` and the list `key`, as in these files' prompts."""
    listed = {
        "type": "array",
        "items": {"type": "object", "properties": item, "required": list(item)},
    }
    parameters = {
        "type": "object",
        "properties": {"think": {"type": "string"}, key: listed},
        "required": ["think", key],
    }
    return {"type": "function", "function": {"name": tool, "parameters": parameters}}
