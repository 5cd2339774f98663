"""A fake for tests and demonstrations: answers come from a file, or repeat the last message.

A line of the file is a JSON object: `answer` (text) and, optionally, `match` (a regular expression searched for in the last
message), `tool_calls` (OpenAI-style) and `finish` (`stop`, `length` or `error`, the last with the answer as its error).
Lines with `match` are tried first, in order, and can be reused; lines without one are used up in order. A line
`{"dialect": "compact"}` sets the fake's dialect. Tokens are counted as words.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dvk.backbone import Completion, Conversation, Dialect, Sampling, TokenUsage
from dvk.config import Config
from dvk.errors import UsageError

_KEYS = {"answer", "match", "tool_calls", "finish"}


class ScriptedBackbone:
    """`scripted:FILE`; without a file the last message's text is the answer.

    Raises:
        UsageError: the file is missing or a line of it is malformed.
    """

    def __init__(self, argument: str, config: Config, *, device: str | None = None):
        self.name = f"scripted:{argument}" if argument else "scripted"
        self.dialect: Dialect = "chat"
        self.usage = TokenUsage()
        self.echoes = not argument
        self.matching: list[tuple[re.Pattern[str], dict[str, Any]]] = []
        self.ordered: deque[dict[str, Any]] = deque()
        self._lock = threading.Lock()
        if argument:
            self._read(Path(argument).expanduser())

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"cannot read the script `{path}`: {error}", "give a readable JSONL file"
            ) from None
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
                if set(line) == {"dialect"} and line["dialect"] in ("chat", "compact"):
                    self.dialect = line["dialect"]
                    continue
                if not set(line) <= _KEYS or not ({"answer", "tool_calls"} & set(line)):
                    raise ValueError(f"keys are {sorted(line)}")
                _completion(line, Sampling())
                if "match" in line:
                    self.matching.append((re.compile(line["match"], re.S), line))
                else:
                    self.ordered.append(line)
            except (ValueError, TypeError, re.error) as error:
                hint = 'write {"answer": …} with match, tool_calls or finish next to it, or {"dialect": …}'
                raise UsageError(
                    f"line {number} of the script `{path}` is malformed: {error}", hint
                ) from None

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        """One scripted answer a conversation; sampling is ignored, except stop texts.

        Raises:
            UsageError: no line is left for a conversation.
        """
        began = time.perf_counter()
        completions = [self._answer(conversation, sampling) for conversation in conversations]
        read = sum(
            len(str(message.get("content") or "").split())
            for c in conversations
            for message in c.messages
        )
        self.usage.add(
            read, sum(len(c.text.split()) for c in completions), time.perf_counter() - began
        )
        return completions

    def catch_up(self, conversations: Sequence[Conversation], sampling: Sampling) -> None:
        """Mark earlier answers as used: the lines that they took are used up here too."""
        for conversation in conversations:
            self._answer(conversation, sampling)

    def _answer(self, conversation: Conversation, sampling: Sampling) -> Completion:
        last = str(conversation.messages[-1].get("content") or "") if conversation.messages else ""
        if self.echoes:
            return Completion(text=sampling.cut(last), finish="stop")
        for pattern, line in self.matching:
            if pattern.search(last):
                return _completion(line, sampling)
        with self._lock:
            if self.ordered:
                return _completion(self.ordered.popleft(), sampling)
        problem = f"the script has no answer left for a conversation that ends in: {last[-80:]!r}"
        raise UsageError(
            problem, 'add a line, or one that serves everything: {"match": "", "answer": …}'
        )


def _completion(line: dict[str, Any], sampling: Sampling) -> Completion:
    finish, answer = line.get("finish", "stop"), line.get("answer") or ""
    if finish == "error":
        return Completion(text="", finish="error", error=answer or "scripted error")
    return Completion(
        text=sampling.cut(answer), finish=finish, tool_calls=tuple(line.get("tool_calls") or ())
    )
