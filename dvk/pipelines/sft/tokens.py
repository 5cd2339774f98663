"""Examples as rows of tokens: what the model will have been shown, and what it should have said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np

from dvk.backbone import Conversation
from dvk.learn.examples import Example
from dvk.learn.spread import spread

BLOCK = 1024
"""Examples in work at a time."""
Tokens = tuple[list[int], list[bool]]
"""Ids, and for each whether it is learned."""


class Speaker(Protocol):
    """What of a backbone is needed: see `Trainable`."""

    tokenizer: Any

    def encode(self, conversation: Conversation) -> tuple[int, ...]: ...

    def encode_answer(self, text: str) -> tuple[int, ...]: ...


@dataclass
class Rendering:
    """Turns examples into rows; counts what does not fit.

    Args:
        speaker: whose template and tokenizer are used, so that rows are exactly what the model will see and say. A
            backbone's `chat` can be sent to other processes, the backbone cannot.
        capacity: longest row in tokens.
    """

    speaker: Speaker
    capacity: int
    num_rows: int = 0
    num_too_long: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)

    def rows(self, examples: Iterable[Example], workers: int = 1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The rows of all examples, in their order, made by so many processes."""
        source = iter(examples)
        blocks = iter(lambda: list(islice(source, BLOCK)), [])
        for found in spread(self.block, blocks, workers):
            for kind, ids, targets in found:
                if len(ids) > self.capacity:
                    self.num_too_long += 1
                    continue
                self.num_rows += 1
                self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
                yield ids, targets

    def block(self, examples: Sequence[Example]) -> list[tuple[str, np.ndarray, np.ndarray]]:
        """(kind, ids, targets) of every row; arrays, which travel between processes at little cost."""
        return [(example.kind, np.asarray(ids, np.uint32), np.asarray(targets, bool))
                for example in examples for ids, targets in self.example(example)]  # fmt: skip

    def example(self, example: Example) -> list[Tokens]:
        """One row a conversation; several where an answer is shown differently to later turns than it was given.

        Chat templates may cut what they show of earlier answers (thinking), so a later turn is only joined to
        the row when its prompt really begins with what the row already holds.
        """
        found: list[Tokens] = []
        for position, message in enumerate(example.messages):
            if message["role"] != "assistant":
                continue
            prompt = list(self.speaker.encode(Conversation(messages=example.messages[:position], tools=example.tools)))
            answer = self.answer(example, position, prompt)
            if found and prompt[: len(found[-1][0])] == found[-1][0]:
                ids, targets = found[-1]
                more = prompt[len(ids) :]
                found[-1] = (ids + more + answer, targets + [False] * len(more) + [True] * len(answer))
            else:
                found.append((prompt + answer, [False] * len(prompt) + [True] * len(answer)))
        return found

    def answer(self, example: Example, position: int, prompt: list[int]) -> list[int]:
        """The tokens of one answer. Tool calls are written by the model's own template, which alone knows their form."""
        message: dict[str, Any] = example.messages[position]
        if not message.get("tool_calls"):
            return list(self.speaker.encode_answer(message.get("content") or ""))
        tokenizer = self.speaker.tokenizer
        tools, upto = list(example.tools) or None, list(example.messages[: position + 1])
        whole = tokenizer.apply_chat_template(upto, tools=tools, tokenize=True, return_dict=False)
        if whole[: len(prompt)] != prompt:
            # Without the generation prompt's extras (an empty thinking block) the shared beginning is shorter.
            text = tokenizer.apply_chat_template(upto, tools=tools, tokenize=False)
            before = tokenizer.apply_chat_template(upto[:-1], tools=tools, tokenize=False, add_generation_prompt=True)
            said = text[len(before) :] if text.startswith(before) else text[len(before.rstrip()) :]
            return list(self.speaker.encode_answer(said.split(tokenizer.eos_token or "\0", 1)[0].strip()))
        rest = whole[len(prompt) :]
        end = tokenizer.eos_token_id
        return rest[: rest.index(end) + 1] if end in rest else rest
