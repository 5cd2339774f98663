"""Conversations in stored formats → OpenAI-style messages with decoded tool calls; and facts parsed from them.

Lists may come as JSON text or nested, arguments of a call as an object, JSON text or a Python literal, and
nested parquet fills absent keys with null.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from dvk.learn.examples import said

_FENCE = re.compile(r"```[ \t]*[\w+-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.S)
_CANDIDATE = re.compile(r"^\s*(?:[-*]|\[?\d+[.)\]])\s*\*\*`?([^*`\n]+?)`?\*\*", re.M)
_FRONT_MATTER = re.compile(r"^---[ \t]*\n(?:[^\n]*\n)*?name:[ \t]*[\"']?([\w-]+)", re.M)
SKILL_BLOCK = "[Skill Library]"
"""Heading of the reference's block of injected skills."""


def listed(value: Any, what: str) -> list[dict[str, Any]]:
    """A list of objects, from JSON text or unchanged; null is an empty one.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value) if value.strip() else []
        except ValueError:
            raise ValueError(f"{what} is text but not JSON") from None
    value = [] if value is None else list(value) if isinstance(value, (list, tuple)) else value
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{what} is not a list of objects")
    return value


def conversation(value: Any) -> tuple[dict[str, Any], ...]:
    """Messages with their nulls dropped and their tool calls decoded.

    Raises:
        ValueError: not a conversation that ends with the assistant.
    """
    made = []
    for message in listed(value, "messages"):
        if not isinstance(message.get("role"), str):
            raise ValueError("a message has no role")
        clean = {
            key: item for key, item in message.items() if item is not None and key != "tool_calls"
        }
        clean.setdefault("content", "")
        if calls := message.get("tool_calls"):
            clean["tool_calls"] = [call(item) for item in listed(calls, "tool_calls")]
        made.append(clean)
    if not made or made[-1]["role"] != "assistant":
        raise ValueError("the conversation does not end with the assistant")
    return tuple(made)


def call(value: dict[str, Any]) -> dict[str, Any]:
    """A tool call with its arguments as an object.

    Raises:
        ValueError: no function name, or arguments that are neither JSON nor a Python literal of an object.
    """
    function = value.get("function") or value
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str):
        raise ValueError("a tool call has no function name")
    if isinstance(arguments, str):
        arguments = literal(arguments)
    if isinstance(arguments, dict):
        # Values inside may be text again: lists that a chat template wrote with str().
        arguments = {
            key: literal(item) if isinstance(item, str) and item[:1] in "[{" else item
            for key, item in arguments.items()
        }
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of `{name}` cannot be read")
    return {
        "id": value.get("id") or "call_0",
        "type": "function",
        "function": {"name": name, "arguments": without_nulls(arguments)},
    }


def literal(text: str) -> Any:
    """JSON, else a Python literal, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        try:
            return ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text


def named(messages: tuple[dict[str, Any], ...], key: str) -> tuple[str, ...]:
    """Names in the list `key` of the last message's tool call, whether its items are objects or plain names."""
    for item in messages[-1].get("tool_calls") or ():
        result = item["function"]["arguments"].get(key)
        if isinstance(result, (list, tuple)):
            return names(result)
    return ()


def text(message: dict[str, Any]) -> str:
    """All text of a message."""
    return "\n".join(said(message))


def first_user(messages: tuple[dict[str, Any], ...]) -> str:
    """The text of the first message of the user."""
    return next((text(message) for message in messages if message["role"] == "user"), "")


def fenced(answer: str, containing: str = "") -> str:
    """The last fenced block with `containing` in it; without any, the last block; without a fence, nothing."""
    blocks = [block.strip("\n") for block in _FENCE.findall(answer)]
    return next(
        (block for block in reversed(blocks) if containing in block), blocks[-1] if blocks else ""
    )


def reference(prompt: str, entry: str = "Model") -> str | None:
    """The reference module in a KernelBench-style prompt: the last block, fenced or not, that defines `entry`."""
    define = re.compile(rf"^class {re.escape(entry)}\b", re.M)
    blocks = [block.strip("\n") for block in _FENCE.findall(prompt) if define.search(block)]
    return blocks[-1] if blocks else None


def shown(prompt: str) -> tuple[str, ...]:
    """Names of the skills in a prompt: numbered candidates in bold, else front matter of whole skills."""
    matches = _CANDIDATE.findall(prompt) or _FRONT_MATTER.findall(prompt)
    return tuple(dict.fromkeys(name.strip() for name in matches))


def names(value: Any) -> tuple[str, ...]:
    """Names in a list of skills, objects or plain names; other values have none."""
    items = value if isinstance(value, (list, tuple)) else []
    result = [item.get("name") if isinstance(item, dict) else item for item in items]
    return tuple(name for name in result if isinstance(name, str) and name)


def positive(value: Any) -> float | None:
    """A speedup: a positive finite number; null for anything else, such as the 0 or −1 of a failed round."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 < value < float("inf")
    ):
        return None
    return float(value)


def without_nulls(value: Any) -> Any:
    """Nested parquet gives every object all keys that any has."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
