"""Examples as rows of the published formats: `formats.read` gives the example back, as far as the columns hold it.

A row that does not fit a format is an error of that row: a summary is no trajectory, an answer in plain text no tool call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dvk.interop import tables
from dvk.interop.davinci.formats import combined
from dvk.learn.examples import Example

MESSAGES: tables.Column = [{"role": "string", "content": "string"}]
COLDSTART: dict[str, tables.Column] = {
    "messages": MESSAGES,
    "uuid": "int64",
    "entry_point": "string",
    "repo_name": "string",
    "module_name": "string",
    "final_speedup": "float64",
    "num_rounds": "int64",
    "original_python_code": "string",
    "best_round": "int64",
    "timestamp": "float64",
    "conversion_mode": "string",
    "enable_thinking": "bool_",
}
WRITERS = ("combined", "coldstart", "seed", "skills", "selection")
"""Names, as of `formats.FORMATS`; the first two are parquet, the others one JSON object a line."""
PARQUET = ("combined", "coldstart")


def write(path: Path, name: str, examples: Iterable[Example], problems: list[str]) -> int:
    """Write the examples that fit, to a temporary file and then renamed; returns how many.

    Args:
        name: one of WRITERS.
        problems: receives `id: reason` for every example left out.

    Raises:
        MachineError: parquet, and pyarrow is not installed.
    """
    if name == "combined":
        return combined.write(path, examples)
    fitting = _fitting(
        {"coldstart": coldstart, "seed": seed, "skills": summary, "selection": selection}[name],
        examples,
        problems,
    )
    return (
        tables.write_parquet(path, COLDSTART, fitting)
        if name == "coldstart"
        else _lines(path, fitting)
    )


def coldstart(example: Example) -> dict[str, Any]:
    """A row of `drkernel-coldstart-8k`.

    Raises:
        ValueError: not a plain policy conversation of user and assistant.
    """
    if example.kind != "policy":
        raise ValueError(f"{example.kind} is no plain trajectory")
    row = seed(example)
    known = {key: row[key] for key in COLDSTART if key in row}
    return {"repo_name": "", "timestamp": 0.0, "conversion_mode": "dvk", **known}


def seed(example: Example) -> dict[str, Any]:
    """A seed record: a trajectory up to its best round.

    Raises:
        ValueError: not a policy conversation of user and assistant in turn.
    """
    if example.kind not in ("policy", "policy_with_skills"):
        raise ValueError(f"{example.kind} is no trajectory")
    told = [{"role": message["role"], "content": _text(message)} for message in example.messages]
    if [message["role"] for message in told] != ["user", "assistant"] * (len(told) // 2):
        raise ValueError("user and assistant do not take turns in it")
    rounds = len(told) // 2
    speedups = [*example.round_speedups, *[None] * (rounds - len(example.round_speedups))]
    speedups[rounds - 1] = example.speedup
    return {
        "uuid": _uuid(example),
        "messages": told,
        "original_python_code": example.task.source,
        "entry_point": "Model",
        "module_name": example.task.name,
        "round_speedups": [value or 0.0 for value in speedups],
        "best_round": rounds,
        "num_rounds": rounds,
        "final_speedup": example.speedup,
        "enable_thinking": bool(example.quality.get("enable_thinking", False)),
        **({"injected_skills": list(example.skills)} if example.skills else {}),
    }


def summary(example: Example) -> dict[str, Any]:
    """A line of `generated_skills*.jsonl`.

    Raises:
        ValueError: not a summary whose answer is a tool call.
    """
    row, arguments = _taught(example, "summary")
    retrieved = (
        {"setting": "with_skills", "retrieved_skills": [{"name": name} for name in example.skills]}
        if example.skills
        else {}
    )
    return {**row, "skills": arguments.get("new_skills") or [], "rejected": [], **retrieved}


def selection(example: Example) -> dict[str, Any]:
    """A line of `selected_skill_data.jsonl`.

    Raises:
        ValueError: not a selection whose answer is a tool call.
    """
    row, arguments = _taught(example, "selection")
    shown = [{"name": name} for name in example.skills]
    return {
        **row,
        "bm25_candidates": shown,
        "selected_skills": arguments.get("selected_skills") or [],
    }


def _taught(example: Example, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields common to both roles' lines, and the arguments of the call."""
    if example.kind != kind:
        raise ValueError(f"{example.kind} is no {kind}")
    *asked, answer = example.messages
    calls = answer.get("tool_calls") or ()
    if not calls:
        raise ValueError("its answer is text, not a tool call")
    function = calls[0]["function"]
    arguments = (
        function["arguments"]
        if isinstance(function["arguments"], dict)
        else json.loads(function["arguments"])
    )
    raw = {"name": function["name"], "arguments": json.dumps(arguments, ensure_ascii=False)}
    origin = {
        "uuid": _uuid(example),
        "original_python_code": example.task.source,
        "entry_point": "Model",
        "round_speedups": [value or 0.0 for value in example.round_speedups],
        "final_speedup": example.speedup,
    }
    return {
        "uuid": _uuid(example),
        "status": "ok",
        "think": arguments.get("think") or "",
        "content": _text(answer),
        "tool_call_raw": {"id": calls[0].get("id") or "call_0", "function": raw},
        "input_messages": asked,
        "source_record": origin,
    }, arguments


def _uuid(example: Example) -> int:
    """The row's own number if it was imported with one, else one made of the id."""
    known = example.quality.get("uuid")
    return (
        known
        if isinstance(known, int) and not isinstance(known, bool)
        else int(example.id[:15], 16)
    )


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return (
        content
        if isinstance(content, str)
        else "\n".join(part.get("text", "") for part in content or () if isinstance(part, dict))
    )


def _fitting(
    row_of: Callable[[Example], dict[str, Any]], examples: Iterable[Example], problems: list[str]
) -> Iterator[dict[str, Any]]:
    for example in examples:
        try:
            yield row_of(example)
        except ValueError as error:
            problems.append(f"{example.id}: {error}")


def _lines(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    number = 0
    try:
        with aside.open("w", encoding="utf-8", errors="replace") as out:
            for row in rows:
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
                number += 1
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return number
