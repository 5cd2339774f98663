"""daVinci's combined SFT parquet: `messages` and `tools` as JSON text (or nested), `enable_thinking`.

Its rows do not name their kind: the offered tool identifies the two skill roles, the block of
injected skills the second kind of policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dvk.interop import tables
from dvk.interop.davinci.formats import feedback, operators
from dvk.interop.davinci.formats.trajectories import task
from dvk.learn import messages
from dvk.learn.examples import Example, Kind

COLUMNS = {"messages": "large_string", "tools": "large_string", "enable_thinking": "bool_"}
_LISTS = {"select_skills": "selected_skills", "update_skill_library": "new_skills"}


def example(row: dict[str, Any]) -> Example:
    """One row.

    Raises:
        ValueError: not such a row.
    """
    said = messages.conversation(row.get("messages"))
    tools = [messages.without_nulls(tool) for tool in messages.listed(row.get("tools"), "tools")]
    offered = {(tool.get("function") or tool).get("name") for tool in tools}
    prompt = messages.first_user(said)
    injected = next(
        (
            messages.text(m)
            for m in said
            if m["role"] != "assistant" and messages.SKILL_BLOCK in messages.text(m)
        ),
        "",
    )
    kind: Kind
    if "select_skills" in offered:
        kind, skills = "selection", messages.shown(prompt)
    elif "update_skill_library" in offered:
        kind, skills = "summary", messages.shown(prompt)
    else:
        skills = messages.shown(injected[injected.find(messages.SKILL_BLOCK) :]) if injected else ()
        kind = "policy_with_skills" if skills else "policy"
    source = messages.reference(prompt)
    plays = kind in ("policy", "policy_with_skills")
    answers = sum(message["role"] == "assistant" for message in said)
    rounds = feedback.round_speedups(said) if plays else ()
    return Example.new(
        kind=kind,
        messages=said,
        tools=tuple(tools),
        task=task(source, prompt, "Model"),
        signature=operators.signature(source or ""),
        backend="triton" if plays else "",
        skills=skills,
        chosen=()
        if plays
        else messages.named(
            said, _LISTS["select_skills" if kind == "selection" else "update_skill_library"]
        ),
        code=messages.fenced(messages.text(said[-1]), "ModelNew") if plays else "",
        round_speedups=feedback.known(rounds, answers) if rounds else (),
        quality={"enable_thinking": bool(row.get("enable_thinking"))},
        origin="import:combined",
    )


def write(path: Path, examples: Iterable[Example]) -> int:
    """Write examples in this format; returns how many.

    Raises:
        MachineError: pyarrow is not installed.
    """
    return tables.write_parquet(path, COLUMNS, map(_row, examples))


def _row(example: Example) -> dict[str, Any]:
    return {
        "messages": json.dumps(example.messages, ensure_ascii=False),
        "tools": json.dumps(example.tools, ensure_ascii=False) if example.tools else None,
        "enable_thinking": bool(example.quality.get("enable_thinking", False)),
    }
