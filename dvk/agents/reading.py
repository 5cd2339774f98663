"""Parses a model's answer: a tool call, or code. Any text gives a result or a `MalformedAnswer` with the reason.

A tool call may come as the server's own `tool_calls`, as Qwen's XML (`<tool_call><function=NAME><parameter=P>…`), as JSON
inside `<tool_call>`, as fenced JSON, or as an answer that is JSON. Values may be JSON or Python literals: checkpoints
trained on a chat template that renders lists with `str()` write `[{'name': 'a'}]`. The first call counts.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_CHARS = 1 << 20
"""Longer answers are not parsed: no context window holds them."""

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.S)
_FUNCTION = re.compile(r"<function=([^>\s]+)\s*>(.*?)(?:</function>|\Z)", re.S)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)\s*>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.S)
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+.#-]*)[^\n`]*$", re.M)
_MODEL_NEW = re.compile(r"^(?:class\s+ModelNew\b|ModelNew\s*[:=])", re.M)


class MalformedAnswer(ValueError):
    """An answer that does not parse; the message gives the reason, for the record and for the learner.

    Args:
        shown: characters of the answer up to the error, if other tokens among them might have repaired it; None: unknown.
    """

    def __init__(self, why: str, shown: int | None = None):
        super().__init__(why)
        self.shown = shown


def arguments(
    text: str, tool_calls: Sequence[Mapping[str, Any]], tool: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of the answer's first tool call, which must be one of `tool`.

    Args:
        text: the model's text.
        tool_calls: calls that its server parsed, in OpenAI's form; empty for local models.
        tool: the schema (`tools`): parameters declared as strings stay text, others are decoded.

    Raises:
        MalformedAnswer: no call, another tool, values that cannot be decoded or serialised, or a required list missing.
    """
    wanted = tool["function"]["name"]
    parameters = tool["function"]["parameters"]["properties"]
    name, found = _first_call(text, tool_calls, wanted, parameters)
    if name != wanted:
        raise MalformedAnswer(
            f"it called `{name[:60].encode(errors='replace').decode()}` instead of `{wanted}`"
        )
    if not isinstance(found, Mapping):
        raise MalformedAnswer(f"the arguments of `{wanted}` are not an object")
    values = {
        key: _typed(key, value, parameters[key])
        for key, value in found.items()
        if key in parameters
    }
    for key, schema in parameters.items():
        if key not in values and schema["type"] == "array":
            raise MalformedAnswer(f"`{key}` is missing")
    try:
        json.dumps(values, ensure_ascii=False, default=str).encode()
    except (ValueError, TypeError, RecursionError):
        raise MalformedAnswer(
            f"the arguments of `{wanted}` hold what no JSON can: half of a surrogate pair, or a number too long"
        ) from None
    return values


def code(text: str, complete: bool = True) -> str:
    """The program in an answer: the last fenced block that defines ModelNew, else the last fenced block, else the text if it is code.

    Args:
        text: the model's text.
        complete: the model ended by itself; otherwise a block without an end was cut.

    Raises:
        MalformedAnswer: there is none, or it was cut.
    """
    plain = _answer(text)
    blocks = list(_blocks(plain))
    if not blocks:
        if _MODEL_NEW.search(plain) and _parses(plain):
            return plain.strip("\n") + "\n"
        raise MalformedAnswer("no fenced block of code" if plain.strip() else "an empty answer")
    defining = [block for block in blocks if _MODEL_NEW.search(block[0])]
    body, closed = (defining or blocks)[-1]
    if not closed and not complete:
        raise MalformedAnswer("the code was cut at the token limit")
    if not body.strip():
        raise MalformedAnswer("an empty block of code")
    return body.strip("\n") + "\n"


# ---------------------------------------------------------------- tool calls


def _first_call(
    text: str, tool_calls: Sequence[Mapping[str, Any]], wanted: str, parameters: Mapping[str, Any]
) -> tuple[str, Any]:
    if tool_calls:
        function = tool_calls[0].get("function") if isinstance(tool_calls[0], Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise MalformedAnswer("a tool call without a function")
        return function["name"], _decoded(function.get("arguments"), "the arguments")
    plain = _answer(text)
    marked = _CALL.search(plain)
    inside = marked.group(1) if marked else plain
    if (xml := _FUNCTION.search(inside)) is not None:
        return xml.group(1), {
            name: _unwrapped(value) for name, value in _PARAMETER.findall(xml.group(2))
        }
    if marked:
        return _named(_decoded(inside.strip(), "the tool call"), wanted, parameters)
    for body, _ in _blocks(plain):
        if body.lstrip().startswith("{"):
            return _named(_decoded(body.strip(), "the fenced JSON"), wanted, parameters)
    if plain.strip().startswith("{"):
        return _named(_decoded(plain.strip(), "the answer"), wanted, parameters)
    raise MalformedAnswer("no tool call" if plain.strip() else "an empty answer")


def _named(call: Any, wanted: str, parameters: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and arguments of `{"name": …, "arguments": {…}}`, also if `function` wraps them or only the arguments are there."""
    if isinstance(call, list) and call:
        call = call[0]
    if not isinstance(call, Mapping):
        raise MalformedAnswer("the tool call is not an object")
    if isinstance(call.get("function"), Mapping):
        call = call["function"]
    for key in ("arguments", "parameters"):
        if key in call and isinstance(call.get("name"), str):
            return call["name"], _decoded(call[key], "the arguments")
    lists = [key for key, schema in parameters.items() if schema["type"] == "array"]
    if any(key in call for key in lists):
        return wanted, call
    raise MalformedAnswer("a tool call without name and arguments")


def _typed(key: str, value: Any, schema: Mapping[str, Any]) -> Any:
    if schema["type"] == "string":
        return (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        )
    value = _decoded(value, f"`{key}`")
    if not isinstance(value, list):
        raise MalformedAnswer(f"`{key}` is not a list")
    return value


def _decoded(value: Any, what: str) -> Any:
    """JSON, else a Python literal; values that are not text are already decoded."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, strict=False)  # models write line breaks inside strings
    except (ValueError, RecursionError):
        pass
    try:
        with _unwarned():
            return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise MalformedAnswer(
            f"{what} cannot be decoded as JSON or as a Python literal: {_glimpse(value)}"
        ) from None


def _unwrapped(value: str) -> str:
    """Strip the line breaks that the template puts around a value."""
    return value.strip("\n")


# ---------------------------------------------------------------- text


def _answer(text: str) -> str:
    """As `visible`.

    Raises:
        MalformedAnswer: longer than anything a model is allowed to write, or a thought without an answer.
    """
    if len(text) > MAX_CHARS:
        raise MalformedAnswer(f"an answer of {len(text):,} characters")
    plain = visible(text)
    if not plain and text.strip():
        raise MalformedAnswer("a thought without an answer")
    return plain


def visible(text: str) -> str:
    """The text after any thinking, which is not shown to the model again; line ends unified."""
    text = text.replace("\r\n", "\n")
    thinking, closed, answer = text.rpartition("</think>")
    if closed:
        return answer
    return "" if thinking == "" and text.lstrip().startswith("<think>") else text


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """(content, whether it was closed) of every fenced block, in order; only a bare fence of the same kind closes one."""
    begun: tuple[int, str] | None = None
    for fence in _FENCE.finditer(text):
        if begun is None:
            begun = fence.end() + 1, fence[1]
        elif fence[1].startswith(begun[1]) and not fence[2]:
            yield text[begun[0] : fence.start()], True
            begun = None
    if begun is not None:
        yield text[begun[0] :], False


def _parses(text: str) -> bool:
    try:
        with _unwarned():
            ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """Suppress Python's warnings: a model's odd escapes must not reach the user's stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _glimpse(text: str) -> str:
    plain = " ".join(text.split())
    return f"`{plain}`" if len(plain) <= 60 else f"`{plain[:57]}…`"
