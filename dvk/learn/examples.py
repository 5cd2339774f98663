"""Examples: SFT's training data, one conversation a JSON line, with the facts about its answer.

An example ends with the assistant's answer. Collected, imported and filtered examples are all this
one record; files are read as streams, and written to temporary files and then
renamed, so that an existing file is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from dvk.errors import UsageError
from dvk.records import Record, content_hash

Kind = Literal["policy", "policy_with_skills", "selection", "summary"]
KINDS: tuple[Kind, ...] = ("policy", "policy_with_skills", "selection", "summary")
"""The four kinds of the reference, in the order in which tables show them."""


class ExampleTask(Record):
    """The task that an example is about, as far as known."""

    id: str = Field(
        description="Task id where dvk examined the task, else a hash of what is known of it."
    )
    name: str = Field("", description="Human name.")
    source: str | None = Field(
        None, description="The whole text of the reference file; null when it was not kept."
    )
    category: str | None = Field(None, description="What kind of problem, e.g. `norm`.")
    level: str | None = Field(
        None, description="How large a problem, e.g. `single`, `fusion`, `network`."
    )


class Example(Record):
    """One conversation to learn from. `Example.new` makes one with its id."""

    id: str = Field(
        description="Content hash of what is learned: kind, task, backend, messages, tools."
    )
    kind: Kind = Field(description="Which of the four kinds of data.")
    messages: tuple[dict[str, Any], ...] = Field(
        description="OpenAI-style messages; the last is the assistant's."
    )
    tools: tuple[dict[str, Any], ...] = Field(
        (), description="OpenAI-style schemas of the tools that were offered."
    )
    task: ExampleTask = Field(description="What it is about.")
    signature: tuple[str, ...] = Field(
        (), description="Operator sequence of the task, as `Graph.signature` gives it."
    )
    listing: str = Field(
        "", description="The task's graph listing or compact prompt; may be empty."
    )
    backend: str = Field(
        "", description="What the code is written in: triton, cuda, cpp; empty for the other roles."
    )
    skills: tuple[str, ...] = Field(
        (), description="Names of the skills given; for a selection, the candidates shown."
    )
    chosen: tuple[str, ...] = Field(
        (), description="Names in the answer: picked by a selection, proposed by a summary."
    )
    code: str = Field(
        "", description="The candidate's text of the last turn; empty for the other roles."
    )
    speedup: float | None = Field(
        None,
        gt=0,
        description="Measured for the last turn; of a selection or summary, for its episode.",
    )
    lo: float | None = Field(None, gt=0, description="Lower end of the speedup's 95 % interval.")
    round_speedups: tuple[float | None, ...] = Field(
        (),
        description="One per turn, oldest first; null if it was not correct; empty unless it is known for every turn.",
    )
    parent: str | None = Field(
        None, description="Id of the example whose code this one improves on."
    )
    quality: dict[str, Any] = Field(
        default_factory=dict, description="What else is known of the answer, by name."
    )
    origin: str = Field(description="`composer`, `endpoint:MODEL`, `import:FORMAT`, …")
    verified: bool = Field(
        False,
        description="The code, or for other roles their episode's, was executed here and is ok.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Example:
        if not self.messages or self.messages[-1].get("role") != "assistant":
            raise ValueError("the last message is not the assistant's")
        if any(not isinstance(message.get("role"), str) for message in self.messages):
            raise ValueError("a message has no role")
        if self.kind == "policy_with_skills" and not self.skills:
            raise ValueError("policy_with_skills names no skill")
        if self.kind == "policy" and self.skills:
            raise ValueError("a plain policy example names skills: its kind is policy_with_skills")
        if self.lo is not None and (self.speedup is None or self.lo > self.speedup):
            raise ValueError("lo is the lower end of an interval around speedup")
        return self

    @classmethod
    def new(cls, **fields: Any) -> Example:
        """An example whose id is computed from `fields`."""
        made = cls.model_validate({"id": "", **fields})
        return made.model_copy(update={"id": made.content_id()})

    def content_id(self) -> str:
        """The id of these contents."""
        learned = json.dumps([self.messages, self.tools], sort_keys=True, ensure_ascii=True)
        return content_hash(self.kind, self.task.id, self.backend, learned)

    def answer(self) -> str:
        """The assistant's whole output: text and arguments of tool calls, turn after turn."""
        return "\n".join(
            text
            for message in self.messages
            if message.get("role") == "assistant"
            for text in said(message)
        )


def said(message: dict[str, Any]) -> Iterator[str]:
    """The texts of one message: content, also if it comes in parts, and arguments of tool calls."""
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str) and text:
            yield text
    for call in message.get("tool_calls") or ():
        arguments = (call.get("function") or {}).get("arguments")
        yield arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


# ---------------------------------------------------------------- files


def files(path: Path) -> list[Path]:
    """The files of examples that `path` stands for: itself, or a folder's `*.jsonl` by name.

    Raises:
        UsageError: there is none.
    """
    result = sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.is_file() else []
    if not result:
        raise UsageError(
            f"no examples at `{path}`", "give a .jsonl file, or a folder that holds some"
        )
    return result


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line without its end) of every line that is not blank.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line := line.strip():
                    yield number, line
    except OSError as error:
        raise UsageError(
            f"cannot read `{path}`: {error.strerror}", "give a readable file of examples"
        ) from None


def parse(line: bytes, where: str) -> Example:
    """One line as an example.

    Args:
        where: `file:line`, for the error.

    Raises:
        UsageError: it is not one, with a remedy.
    """
    try:
        return Example.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "json_invalid":
            hint = "a line that a kill cut short can be deleted; other files are imported with `dvk.interop.davinci.formats`"
            raise UsageError(f"{where}: not JSON", hint) from None
        hint = (
            "write examples with dvk, or import a published set with `dvk.interop.davinci.formats`"
        )
        raise UsageError(
            f"{where}: not an example: {field + ': ' if field else ''}{first['msg']}", hint
        ) from None


def read(path: Path) -> Iterator[Example]:
    """The examples of a file or folder, one at a time.

    Raises:
        UsageError: nothing there, unreadable, or a line that is not an example, with file and line.
    """
    for file in files(path):
        for number, line in lines(file):
            yield parse(line, f"{file}:{number}")


def write(path: Path, examples: Iterable[Example]) -> int:
    """Write a whole file, to a temporary file and then renamed; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    number = 0
    try:
        with aside.open("wb") as out:
            for example in examples:
                out.write(example.model_dump_json(exclude_defaults=True).encode() + b"\n")
                number += 1
            out.flush()
            os.fsync(out.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return number
