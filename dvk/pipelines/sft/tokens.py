"""Examples as rows of tokens: what the model will have been shown, and what it should have said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dvk import machine
from dvk.backbone import Conversation, Trainable
from dvk.learn.examples import Example

BLOCK = 1024
"""Examples in work at a time."""
Tokens = tuple[list[int], list[bool]]
"""Ids, and for each whether it is learned."""


@dataclass
class Rendering:
    """Turns examples into rows; counts what does not fit.

    Args:
        backbone: whose template and tokenizer are used, so that rows are exactly what it will see and say.
        capacity: longest row in tokens.
    """

    backbone: Trainable
    capacity: int
    num_rows: int = 0
    num_too_long: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)

    def rows(self, examples: Iterable[Example]) -> Iterator[Tokens]:
        """The rows of all examples, in their order. The tokenizer's own work runs beside Python, so threads help."""
        source = iter(examples)
        with ThreadPoolExecutor(machine.num_cores()) as threads:
            while block := list(islice(source, BLOCK)):
                for example, found in zip(block, threads.map(self.example, block), strict=True):
                    for row in found:
                        if len(row[0]) > self.capacity:
                            self.num_too_long += 1
                            continue
                        self.num_rows += 1
                        self.by_kind[example.kind] = self.by_kind.get(example.kind, 0) + 1
                        yield row

    def example(self, example: Example) -> list[Tokens]:
        """One row a conversation; several where an answer is shown differently to later turns than it was given.

        Chat templates may cut what they show of earlier answers (thinking), so a later turn is only joined to
        the row when its prompt really begins with what the row already holds.
        """
        found: list[Tokens] = []
        for position, message in enumerate(example.messages):
            if message["role"] != "assistant":
                continue
            prompt = list(self.backbone.encode(Conversation(messages=example.messages[:position], tools=example.tools)))
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
            return list(self.backbone.encode_answer(message.get("content") or ""))
        tokenizer = self.backbone.tokenizer
        tools, upto = list(example.tools) or None, list(example.messages[: position + 1])
        whole = tokenizer.apply_chat_template(upto, tools=tools, tokenize=True, return_dict=False)
        if whole[: len(prompt)] != prompt:
            # Without the generation prompt's extras (an empty thinking block) the shared beginning is shorter.
            text = tokenizer.apply_chat_template(upto, tools=tools, tokenize=False)
            before = tokenizer.apply_chat_template(upto[:-1], tools=tools, tokenize=False, add_generation_prompt=True)
            said = text[len(before) :] if text.startswith(before) else text[len(before.rstrip()) :]
            return list(self.backbone.encode_answer(said.split(tokenizer.eos_token or "\0", 1)[0].strip()))
        rest = whole[len(prompt) :]
        end = tokenizer.eos_token_id
        return rest[: rest.index(end) + 1] if end in rest else rest
